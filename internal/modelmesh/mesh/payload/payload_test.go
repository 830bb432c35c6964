// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const infer = "inference.GRPCInferenceService/ModelInfer"

// receiver keeps what was posted to it.
type receiver struct {
	sync.Mutex
	paths  []string
	bodies []map[string]any
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body map[string]any
	err := json.NewDecoder(req.Body).Decode(&body)
	r.Lock()
	defer r.Unlock()
	if err != nil || req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.paths = append(r.paths, req.URL.RequestURI())
	r.bodies = append(r.bodies, body)
}

// drops counts by reason.
type drops struct {
	sync.Mutex
	counts map[string]int
}

func (d *drops) add(reason string) {
	d.Lock()
	defer d.Unlock()
	if d.counts == nil {
		d.counts = map[string]int{}
	}
	d.counts[reason]++
}

func TestBody(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){"http": (*httptest.Server).Start, "https": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) { checkBody(t, start) })
	}
}

func checkBody(t *testing.T, start func(*httptest.Server)) {
	t.Helper()
	var got receiver
	server := httptest.NewUnstartedServer(&got)
	start(server)
	defer server.Close()
	p, err := New([]string{server.URL + "/take?my-model#" + infer}, Options{Client: server.Client(), Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.Request(Payload{ID: "1", ModelID: "m-1", VModelID: "my-model", Method: infer, Data: []byte{0, 1, 255},
		Metadata: map[string]string{"user": "u"}})
	p.Response(Payload{ID: "1", ModelID: "my-model", Method: "/" + infer, Status: "OK"})
	p.Request(Payload{ID: "2", ModelID: "another", Method: infer})
	p.Request(Payload{ID: "3", ModelID: "my-model", Method: "other.Service/Call"})
	p.Close(t.Context())
	want := []map[string]any{
		{"id": "1", "modelid": "m-1", "vModelId": "my-model", "data": "AAH/", "kind": "request", "metadata": map[string]any{"user": "u"}},
		{"id": "1", "modelid": "my-model", "data": nil, "kind": "response", "status": "OK"},
	}
	if diff := cmp.Diff(want, got.bodies); diff != "" {
		t.Errorf("posted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/take", "/take"}, got.paths); diff != "" {
		t.Errorf("the filters were sent along:\n%s", diff)
	}
}

func TestWants(t *testing.T) {
	p, err := New([]string{"logger://?a#s/M", "logger://?b", "logger://?*#*"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	if !p.Wants("x", "", "s/Other") {
		t.Error("a processor of everything does not want something")
	}
	some, err := New([]string{"logger://?a#s/M", "logger://?b%20c"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer some.Close(t.Context())
	for _, c := range []struct {
		model, vmodel, method string
		want                  bool
	}{
		{"a", "", "s/M", true}, {"a", "", "/s/M", true}, {"a", "", "s/N", false}, {"x", "a", "s/M", true},
		{"b c", "", "s/N", true}, {"x", "y", "s/M", false},
	} {
		if got := some.Wants(c.model, c.vmodel, c.method); got != c.want {
			t.Errorf("Wants(%q, %q, %q) = %v", c.model, c.vmodel, c.method, got)
		}
	}
	var none *Processors
	if none.Wants("a", "", "s/M") {
		t.Error("no processors want something")
	}
	none.Request(Payload{})
	none.Close(t.Context())
}

func TestAddresses(t *testing.T) {
	for uri, want := range map[string]string{
		"ftp://host/x":             `has the scheme "ftp"; use http, https or logger`,
		"host:80/x":                "use http, https or logger",
		"http:///path":             "names no host",
		"http://u:secret@host:bad": "no URI",
		"":                         "use http, https or logger",
	} {
		_, err := New([]string{uri}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q): %v, want %q", uri, err, want)
		}
	}
	if p, err := New(nil, Options{}); p != nil || err != nil {
		t.Errorf("New of nothing is %v, %v", p, err)
	}
}

// transport answers without a network, when it is let.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func answer(code int) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader(""))}
}

// TestNeverWaits: a processor that hangs costs payloads, not calls, and the log hears of it once a minute.
func TestNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		client := &http.Client{Transport: transport(func(req *http.Request) (*http.Response, error) {
			select {
			case <-hang:
				return answer(http.StatusOK), nil
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		})}
		var count drops
		var log bytes.Buffer
		p, err := New([]string{"http://u:secret@host/x"}, Options{Client: client, Threads: 2, Capacity: 3, Timeout: time.Hour,
			Dropped: count.add, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p.Request(Payload{})
			synctest.Wait() // each is in the hands of a worker
		}
		for range 10 {
			p.Request(Payload{})
		}
		if got := count.counts["full"]; got != 7 {
			t.Errorf("dropped %d, want all but the two under way and the three that wait", got)
		}
		<-time.After(5 * time.Minute) // of the bubble's clock
		synctest.Wait()
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "dropped=7") {
			t.Errorf("the log has %d lines, want one of seven drops:\n%s", lines, log.String())
		}
		close(hang)
		p.Close(t.Context())
		p.Request(Payload{})
		if diff := cmp.Diff(map[string]int{"full": 7, "closed": 1}, count.counts); diff != "" {
			t.Error(diff)
		}
		if strings.Contains(log.String(), "secret") {
			t.Error("a password is in the log")
		}
	})
}

func TestBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		client := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			<-hang
			return answer(http.StatusOK), nil
		})}
		var count drops
		p, err := New([]string{"http://host"}, Options{Client: client, Bytes: 100, Dropped: count.add})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p.Request(Payload{Data: make([]byte, 40)})
		}
		if count.counts["full"] != 1 {
			t.Errorf("dropped %v, want the one beyond 100 bytes", count.counts)
		}
		close(hang)
		synctest.Wait()
		p.Request(Payload{Data: make([]byte, 100)})
		p.Close(t.Context())
		if count.counts["full"] != 1 {
			t.Errorf("dropped %v though everything was handed on", count.counts)
		}
	})
}

// TestFailures are drops too, and named without a password.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codes := []int{http.StatusInternalServerError, http.StatusFound, http.StatusAccepted}
		client := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			if len(codes) == 0 {
				return nil, errors.New("no route")
			}
			code := codes[0]
			codes = codes[1:]
			return answer(code), nil
		}), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		var count drops
		var log bytes.Buffer
		p, err := New([]string{"http://u:secret@host/x"}, Options{Client: client, Threads: 1, Dropped: count.add,
			Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			p.Request(Payload{})
		}
		p.Close(t.Context())
		if count.counts["failed"] != 3 {
			t.Errorf("dropped %v, want three failures", count.counts)
		}
		if text := log.String(); !strings.Contains(text, "no route") || strings.Contains(text, "secret") || !strings.Contains(text, "host/x") {
			t.Errorf("the log says %s", text)
		}
	})
}

// TestCloseInTime: a processor that hangs does not hold up the end of the process.
func TestCloseInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: transport(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})}
		p, err := New([]string{"http://host"}, Options{Client: client, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		p.Request(Payload{})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		p.Close(ctx)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("closing took %v", took)
		}
	})
}

func TestLoggerShowsNoData(t *testing.T) {
	var log bytes.Buffer
	p, err := New([]string{"logger://"}, Options{Threads: 1, Log: slog.New(slog.NewJSONHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	p.Response(Payload{ID: "7", ModelID: "m", Method: infer, Status: "OK", Data: []byte("private"), Metadata: map[string]string{"token": "private"}})
	p.Close(t.Context())
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	delete(line, "time")
	want := map[string]any{"level": "INFO", "msg": "Payload", "id": "7", "kind": "response", "model": "m", "vmodel": "", "method": infer,
		"bytes": 7.0, "status": "OK"}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Error(diff)
	}
}

// TestManyCallers: everything is either handed on or counted.
func TestManyCallers(t *testing.T) {
	var got receiver
	server := httptest.NewServer(&got)
	defer server.Close()
	var count drops
	p, err := New([]string{server.URL}, Options{Dropped: count.add, Capacity: 8})
	if err != nil {
		t.Fatal(err)
	}
	const callers, each = 8, 50
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range each {
				p.Request(Payload{Data: []byte("x")})
			}
		})
	}
	group.Wait()
	p.Close(t.Context())
	if n := len(got.bodies) + count.counts["full"]; n != callers*each {
		t.Errorf("%d handed on and %v dropped of %d", len(got.bodies), count.counts, callers*each)
	}
	if len(count.counts) > 1 {
		t.Errorf("dropped for several reasons: %v", count.counts)
	}
}
