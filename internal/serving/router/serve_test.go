// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// enough is how long anything may take before a test gives up.
const enough = 20 * time.Second

// stuck is a service that says that it was asked, and answers nobody before its caller goes away. It tells of that as well.
func stuck(t *testing.T) (url string, asked, left chan struct{}) {
	t.Helper()
	asked, left = make(chan struct{}, 100), make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		asked <- struct{}{}
		<-req.Context().Done()
		left <- struct{}{}
	}))
	t.Cleanup(server.Close)
	return server.URL, asked, left
}

func wait(t *testing.T, what string, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(enough):
		t.Fatalf("not in time: %s", what)
	}
}

// TestClientLeaves: a service is not kept busy for somebody who is gone.
func TestClientLeaves(t *testing.T) {
	url, asked, left := stuck(t)
	r := made(t, `{"nodes":{"root":{"routerType":"Ensemble","steps":[{"serviceUrl":"`+url+`"},{"serviceUrl":"`+url+`"}]}}}`, "", usual)
	server := served(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		if response, err := http.DefaultClient.Do(req); err == nil {
			_ = response.Body.Close()
			t.Error("somebody answered")
		}
		close(ended)
	}()
	wait(t, "a service is asked", asked)
	wait(t, "another service is asked", asked)
	cancel()
	wait(t, "a service is left", left)
	wait(t, "another service is left", left)
	<-ended
	server.Close() // waits for the request
	if got := testutil.CollectAndCount(r.metrics.requests); got != 1 {
		t.Errorf("%d kinds of answers are counted", got)
	}
	if got := testutil.ToFloat64(r.metrics.running); got != 0 {
		t.Errorf("%v requests are still running", got)
	}
}

// TestTooSlow: the time of a request and of a call both end with an answer that says so.
func TestTooSlow(t *testing.T) {
	url, _, left := stuck(t)
	for _, c := range []struct {
		name, graph string
		want        []string
	}{
		{"the request", `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"` + url + `"}]}}}`, []string{"504 ", "routerTimeouts.serverWrite"}},
		{"the request, with a soft step", `{"nodes":{"root":{"routerType":"Ensemble","steps":[{"serviceUrl":"` + url + `"}]}}}`, []string{"504 ", "routerTimeouts.serverWrite"}},
		{"a call", `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"` + url + `"}]}},"routerTimeouts":{"serviceClient":1}}`, []string{"500 ", "Client.Timeout exceeded"}},
		{"a soft call", `{"nodes":{"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"` + url + `"},{"serviceUrl":"BASE/exact"}]}},"routerTimeouts":{"serviceClient":1}}`,
			[]string{"200 ", `"a":{"error"`, `"1":{"n"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := made(t, c.graph, "", usual)
			if !strings.Contains(c.graph, "serviceClient") {
				r.time = 50 * time.Millisecond
			} else {
				r.caller.client.Timeout = 50 * time.Millisecond // instead of a second
			}
			got := ask(t, served(t, r).URL, "1")
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("%s does not say %s", got, part)
				}
			}
			wait(t, "the service is left", left)
		})
	}
}

// TestEnsembleStops: what stands after a failure in the list is not waited for, and what stands before it is.
func TestEnsembleStops(t *testing.T) {
	url, _, left := stuck(t)
	server := served(t, made(t, `{"nodes":{"root":{"routerType":"Ensemble","steps":[{"serviceUrl":"BASE/exact"},{"serviceUrl":"BASE/status/500","dependency":"Hard"},{"serviceUrl":"`+url+`"}]}}}`, "", usual))
	if got := ask(t, server.URL, "1"); got != `500 application/json {"code":500}` {
		t.Error(got)
	}
	select {
	case <-left:
	default: // it was given up before it was asked
	}
}

// TestServiceGoes: a service closes a connection just when it is asked on it. The call is made once more, and not a third
// time.
func TestServiceGoes(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var connections atomic.Int64
	var gone atomic.Bool
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				number := connections.Add(1)
				reader := bufio.NewReader(connection)
				for request := 1; ; request++ {
					req, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if number == 1 && request == 2 || gone.Load() {
						return // without a word
					}
					_, _ = fmt.Fprintf(connection, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", number)
				}
			}()
		}
	}()
	r := made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"http://`+listener.Addr().String()+`"}]}}}`, "", usual)
	server := served(t, r)
	for i, want := range []string{"200 application/json 1", "200 application/json 2"} {
		if got := ask(t, server.URL, "1"); got != want {
			t.Errorf("answer %d is %s, want %s", i+1, got, want)
		}
	}
	if got := testutil.ToFloat64(r.metrics.again); got != 1 {
		t.Errorf("%v calls were repeated", got)
	}
	gone.Store(true)
	before := connections.Load()
	if got := ask(t, server.URL, "1"); !strings.HasPrefix(got, "500 ") || !strings.Contains(got, "EOF") {
		t.Errorf("a service that is gone: %s", got)
	}
	if got := connections.Load() - before; got != 1 {
		t.Errorf("a service that breaks was called on %d new connections", got)
	}
}

// TestBackendKilled: one of two services ends under load, with requests under way. Those fail with words, all others have
// their answer, and soft steps of an Ensemble go on without it.
func TestBackendKilled(t *testing.T) {
	asked := make(chan struct{}, 100)
	victim := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		asked <- struct{}{}
		<-req.Context().Done()
	}))
	r := made(t, `{"nodes":{"root":{"routerType":"Ensemble","steps":[{"name":"lost","serviceUrl":"`+victim.URL+`"},{"name":"kept","serviceUrl":"BASE/exact","dependency":"Hard"}]}}}`, "", usual)
	server := served(t, r)
	const clients = 20
	answers := make(chan string, clients)
	for range clients {
		go func() { answers <- ask(t, server.URL, "1") }()
	}
	for range clients {
		wait(t, "the service has all requests", asked)
	}
	victim.CloseClientConnections()
	victim.Close()
	for range clients {
		got := <-answers
		if !strings.HasPrefix(got, "200 ") || !strings.Contains(got, `"kept":{"n"`) || !strings.Contains(got, `"lost":{"error"`) {
			t.Errorf("during the end: %s", got)
		}
	}
	if got := ask(t, server.URL, "1"); !strings.Contains(got, "connection refused") || !strings.HasPrefix(got, "200 ") {
		t.Errorf("after the end: %s", got)
	}
}

// TestBounds: too much is refused in words, and memory is given back.
func TestBounds(t *testing.T) {
	large := bytes.Repeat([]byte(" "), 1<<20)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) }))
	defer service.Close()
	toService := `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"` + service.URL + `"}]}}}`
	for _, c := range []struct {
		name, body string
		limits     Limits
		want       []string
	}{
		{"a large request", string(large), Limits{Body: 1 << 10, Pending: 1 << 20, Requests: 1}, []string{"413 ", "larger than 1024 bytes"}},
		{"a large reply", "1", Limits{Body: 1 << 19, Pending: 1 << 21, Requests: 1}, []string{"500 ", "the reply is larger than 524288 bytes", "--max-body-bytes"}},
		{"one always has room", "1", Limits{Body: 2 << 20, Pending: 1, Requests: 1}, []string{"200 "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ask(t, served(t, made(t, toService, "", c.limits)).URL, c.body)
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("%.200s does not say %s", got, part)
				}
			}
		})
	}
}

// TestCrowd: what there is no room for, in number or in bytes, is refused while others are being served.
func TestCrowd(t *testing.T) {
	large := strings.Repeat(" ", 1<<20)
	for _, c := range []struct {
		limits    Limits
		one, want string
	}{
		{Limits{Body: 1 << 20, Pending: 16 << 20, Requests: 3}, "1", "there are 3 requests already"},
		{Limits{Body: 1 << 20, Pending: 4 << 20, Requests: 10}, large, "4194304 bytes already"},
	} {
		t.Run(c.want, func(t *testing.T) {
			url, asked, _ := stuck(t)
			server := served(t, made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"`+url+`"}]}}}`, "", c.limits))
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(large))
					if err != nil {
						t.Error(err)
						return
					}
					if response, err := http.DefaultClient.Do(req); err == nil {
						_ = response.Body.Close()
					}
				})
			}
			for range 3 {
				wait(t, "the service has a request", asked)
			}
			if got := ask(t, server.URL, c.one); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, c.want) {
				t.Error(got)
			}
			cancel()
			all.Wait()
		})
	}
}

func TestLimits(t *testing.T) {
	root := t.TempDir()
	if got := containerMemory(root); got < 1<<60 {
		t.Errorf("nobody says it, and it is %d", got)
	}
	for file, text := range map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "134217728\n", "sys/fs/cgroup/memory.max": "max\n"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := containerMemory(root); got != 128<<20 {
		t.Errorf("the container may take %d", got)
	}
	for _, c := range []struct {
		said      Limits
		container int64
		want      Limits
		heap      int64
	}{
		{Limits{}, 128 << 20, Limits{Body: 16 << 20, Pending: 64 << 20}, (128 << 20) / 10 * 9},
		{Limits{}, 1 << 30, Limits{Body: 64 << 20, Pending: 256 << 20}, 320 << 20},
		{Limits{Body: 200 << 20}, 1 << 62, Limits{Body: 200 << 20, Pending: 256 << 20}, 464 << 20},
		{Limits{Body: 1, Pending: 2}, 1 << 30, Limits{Body: 1, Pending: 2}, 64<<20 + 2},
	} {
		if got := c.said.complete(c.container); got != c.want || got.heap(c.container) != c.heap {
			t.Errorf("%+v in %d: %+v, heap %d", c.said, c.container, got, got.heap(c.container))
		}
	}
}

// TestBrokenRequest: a client that breaks off its request gets no answer to half of it.
func TestBrokenRequest(t *testing.T) {
	r := made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"}]}}}`, "", usual)
	server := served(t, r)
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123"); err != nil {
		t.Fatal(err)
	}
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(connection)
	if err != nil || !strings.Contains(string(text), " 400 ") {
		t.Errorf("%v %s", err, text)
	}
	if got := testutil.CollectAndCount(r.metrics.steps); got != 0 {
		t.Error("a service was asked with half a request")
	}
}

// TestStreams: pieces of the last step's answer arrive as they are made, and a stream that breaks off does not end well.
func TestStreams(t *testing.T) {
	goOn := make(chan bool)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		if !<-goOn {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "data: 2\n\n")
	}))
	defer service.Close()
	r := made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/exact"},{"nodeName":"n"}]},"n":{"routerType":"Splitter","steps":[{"serviceUrl":"`+service.URL+`","weight":100}]}}}`, "", usual)
	server := served(t, r)
	for _, whole := range []bool{true, false} {
		response, err := http.Post(server.URL, "application/json", strings.NewReader("1"))
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len("data: 1\n\n"))
		if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "data: 1\n\n" {
			t.Fatalf("%v %q", err, first)
		}
		goOn <- whole
		rest, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case whole && (err != nil || string(rest) != "data: 2\n\n" || response.Header.Get("Content-Type") != "text/event-stream; charset=utf-8"):
			t.Errorf("%v %q %v", err, rest, response.Header)
		case !whole && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("half a stream ends with %v", err)
		}
	}
}

// TestSidecar: where a service mesh encrypts, services are called without encryption, also when its proxy comes later.
func TestSidecar(t *testing.T) {
	var up atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer proxy.Close()
	r := made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"}]}}}`, "", usual)
	step := &r.graph.Nodes["root"].Steps[0]
	step.ServiceURL = "https" + strings.TrimPrefix(step.ServiceURL, "http")
	if !r.graph.leavesBy("https") || r.graph.leavesBy("http") {
		t.Error("it is not seen how the graph calls services")
	}
	server := served(t, r)
	s := r.caller.sidecar
	s.look(t.Context(), "http://127.0.0.1:1")
	s.look(t.Context(), proxy.URL)
	if got := ask(t, server.URL, "1"); !strings.HasPrefix(got, "500 ") || !strings.Contains(got, "server gave HTTP response to HTTPS client") {
		t.Errorf("without a proxy: %s", got)
	}
	up.Store(true)
	s.watch(t.Context(), proxy.URL, time.Millisecond) // ends when it has found one
	if got := ask(t, server.URL, "1"); got != `200 application/json {"name":"a","in":1}` {
		t.Errorf("with a proxy: %s", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	(&sidecar{}).watch(ended, "http://127.0.0.1:1", time.Hour)
}

// running is a router as the command runs it: its address, how to end it, and how it ended.
func running(t *testing.T, graph string, delay time.Duration) (string, func(), <-chan error) {
	t.Helper()
	g, err := Parse(graph)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // the router opens it again
	f := &flags{address: address, metrics: "0", limits: usual, delay: delay}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f.serve(ctx, g, nil, "", slog.New(slog.DiscardHandler)) }()
	deadline := time.Now().Add(enough)
	for {
		response, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK || response.ContentLength != 0 {
				t.Errorf("/readyz: %v", response)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	return address, cancel, ended
}

// TestDrains: asked to stop, the router says that it is not ready, still takes requests, and finishes those that it has.
func TestDrains(t *testing.T) {
	asked, goOn := make(chan struct{}, 10), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(w, req.Body); err != nil {
			t.Error(err)
		}
		asked <- struct{}{}
		<-goOn
	}))
	defer service.Close()
	address, stop, ended := running(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"`+service.URL+`"}]}}}`, 300*time.Millisecond)
	answers := make(chan string, 2)
	go func() { answers <- ask(t, "http://"+address, "1") }()
	wait(t, "the service is asked", asked)
	stop()
	response, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || strings.TrimSpace(string(text)) != "shutting down" {
		t.Errorf("/readyz at the end: %d %s", response.StatusCode, text)
	}
	go func() { answers <- ask(t, "http://"+address, "2") }()
	wait(t, "the service is asked again", asked)
	deadline := time.Now().Add(enough)
	for { // until nobody new gets in
		connection, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		_ = connection.Close()
		if time.Now().After(deadline) {
			t.Fatal("it is still open")
		}
	}
	close(goOn)
	got := map[string]bool{<-answers: true, <-answers: true}
	if !got["200 application/json 1"] || !got["200 application/json 2"] {
		t.Errorf("answers at the end: %v", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
