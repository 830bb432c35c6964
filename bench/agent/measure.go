// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
)

type options struct {
	clients, rounds int
	each            time.Duration
}

// way is one way to the model.
type way struct {
	name    string
	address string
	agent   *testkit.Program // nil for none
	times   []time.Duration
	failed  int
	first   string
	took    time.Duration
}

const (
	question = `{"instances":[[5.1,3.5,1.4,0.2]]}`
	path     = "/v1/models/iris:predict"
)

// measure starts everything and asks by each way in turns, so that whatever else happens on the machine happens to all.
func (o options) measure(t testing.TB, binary string) *report {
	t.Helper()
	model := httptest.NewServer(http.HandlerFunc(predict))
	t.Cleanup(model.Close)
	var events atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		events.Add(1)
	}))
	t.Cleanup(receiver.Close)
	at := strings.TrimPrefix(model.URL, "http://")
	ways := []*way{
		{name: "direct", address: at},
		startAgent(t, binary, "handed on", at),
		startAgent(t, binary, "logged", at, "--log-url", receiver.URL, "--log-queue-events", "100000", "--shutdown-timeout", "60s"),
		startAgent(t, binary, "batched", at, "--enable-batcher", "--max-batchsize", strconv.Itoa(o.clients), "--max-latency", "5"),
	}
	r := &report{Clients: o.clients}
	for _, w := range ways[1:] {
		now, _, err := w.agent.Memory()
		if err != nil {
			t.Fatal(err)
		}
		r.IdleMiB = append(r.IdleMiB, now)
	}
	for range o.rounds {
		for _, w := range ways {
			o.ask(t.Context(), w)
		}
	}
	for _, w := range ways {
		f := w.figures()
		if w.agent != nil {
			var err error
			if _, f.PeakMiB, err = w.agent.Memory(); err != nil {
				t.Fatal(err)
			}
			w.agent.Stop(t, time.Minute)
		}
		r.Ways = append(r.Ways, f)
	}
	r.Events, r.EventsDue = events.Load(), int64(2*len(ways[2].times))
	return r
}

// predict answers at once: what is measured is the way.
func predict(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	n := strings.Count(string(body), "5.1")
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"predictions":[%s]}`, strings.TrimSuffix(strings.Repeat("0,", n), ","))
}

func startAgent(t testing.TB, binary, name, model string, args ...string) *way {
	t.Helper()
	_, modelPort, err := net.SplitHostPort(model)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(testkit.FreePort(t))
	cmd := exec.Command(binary, append([]string{"agent", "--port", port, "--component-port", modelPort, "--shutdown-delay", "0s", "--log-level=warn"}, args...)...)
	cmd.Env = append(os.Environ(), "SERVING_READINESS_PROBE=")
	w := &way{name: name, address: "127.0.0.1:" + port, agent: testkit.RunProgram(t, strings.ReplaceAll(name, " ", "-"), cmd)}
	testkit.Eventually(t, time.Minute, name+" to answer", func() error {
		select {
		case <-w.agent.Ended():
			t.Fatalf("the agent has ended:\n%s", w.agent.Output())
		default:
		}
		connection, err := net.Dial("tcp", w.address)
		if err == nil {
			_ = connection.Close()
		}
		return err
	})
	return w
}

// ask puts the load on one way.
func (o options) ask(ctx context.Context, w *way) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.clients}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	began := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range o.clients {
		all.Go(func() {
			var times []time.Duration
			failed, first := 0, ""
			for time.Since(began) < o.each && ctx.Err() == nil {
				start := time.Now()
				if err := once(ctx, client, w.address); err != nil {
					failed++
					first = err.Error()
					continue
				}
				times = append(times, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			w.times = append(w.times, times...)
			w.failed += failed
			if w.first == "" {
				w.first = first
			}
		})
	}
	all.Wait()
	w.took += time.Since(began)
}

func once(ctx context.Context, client *http.Client, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, strings.NewReader(question))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || !strings.Contains(string(body), `"predictions":[0]`)) {
		err = fmt.Errorf("the answer is %d %s", answer.StatusCode, body)
	}
	return err
}
