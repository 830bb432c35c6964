// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// HTTP sends each event as a CloudEvent of its own, in binary mode.
type HTTP struct {
	// URL is where to.
	URL *url.URL
	// About is what all events say.
	About About
	// CAFile has the certificates that count instead of the system's, where it exists; it is read again when it changes.
	// Anyone turns the check off.
	CAFile string
	Anyone bool
	Log    *slog.Logger

	// Try is how long one attempt may take, and Pauses are those before the next ones.
	Try    time.Duration
	Pauses []time.Duration

	mu     sync.Mutex
	client *http.Client
	roots  []byte
	looked time.Time
	warned bool
}

const (
	// eventType is how types of events begin.
	eventType = "org.kubeflow.serving.inference."
	// reread is how often the file with certificates is compared, at most.
	reread = 10 * time.Second
	// tryTime is how long a receiver may take for one event.
	tryTime = 10 * time.Second
	// readAnswer bounds what is read of an answer, so that its connection can be used again.
	readAnswer = 64 << 10
)

// pauses between attempts: a receiver that restarts misses nothing, one that is gone does not hold events up for long.
var pauses = []time.Duration{200 * time.Millisecond, time.Second}

// Batch is one event at a time.
func (*HTTP) Batch() (int, time.Duration) { return 1, 0 }

// Send delivers one event. It tries again what may work later.
func (h *HTTP) Send(ctx context.Context, events []Event) error {
	rest := h.Pauses
	if rest == nil {
		rest = pauses
	}
	for {
		err := h.once(ctx, &events[0])
		var final *refused
		if err == nil || ctx.Err() != nil || errors.As(err, &final) && !final.transient() || len(rest) == 0 {
			return err
		}
		timer := time.NewTimer(rest[0])
		rest = rest[1:]
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// refused is an answer of the receiver that is none of success.
type refused struct{ status int }

func (r *refused) Error() string {
	return fmt.Sprintf("the receiver answers with status %d; look at its log", r.status)
}

func (r *refused) transient() bool {
	return r.status >= 500 || r.status == http.StatusTooManyRequests || r.status == http.StatusRequestTimeout
}

func (h *HTTP) once(ctx context.Context, e *Event) error {
	client, err := h.current()
	if err != nil {
		return err
	}
	limit := h.Try
	if limit == 0 {
		limit = tryTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL.String(), bytes.NewReader(e.Body))
	if err != nil {
		return errors.New("the address of the receiver is not valid")
	}
	h.describe(req.Header, e)
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the receiver cannot be reached: %w", cause(err))
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, readAnswer) // it answered, whatever more it says
	if answer.StatusCode/100 != 2 {
		return &refused{answer.StatusCode}
	}
	return nil
}

// cause is an error of the network without the address, which may have a password.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return err
}

// describe writes what an event says of itself. Extensions are there also when they are empty.
func (h *HTTP) describe(header http.Header, e *Event) {
	set := func(name, value string) { header.Set(name, printable(value)) }
	set("Ce-Specversion", "1.0")
	set("Ce-Id", e.ID)
	set("Ce-Type", eventType+string(e.Kind))
	set("Ce-Source", h.About.Source)
	set("Ce-Time", e.Time.UTC().Format(time.RFC3339Nano))
	set("Ce-Recordedtime", time.Now().UTC().Format(time.RFC3339Nano))
	set("Ce-Inferenceservicename", h.About.Service)
	set("Ce-Namespace", h.About.Namespace)
	set("Ce-Component", h.About.Component)
	set("Ce-Endpoint", h.About.Endpoint)
	set("Ce-Metadata", plainJSON(e.Headers))
	if len(h.About.Annotations) > 0 {
		set("Ce-Annotations", plainJSON(h.About.Annotations))
	}
	if e.Status != 0 {
		set("Ce-Statuscode", strconv.Itoa(e.Status))
	}
	if e.ContentType != "" {
		set("Content-Type", e.ContentType)
	}
	if e.Encoding != "" {
		set("Content-Encoding", e.Encoding)
	}
}

// plainJSON has no character that a header cannot have.
func plainJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "{}" // texts always encode
	}
	var out strings.Builder
	for _, r := range string(raw) {
		switch {
		case r < 0x80:
			out.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// printable escapes what would end a header, or is no ASCII, as CloudEvents have it.
func printable(value string) string {
	var out strings.Builder
	for i := range len(value) {
		if c := value[i]; c >= 0x20 && c < 0x7f {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// current is the client for the certificates that are there now.
func (h *HTTP) current() (*http.Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.client == nil || now.Sub(h.looked) >= reread {
		if err := h.trust(); err != nil {
			if h.client == nil {
				return nil, err
			}
			h.Log.Error("Certificates for the receiver of the payload log cannot be read again; the last good ones count", "err", err.Error())
		}
		h.looked = now
	}
	return h.client, nil
}

// trust makes a client anew when the certificates are new.
func (h *HTTP) trust() error {
	var content []byte
	if h.URL.Scheme == "https" && h.CAFile != "" {
		var err error
		if content, err = os.ReadFile(h.CAFile); errors.Is(err, fs.ErrNotExist) {
			if !h.warned {
				h.warned = true
				h.Log.Warn("There are no certificates for the receiver of the payload log; the system's count", "file", h.CAFile)
			}
		} else if err != nil {
			return fmt.Errorf("read certificates for the receiver: %w", err)
		}
	}
	if h.client != nil && bytes.Equal(content, h.roots) {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: h.Anyone} // only where the platform says so
	if len(content) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return fmt.Errorf("there are no certificates in %s; put them there in PEM form", h.CAFile)
		}
	}
	if h.client != nil {
		h.client.CloseIdleConnections()
	}
	h.client, h.roots = newClient(config), content
	return nil
}

func newClient(config *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: config,
			TLSHandshakeTimeout: 5 * time.Second, MaxIdleConns: 100, MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second,
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.Method != http.MethodPost || len(via) > 3 {
				return http.ErrUseLastResponse // the event would not arrive
			}
			return nil
		},
	}
}
