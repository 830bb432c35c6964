// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// receiver keeps events as they arrive.
type receiver struct {
	*httptest.Server
	events chan received
	// hold, where it is not nil, keeps answers back until it is closed; status is the answer.
	hold   chan struct{}
	status int
}

type received struct {
	header http.Header
	body   string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{events: make(chan received, 1000), status: http.StatusAccepted}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-req.Context().Done():
			return
		}
	}
	if r.status < 300 {
		r.events <- received{req.Header, string(body)}
	}
	w.WriteHeader(r.status)
}

func (r *receiver) next(t *testing.T) received {
	t.Helper()
	select {
	case e := <-r.events:
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no event came")
		return received{}
	}
}

// said is a log that tests can read.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// bed is a model behind a logger.
type bed struct {
	*Logger
	*httptest.Server
	log *said
}

func newBed(t *testing.T, sink Sink, change func(*Options), model http.HandlerFunc) *bed {
	t.Helper()
	b := &bed{log: &said{}}
	log := slog.New(slog.NewTextHandler(b.log, nil))
	if h, ok := sink.(*HTTP); ok {
		h.Log = log
	}
	o := Options{Mode: ModeAll, Sink: sink, Workers: 5, Events: 100, Bytes: 1 << 20, Body: 64 << 10, Log: log}
	if change != nil {
		change(&o)
	}
	b.Logger = New(o)
	b.Server = httptest.NewServer(b.Handler(model))
	t.Cleanup(func() {
		b.Server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		b.Logger.Close(ctx)
		if left := b.room.used.Load(); left != 0 {
			t.Errorf("%d bytes of bodies were never given back", left)
		}
	})
	return b
}

func parsed(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func echo(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-answer")
	_, _ = w.Write(append([]byte("answer to "), body...))
}

func post(t *testing.T, to, body string, header http.Header) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

var about = About{Source: "pod-1", Service: "iris", Namespace: "models", Component: "predictor", Annotations: map[string]string{"team": "ä"}}

func TestEvents(t *testing.T) {
	r := newReceiver(t)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL), About: about}, func(o *Options) { o.Headers = []string{"x-request-id"} }, echo)
	before := time.Now()
	status, answer := post(t, b.URL+"/v1/models/iris:predict", "question",
		http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"4711"}, "Authorization": {"Bearer secret"}})
	if status != http.StatusOK || answer != "answer to question" {
		t.Fatalf("the client gets %d %q", status, answer)
	}
	request, response := r.next(t), r.next(t)
	if request.header.Get("Ce-Type") != eventType+"request" {
		request, response = response, request // they are sent at the same time
	}
	for _, c := range []struct {
		got         received
		kind, body  string
		contentType string
		status      string
	}{
		{request, "request", "question", "application/json", ""},
		{response, "response", "answer to question", "application/x-answer", "200"},
	} {
		want := map[string]string{
			"Ce-Specversion": "1.0", "Ce-Type": eventType + c.kind, "Ce-Source": "pod-1", "Ce-Inferenceservicename": "iris",
			"Ce-Namespace": "models", "Ce-Component": "predictor", "Ce-Endpoint": "", "Ce-Metadata": `{"X-Request-Id":["4711"]}`,
			"Ce-Annotations": `{"team":"\u00e4"}`, "Content-Type": c.contentType, "Ce-Statuscode": c.status,
		}
		got := map[string]string{}
		for name := range want {
			got[name] = c.got.header.Get(name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.kind, diff)
		}
		if c.got.body != c.body {
			t.Errorf("%s has body %q", c.kind, c.got.body)
		}
		if _, sent := c.got.header["Ce-Endpoint"]; !sent {
			t.Errorf("%s: an empty extension is left out", c.kind)
		}
		for _, name := range []string{"Ce-Time", "Ce-Recordedtime"} {
			if at, err := time.Parse(time.RFC3339Nano, c.got.header.Get(name)); err != nil || at.Before(before.Add(-time.Second)) || at.Location() != time.UTC {
				t.Errorf("%s: %s is %q", c.kind, name, c.got.header.Get(name))
			}
		}
		if c.got.header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(c.got.header), "secret") {
			t.Errorf("%s repeats a header that nobody asked for", c.kind)
		}
	}
	if id := request.header.Get("Ce-Id"); len(id) != 36 || id != response.header.Get("Ce-Id") {
		t.Errorf("the ids are %q and %q", id, response.header.Get("Ce-Id"))
	}
}

func TestModesAndStatuses(t *testing.T) {
	for _, c := range []struct {
		mode   string
		status int
		want   []string
	}{
		{ModeAll, http.StatusOK, []string{"request ", "response 200"}},
		{ModeRequest, http.StatusOK, []string{"request "}},
		{ModeResponse, http.StatusCreated, []string{"response 201"}},
		{ModeResponse, http.StatusInternalServerError, []string{"response 500"}},
	} {
		t.Run(fmt.Sprint(c.mode, c.status), func(t *testing.T) {
			r := newReceiver(t)
			b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Mode, o.Workers = c.mode, 1 },
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) })
			post(t, b.URL, "x", http.Header{"Ce-Id": {"mine"}})
			var got []string
			for range c.want {
				e := r.next(t)
				got = append(got, strings.TrimPrefix(e.header.Get("Ce-Type"), eventType)+" "+e.header.Get("Ce-Statuscode"))
				if e.header.Get("Ce-Id") != "mine" {
					t.Errorf("the id is %q", e.header.Get("Ce-Id"))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if len(r.events) > 0 {
				t.Error("there are more events")
			}
		})
	}
}

// TestStreams: an answer arrives piece by piece, a request without a length is read as it comes, and both are logged whole.
func TestStreams(t *testing.T) {
	r := newReceiver(t)
	more := make(chan struct{})
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Workers = 1 }, func(w http.ResponseWriter, req *http.Request) {
		first := make([]byte, 3)
		if _, err := io.ReadFull(req.Body, first); err != nil {
			return
		}
		rest, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		_, _ = w.Write(first)
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = w.Write(rest)
	})
	in, out := io.Pipe()
	go func() {
		_, _ = out.Write([]byte("one"))
		_, _ = out.Write([]byte("two"))
		_ = out.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL, in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	piece := make([]byte, 3)
	if _, err := io.ReadFull(got.Body, piece); err != nil || string(piece) != "one" {
		t.Fatalf("the first piece is %q, %v", piece, err)
	}
	close(more)
	if _, err := io.ReadFull(got.Body, piece); err != nil || string(piece) != "two" {
		t.Fatalf("the second piece is %q, %v", piece, err)
	}
	for _, want := range []string{"request onetwo", "response onetwo"} {
		e := r.next(t)
		if got := strings.TrimPrefix(e.header.Get("Ce-Type"), eventType) + " " + e.body; got != want {
			t.Errorf("the event is %q, want %q", got, want)
		}
	}
}

// TestSlowReceiver: nobody waits for the log. What does not fit is counted, and what was kept arrives when it can.
func TestSlowReceiver(t *testing.T) {
	r := newReceiver(t)
	r.hold = make(chan struct{})
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Mode, o.Workers, o.Events = ModeRequest, 2, 10 }, echo)
	const requests = 50
	for range requests {
		post(t, b.URL, "x", nil)
	}
	if lost := b.Counts.Of(Full); lost < requests-10-2 || lost > requests-10 {
		t.Errorf("%d of %d events were lost, with a queue of 10 and two workers", lost, requests)
	}
	if !strings.Contains(b.log.String(), "Events of the payload log are lost") {
		t.Errorf("nobody was told:\n%s", b.log)
	}
	close(r.hold)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b.Close(ctx)
	if sent, lost := b.Counts.Of(Sent), b.Counts.Of(Full); sent+lost != requests || int(sent) != len(r.events) {
		t.Errorf("%d sent and %d lost of %d; %d arrived", sent, lost, requests, len(r.events))
	}
}

func (b *bed) Close(ctx context.Context) { b.Logger.Close(ctx) }

// TestDeadReceiver: requests go on, the end comes in time, nothing is forgotten in the count, and no password is told.
func TestDeadReceiver(t *testing.T) {
	r := newReceiver(t)
	u := parsed(t, r.URL)
	u.User = url.UserPassword("me", "hush-hush")
	r.Server.Close()
	b := newBed(t, &HTTP{URL: u, Pauses: []time.Duration{time.Millisecond}}, nil, echo)
	const requests = 40
	for range requests {
		if status, _ := post(t, b.URL, "x", nil); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	b.Close(ctx)
	total := b.Counts.Of(Undelivered) + b.Counts.Of(Full) + b.Counts.Of(Stopped)
	if total != 2*requests || b.Counts.Of(Sent) != 0 {
		t.Errorf("%d events are accounted for, want %d", total, 2*requests)
	}
	if log := b.log.String(); strings.Contains(log, "hush") || !strings.Contains(log, "refused") {
		t.Errorf("the log says\n%s", log)
	}
}

// TestHungReceiver: one that never answers does not hold up the end.
func TestHungReceiver(t *testing.T) {
	r := newReceiver(t)
	r.hold = make(chan struct{})
	defer close(r.hold)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Mode = ModeRequest }, echo)
	for range 20 {
		post(t, b.URL, "x", nil)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	b.Close(ctx)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %s", took)
	}
	if lost := b.Counts.Of(Stopped); lost != 20 {
		t.Errorf("%d events were lost at the end, want 20", lost)
	}
}

// TestReceiverRestarts: what fails for a moment is not lost, and what is refused for good is not tried again.
func TestReceiverRestarts(t *testing.T) {
	tries := make(chan struct{}, 10)
	r := newReceiver(t)
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		tries <- struct{}{}
		if len(tries) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if len(tries) == 2 {
			r.ServeHTTP(w, req)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	})
	b := newBed(t, &HTTP{URL: parsed(t, r.URL), Pauses: []time.Duration{time.Millisecond, time.Millisecond}},
		func(o *Options) { o.Mode, o.Workers = ModeRequest, 1 }, echo)
	post(t, b.URL, "first", nil)
	if e := r.next(t); e.body != "first" {
		t.Errorf("the event has body %q", e.body)
	}
	post(t, b.URL, "second", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b.Close(ctx)
	if len(tries) != 3 || b.Counts.Of(Sent) != 1 || b.Counts.Of(Undelivered) != 1 {
		t.Errorf("%d tries, %d sent, %d not delivered", len(tries), b.Counts.Of(Sent), b.Counts.Of(Undelivered))
	}
	if !strings.Contains(b.log.String(), "403") {
		t.Errorf("the log says\n%s", b.log)
	}
}

// TestLargeBodiesPass: they are not kept, and not cut.
func TestLargeBodiesPass(t *testing.T) {
	r := newReceiver(t)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Body = 1000 }, echo)
	large := strings.Repeat("x", 5000)
	if _, answer := post(t, b.URL, large, nil); len(answer) != len(large)+len("answer to ") {
		t.Errorf("the answer has %d bytes", len(answer))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b.Close(ctx)
	if b.Counts.Of(TooLarge) != 2 || len(r.events) != 0 {
		t.Errorf("%d too large, %d arrived", b.Counts.Of(TooLarge), len(r.events))
	}
}

// TestMemoryIsBounded: bodies that wait have no more than their bytes together.
func TestMemoryIsBounded(t *testing.T) {
	r := newReceiver(t)
	r.hold = make(chan struct{})
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Bytes, o.Events = 100_000, 1000 }, echo)
	var most int64
	for range 60 {
		post(t, b.URL, strings.Repeat("x", 10_000), nil)
		most = max(most, b.room.used.Load())
	}
	if most > 100_000 || most < 80_000 {
		t.Errorf("bodies take %d bytes, of 100,000", most)
	}
	if b.Counts.Of(Full) < 100 {
		t.Errorf("only %d of 120 events were lost", b.Counts.Of(Full))
	}
	close(r.hold)
}

// TestSlowClients: whoever announces much and sends little takes no room from others, and is logged when all has come.
func TestSlowClients(t *testing.T) {
	r := newReceiver(t)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Bytes, o.Body, o.Mode = 1<<20, 512<<10, ModeRequest }, echo)
	const slow = 8
	ended := make(chan int, slow)
	pipes := make([]*io.PipeWriter, slow)
	for i := range pipes {
		reader, writer := io.Pipe()
		pipes[i] = writer
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL, reader)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = 300 << 10
		go func() {
			response, err := http.DefaultClient.Do(req)
			if err != nil {
				ended <- 0
				return
			}
			_ = response.Body.Close()
			ended <- response.StatusCode
		}()
		if _, err := writer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	post(t, b.URL, strings.Repeat("y", 200<<10), nil)
	if e := r.next(t); len(e.body) != 200<<10 || b.Counts.Of(Full) != 0 {
		t.Errorf("%d bytes came, and %d events were lost", len(e.body), b.Counts.Of(Full))
	}
	for _, writer := range pipes[1:] {
		_ = writer.CloseWithError(io.ErrUnexpectedEOF) // these go away
		if code := <-ended; code != 0 {
			t.Errorf("a request that broke off is answered with %d", code)
		}
	}
	if _, err := pipes[0].Write(bytes.Repeat([]byte("x"), 300<<10-1)); err != nil {
		t.Fatal(err)
	}
	_ = pipes[0].Close()
	if code := <-ended; code != http.StatusOK {
		t.Errorf("the slow request is answered with %d", code)
	}
	if e := r.next(t); len(e.body) != 300<<10 {
		t.Errorf("the slow request has %d bytes", len(e.body))
	}
}

// TestNoRoomForARequest: a body for which there is no room passes whole.
func TestNoRoomForARequest(t *testing.T) {
	r := newReceiver(t)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Bytes, o.Body, o.Mode = 100<<10, 1<<20, ModeRequest }, echo)
	body := strings.Repeat("0123456789", 30<<10)
	if status, answer := post(t, b.URL, body, nil); status != http.StatusOK || !strings.HasSuffix(answer, body) {
		t.Errorf("%d and %d bytes", status, len(answer))
	}
	if b.Counts.Of(Full) != 1 {
		t.Errorf("%d events were lost", b.Counts.Of(Full))
	}
}

// TestLongHeaders: what a client writes into headers neither fills memory nor keeps its request from being logged.
func TestLongHeaders(t *testing.T) {
	r := newReceiver(t)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, func(o *Options) { o.Mode, o.Headers = ModeRequest, []string{"x-long", "x-short"} }, echo)
	post(t, b.URL, "1", http.Header{"X-Long": {strings.Repeat("l", 20_000)}, "X-Short": {"s"}, "Content-Type": {strings.Repeat("t", 2000)}})
	e := r.next(t)
	if got := e.header.Get("Ce-Metadata"); got != `{"X-Long":["left out: 20000 bytes"],"X-Short":["s"]}` || e.header.Get("Content-Type") != "" {
		t.Errorf("%.200s, of the type %.20q", got, e.header.Get("Content-Type"))
	}
}

// TestCutAnswers: an answer that breaks off is no event of an answer.
func TestCutAnswers(t *testing.T) {
	r := newReceiver(t)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	got, err := http.Post(b.URL, "text/plain", strings.NewReader("x"))
	if err == nil {
		_, err = io.ReadAll(got.Body)
		_ = got.Body.Close()
	}
	if err == nil {
		t.Error("the client was not told")
	}
	if e := r.next(t); e.header.Get("Ce-Type") != eventType+"request" {
		t.Errorf("the event is %v", e.header)
	}
	b.Server.Close() // the handler has ended then
	if b.Counts.Of(Cut) != 1 {
		t.Error("the loss was not counted")
	}
}

// TestCertificates: the file counts instead of the system's, is read again, and can be made not to matter.
func TestCertificates(t *testing.T) {
	r := &receiver{events: make(chan received, 10), status: http.StatusOK}
	r.Server = httptest.NewTLSServer(r)
	defer r.Close()
	quiet := slog.New(slog.DiscardHandler)
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "service-ca.crt")
	event := []Event{{ID: "1", Kind: Request}}
	h := &HTTP{URL: parsed(t, r.URL), CAFile: file, Log: quiet, Pauses: []time.Duration{}}
	if err := h.Send(t.Context(), event); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without a file: %v", err)
	}
	h = &HTTP{URL: parsed(t, r.URL), CAFile: file, Log: quiet, Pauses: []time.Duration{}, Anyone: true}
	if err := h.Send(t.Context(), event); err != nil {
		t.Errorf("when it does not matter: %v", err)
	}
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("nonsense"))
	h = &HTTP{URL: parsed(t, r.URL), CAFile: file, Log: quiet, Pauses: []time.Duration{}}
	if err := h.Send(t.Context(), event); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("with nonsense: %v", err)
	}
	write(good)
	if err := h.Send(t.Context(), event); err != nil {
		t.Errorf("with the right one: %v", err)
	}
	write([]byte("nonsense"))
	h.looked = time.Time{}
	if err := h.Send(t.Context(), event); err != nil {
		t.Errorf("the last good one does not count: %v", err)
	}
}

// TestUpgradesPass: what becomes another protocol is left alone.
func TestUpgradesPass(t *testing.T) {
	r := newReceiver(t)
	b := newBed(t, &HTTP{URL: parsed(t, r.URL)}, nil, func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = connection.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello"))
		_ = connection.Close()
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "keep-alive, Upgrade")
	req.Header.Set("Upgrade", "echo")
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if text, err := io.ReadAll(got.Body); err != nil || string(text) != "hello" {
		t.Errorf("the connection says %q, %v", text, err)
	}
	if len(r.events) != 0 {
		t.Error("it was logged")
	}
}

func TestPlainJSON(t *testing.T) {
	in := map[string]string{"a": "ä 😀 \n \""}
	text := plainJSON(in)
	for _, c := range []byte(text) {
		if c < 0x20 || c > 0x7e {
			t.Fatalf("%q has a byte that no header can have", text)
		}
	}
	var out map[string]string
	if err := json.Unmarshal([]byte(text), &out); err != nil || cmp.Diff(in, out) != "" {
		t.Errorf("%q reads as %v, %v", text, out, err)
	}
}
