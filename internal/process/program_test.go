// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/process/profiles"
)

const patience = 30 * time.Second

// lines collects what a program logs while it runs.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// started is a Program that answers.
type started struct {
	t     *testing.T
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, p Program) *started {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &started{t: t, stop: stop, ended: make(chan error, 1)}
	p.Log = slog.New(slog.DiscardHandler)
	if p.Timeout == 0 {
		p.Timeout = patience
	}
	go func() { s.ended <- p.Run(ctx) }()
	t.Cleanup(stop)
	for _, server := range append(p.Servers, p.Aside...) {
		if Off(server.Address) {
			continue
		}
		s.eventually(func() error {
			conn, err := net.Dial("tcp", server.Address)
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
	}
	return s
}

func (s *started) eventually(try func() error) {
	s.t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-limit:
			s.t.Fatal(err)
		case <-tick.C:
		}
	}
}

func (s *started) end() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		s.t.Fatal("the program does not end")
		return nil
	}
}

// TestEnd: a program that was asked to stop is unready at once, answers what comes meanwhile and asks clients to go
// elsewhere, answers to the end what is under way, and only then ends health.
func TestEnd(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-release
		_, _ = io.WriteString(w, "done")
	})
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	api, health := address(t), address(t)
	asked, ask := context.WithCancel(t.Context())
	taskEnded, delay := make(chan struct{}), make(chan time.Time)
	s := start(t, Program{
		Servers: []Server{{Name: "api", Address: api, Handler: mux}, {Name: "absent", Address: "0"}},
		Aside: []Server{{Name: "health", Address: health,
			Handler: Health{Ready: map[string]Check{"shutdown": Stopping(asked)}}.Handler(slog.Default())}},
		Tasks: []func(context.Context) error{func(ctx context.Context) error { <-ctx.Done(); close(taskEnded); return ctx.Err() }},
		Delay: time.Hour, after: func(time.Duration) <-chan time.Time { return delay },
	})
	if code := status(t, "http://"+health+"/readyz"); code != http.StatusOK {
		t.Errorf("ready: %d", code)
	}
	slow := make(chan string, 1)
	go func() { slow <- body("http://" + api + "/slow") }()
	<-begun
	ask()
	s.stop()
	<-taskEnded // the program has noticed
	if code := status(t, "http://"+health+"/readyz"); code != http.StatusInternalServerError {
		t.Errorf("ready after the request to stop: %d", code)
	}
	resp, err := http.Get("http://" + api + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if !resp.Close {
		t.Error("an answer in the delay does not ask to connect anew")
	}
	close(delay)
	s.eventually(func() error {
		conn, err := net.Dial("tcp", api)
		if err == nil {
			_ = conn.Close()
			return errors.New("connections are still taken")
		}
		return nil
	})
	if code := status(t, "http://"+health+"/healthz"); code != http.StatusOK {
		t.Errorf("healthy to the last: %d", code)
	}
	close(release)
	if got := <-slow; got != "done" {
		t.Errorf("a request under way was answered with %q", got)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

func TestEndIsBounded(t *testing.T) {
	never, api := make(chan struct{}), address(t)
	defer close(never)
	begun := make(chan struct{})
	s := start(t, Program{Timeout: 50 * time.Millisecond, Servers: []Server{{Name: "api", Address: api,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(begun); <-never })}}})
	go body("http://" + api)
	<-begun
	s.stop()
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("it ended with %v", err)
	}
}

func TestFailuresEndTheProgram(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := Program{Log: slog.New(slog.DiscardHandler), Timeout: patience, Servers: []Server{{Name: "api", Address: taken.Addr().String()}}}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address of api") {
		t.Errorf("an address that is taken: %v", err)
	}
	p = Program{Log: p.Log, Timeout: patience, Delay: time.Hour, Tasks: []func(context.Context) error{func(context.Context) error { return errors.New("no luck") }}}
	if err := p.Run(t.Context()); err == nil || err.Error() != "no luck" {
		t.Errorf("a task that fails: %v", err)
	}
}

// TestLimits: a request that is too large, in head or body, is refused, and one that does not come is hung up on.
func TestLimits(t *testing.T) {
	api := address(t)
	var mu sync.Mutex
	var read error
	start(t, Program{Servers: []Server{{Name: "api", Address: api, Limits: Limits{Header: 50 * time.Millisecond, HeaderBytes: 4 << 10, Body: 10},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, err := io.ReadAll(req.Body)
			mu.Lock()
			read = err
			mu.Unlock()
			if err != nil {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		})}}})
	resp, err := http.Post("http://"+api, "text/plain", strings.NewReader("eleven bytes"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %s", resp.Status)
	}
	mu.Lock()
	if read == nil {
		t.Error("the whole body was read")
	}
	mu.Unlock()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+api, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 16<<10))
	long, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer long.Body.Close()
	if long.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head that is too large: %s", long.Status)
	}
	conn, err := net.Dial("tcp", api)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("a client that says no more is kept: %v", err)
	}
}

func TestServesTLS(t *testing.T) {
	dir, api := t.TempDir(), address(t)
	roots := x509.NewCertPool()
	roots.AddCert(issue(t, dir, 1))
	certificate, err := LoadCertificate(dir, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	start(t, Program{Servers: []Server{{Name: "api", Address: api, TLS: TLS(certificate.Get), Handler: http.NotFoundHandler()}}})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	resp, err := client.Get("https://" + api)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 1 {
		t.Error("HTTP/2 is offered without being asked for")
	}
	if _, err := tls.Dial("tcp", api, &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

func TestHealth(t *testing.T) {
	var out lines
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	api := address(t)
	good, bad := func(*http.Request) error { return nil }, func(*http.Request) error { return errors.New("the reason") }
	start(t, Program{Aside: []Server{{Name: "health", Address: api,
		Handler: Health{Live: map[string]Check{"ping": good}, Ready: map[string]Check{"good": good, "bad": bad}}.Handler(log)}}})
	for path, want := range map[string]string{
		"/healthz": "200 ok", "/healthz?verbose": "200 [+]ping ok\nhealthz check passed", "/readyz/good": "200 ok",
		"/readyz": "500 [-]bad failed: see the log at level debug\n[+]good ok\nreadyz check failed", "/readyz/bad": "500 [-]bad failed: see the log at level debug\nbad check failed",
	} {
		if got := fmt.Sprint(status(t, "http://"+api+path), " ", strings.TrimSpace(body("http://"+api+path))); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if !strings.Contains(out.String(), "the reason") {
		t.Error("the reason is not in the log")
	}
}

func TestMetricsAreForThoseWhoMay(t *testing.T) {
	var out lines
	api := address(t)
	may := func(req *http.Request) error {
		switch req.Header.Get("Authorization") {
		case "Bearer good":
			return nil
		case "Bearer broken":
			return errors.New("no answer")
		}
		return &Refusal{Code: http.StatusUnauthorized, Message: "who are you?"}
	}
	start(t, Program{Aside: []Server{{Name: "metrics", Address: api, Handler: Metrics(NewRegistry("test"), may, slog.New(slog.NewTextHandler(&out, nil)))}}})
	for token, want := range map[string]int{"good": http.StatusOK, "": http.StatusUnauthorized, "broken": http.StatusServiceUnavailable} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+api+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if shown := strings.Contains(string(text), "modelplane_build_info"); resp.StatusCode != want || shown != (want == http.StatusOK) {
			t.Errorf("%q: %d, shown: %v", token, resp.StatusCode, shown)
		}
	}
	if strings.Contains(out.String(), "who are you") || !strings.Contains(out.String(), "no answer") {
		t.Errorf("the log has\n%s", &out)
	}
}

func TestProfiling(t *testing.T) {
	for address, want := range map[string]string{
		"0": "", "127.0.0.1:6060": "", "localhost:6060": "", "[::1]:6060": "", ":6060": "--profiling-allow-remote", "10.0.0.1:6060": "--profiling-allow-remote", "x": "host:port",
	} {
		if err := CheckProfiling(address, false); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := CheckProfiling(":6060", true); err != nil {
		t.Error(err)
	}
	api := address(t)
	start(t, Program{Aside: []Server{{Name: "profiles", Address: api, Handler: profiles.Handler()}}})
	if code := status(t, "http://"+api+"/debug/pprof/"); code != http.StatusOK {
		t.Errorf("profiles: %d", code)
	}
}

// address is one that was free a moment ago.
func address(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func status(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func body(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
