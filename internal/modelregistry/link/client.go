// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Bounds of calls.
const (
	callTimeout = 10 * time.Second
	dialTimeout = 4 * time.Second
	bodyLimit   = 1 << 20
	tokenLimit  = 64 << 10
)

const apiPath = "/api/model_registry/v1alpha3"

// client talks to registries.
type client struct {
	settings Settings
	// dial is another way to them, for tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// senders by the certificates that they trust.
	senders map[string]*http.Client
}

func newClient(s Settings) *client {
	return &client{settings: s, dial: (&net.Dialer{Timeout: dialTimeout}).DialContext, senders: map[string]*http.Client{}}
}

// failure is why a registry did not do what it was asked, in words that stay the same as long as the reason does.
type failure struct {
	status  int // of the answer; 0 if there was none
	message string
}

func (f *failure) Error() string { return f.message }

func failed(status int, format string, args ...any) *failure {
	return &failure{status, fmt.Sprintf(format, args...)}
}

// missing tells whether a registry said that there is no such thing. That it did not answer, or failed, is no such word.
func missing(err error) bool { return statusOf(err) == http.StatusNotFound }

func statusOf(err error) int {
	var f *failure
	if errors.As(err, &f) {
		return f.status
	}
	return 0
}

// call asks a registry and reads its answer into out.
func (c *client) call(ctx context.Context, r Registry, method, path string, query url.Values, in, out any) error {
	request, err := c.request(ctx, r, method, path, query, in)
	if err != nil {
		return err
	}
	sender, err := c.sender(r)
	if err != nil {
		return err
	}
	response, err := sender.Do(request)
	if err != nil {
		return unreachable(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, bodyLimit+1))
	switch {
	case response.StatusCode/100 != 2:
		return refused(response.StatusCode)
	case err != nil:
		return unreachable(err)
	case len(body) > bodyLimit || json.Unmarshal(body, out) != nil:
		return unlike(response.StatusCode)
	}
	return nil
}

func (c *client) request(ctx context.Context, r Registry, method, path string, query url.Values, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	target := r.URL + apiPath + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, failed(0, "its address cannot be used. Correct it.")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "modelplane")
	token, err := c.token(r)
	if err == nil && token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, err
}

// token is read anew each time, because it is replaced. It goes to registries of the platform, over connections that
// nobody can listen to.
func (c *client) token(r Registry) (string, error) {
	if !r.Trusted || c.settings.SkipVerify || c.settings.TokenFile == "" || !strings.HasPrefix(r.URL, "https://") {
		return "", nil
	}
	f, err := os.Open(c.settings.TokenFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", failed(0, "the manager's token cannot be read. Check %s of the manager.", EnvTokenFile)
	}
	defer f.Close() //nolint:errcheck // only read
	raw, err := io.ReadAll(io.LimitReader(f, tokenLimit))
	token := strings.TrimSpace(string(raw))
	if err != nil || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", failed(0, "the manager's token cannot be read. Check %s of the manager.", EnvTokenFile)
	}
	return token, nil
}

// mostSenders bounds those that are kept: there is one for each set of certificates, which change now and then.
const mostSenders = 32

// sender is a client that trusts what counts for all and for this registry.
func (c *client) sender(r Registry) (*http.Client, error) {
	certificates := []byte(r.Roots)
	for _, file := range c.settings.CAFiles {
		content, err := os.ReadFile(file)
		if err == nil {
			certificates = append(append(certificates, '\n'), content...)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.senders[string(certificates)]; have != nil {
		return have, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(certificates) > 0 && !pool.AppendCertsFromPEM(certificates) {
		return nil, failed(0, "the certificates to trust are not in PEM form. Correct the file of %s.", EnvCAFile)
	}
	if len(c.senders) >= mostSenders {
		for _, old := range c.senders {
			old.CloseIdleConnections()
		}
		clear(c.senders)
	}
	c.senders[string(certificates)] = c.newSender(pool)
	return c.senders[string(certificates)], nil
}

func (c *client) newSender(pool *x509.CertPool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: c.dial, TLSHandshakeTimeout: dialTimeout,
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.settings.SkipVerify},
			MaxIdleConns:    16, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		},
		// Where it leads is not where the platform said that it may be called.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func unlike(status int) *failure {
	return failed(status, "it does not answer as a model registry does. Check that it is one.")
}

func unreachable(err error) *failure {
	var (
		certificate *tls.CertificateVerificationError
		name        *net.DNSError
		plain       tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &certificate):
		return failed(0, "its certificate is not trusted. Give the manager the certificates to trust in %s.", EnvCAFile)
	case errors.As(err, &plain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return failed(0, "it does not speak TLS on that port. Name the port http-api, or correct the address.")
	case errors.As(err, &name) && name.IsNotFound:
		return failed(0, "its host is not known. Check that its Service exists.")
	}
	return failed(0, "it does not answer. Check that it runs, and the network to it.")
}

func refused(status int) *failure {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return failed(status, "access is denied (%d). Give the manager's service account a role in the registry, and let the platform trust it "+
			"(%s or %s).", status, EnvNamespace, EnvURLs)
	case status == http.StatusNotFound:
		return failed(status, "it does not have what the labels name (404). Check the ids in the labels of the service.")
	case status/100 == 3:
		return failed(status, "it redirects (%d), which is not followed. Correct its address.", status)
	case status/100 == 4:
		return failed(status, "it refuses the request (%d). Check the ids in the labels of the service.", status)
	case status == http.StatusInsufficientStorage:
		return failed(status, "its database has no room left (507). Give its volume more, or remove what else is on it.")
	}
	return failed(status, "it fails (%d). Look at its log.", status)
}
