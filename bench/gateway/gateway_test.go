// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
)

// TestMain lets the test's program be the server, too.
func TestMain(m *testing.M) {
	if address := os.Getenv(serverVariable); address != "" {
		os.Exit(complain(serverProcess(address)))
	}
	testkit.Main(m)
}

// TestCompare: a wrong answer is a failure, and what is slower is told.
func TestCompare(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{TB: t, self: self, port: testkit.FreePort(t)}
	b.server()
	// What is added is seen through what other tests do to both, and there is time for a few pairs however slow they are.
	const late = 20 * time.Millisecond
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "known.example.com" {
			http.NotFound(w, r)
			return
		}
		select {
		case <-time.After(late):
		case <-r.Context().Done():
		}
		_, _ = w.Write(prediction)
	}))
	defer slow.Close()
	direct := target{url: address(b.port) + modelPath, body: question(256), answer: prediction}
	through := target{url: slow.URL, host: "known.example.com", body: question(256), answer: prediction}
	o := options{clients: 4, each: time.Second}
	r, err := o.compare(t.Context(), direct, through)
	if err != nil {
		t.Fatal(err)
	}
	if r.AddedP50 < 10 || r.Direct.Requests < 10 || r.Direct.Requests != r.Through.Requests || r.ThroughRush.PerSecond > 4/late.Seconds() {
		t.Errorf("got %+v", r)
	}
	if broken := r.broken(); len(broken) > 0 {
		t.Error(broken)
	}
	through.host = "unknown.example.com"
	if _, err := o.compare(t.Context(), direct, through); err == nil {
		t.Error("refused requests were measured")
	}
	through.host, through.answer = "known.example.com", []byte("another")
	if f := rush(t.Context(), through, 2, 20*time.Millisecond); f.Failed == 0 || f.Requests > 0 {
		t.Errorf("wrong answers count: %+v", f)
	}
	r.Through.Failed = 1
	if broken := r.broken(); len(broken) != 1 {
		t.Errorf("a broken promise is not told: %v", broken)
	}
}
