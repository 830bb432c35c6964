// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// mostAnswer is how much of an answer is read.
const mostAnswer = 1 << 20

// target is who is asked, what, and what the answer has to be.
type target struct {
	url, host    string
	body, answer []byte
}

// newClient keeps a connection for each that asks at the same time.
func newClient(clients int) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}}
}

// send asks once.
func (t target) send(ctx context.Context, client *http.Client) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(t.body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if t.host != "" {
		request.Host = t.host
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", response.Status, answer)
	}
	return answer, err
}

// ask wants the right answer.
func (t target) ask(ctx context.Context, client *http.Client) error {
	answer, err := t.send(ctx, client)
	if err == nil && !bytes.Equal(bytes.TrimSpace(answer), bytes.TrimSpace(t.answer)) {
		err = fmt.Errorf("it answers %.200s instead of %.200s", answer, t.answer)
	}
	return err
}

// figures are of requests as clients see them.
type figures struct {
	Requests  int     `json:"requests"`
	PerSecond float64 `json:"requestsPerSecond,omitempty"` // where nothing else was asked meanwhile
	P50       float64 `json:"p50Milliseconds"`
	P99       float64 `json:"p99Milliseconds"`
	Max       float64 `json:"maxMilliseconds"`
	Failed    int     `json:"failed"`
	First     string  `json:"firstFailure,omitempty"`
}

// tally collects what clients see.
type tally struct {
	mu     sync.Mutex
	times  []time.Duration
	failed int
	first  string
}

func (t *tally) add(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.times = append(t.times, took)
		return
	}
	if t.failed++; t.first == "" {
		t.first = err.Error()
	}
}

// figures of what was asked in a time; 0 if that does not count.
func (t *tally) figures(took time.Duration) figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := figures{Requests: len(t.times), Failed: t.failed, First: t.first}
	if took > 0 {
		f.PerSecond = float64(len(t.times)) / took.Seconds()
	}
	if len(t.times) == 0 {
		return f
	}
	slices.Sort(t.times)
	at := func(share float64) float64 {
		return float64(t.times[int(share*float64(len(t.times)-1))].Microseconds()) / 1000
	}
	f.P50, f.P99, f.Max = at(0.5), at(0.99), at(1)
	return f
}

// pairs measures two ways in turns, by one client, so that whatever else happens on the machine happens to both.
func pairs(ctx context.Context, one, other target, d time.Duration) (figures, figures) {
	var tallies [2]tally
	client := newClient(1)
	defer client.CloseIdleConnections()
	ways := [2]target{one, other}
	began := time.Now()
	for i := 0; ctx.Err() == nil && time.Since(began) < d; i++ {
		// Who comes first changes, lest one of them always finds the other's traces in the processor's cache.
		for _, n := range [2]int{i % 2, 1 - i%2} {
			start := time.Now()
			err := ways[n].ask(ctx, client)
			tallies[n].add(time.Since(start), err)
		}
	}
	return tallies[0].figures(0), tallies[1].figures(0)
}

// rush lets clients ask as fast as they get answers.
func rush(ctx context.Context, t target, clients int, d time.Duration) figures {
	var all tally
	var group sync.WaitGroup
	client := newClient(clients)
	defer client.CloseIdleConnections()
	began := time.Now()
	for range clients {
		group.Go(func() {
			for ctx.Err() == nil && time.Since(began) < d {
				start := time.Now()
				err := t.ask(ctx, client)
				all.add(time.Since(start), err)
			}
		})
	}
	group.Wait()
	return all.figures(time.Since(began))
}

// compare measures a gateway against the server itself.
func (o options) compare(ctx context.Context, direct, through target) (*report, error) {
	// Connections are made and code is warm before anything counts.
	if d, t := pairs(ctx, direct, through, o.each/10); d.Failed+t.Failed > 0 {
		return nil, fmt.Errorf("%d and %d requests failed before anything was measured: %s%s", d.Failed, t.Failed, d.First, t.First)
	}
	r := &report{Clients: o.clients}
	r.Direct, r.Through = pairs(ctx, direct, through, o.each)
	r.AddedP50, r.AddedP99 = r.Through.P50-r.Direct.P50, r.Through.P99-r.Direct.P99
	r.DirectRush = rush(ctx, direct, o.clients, o.each)
	r.ThroughRush = rush(ctx, through, o.clients, o.each)
	return r, ctx.Err()
}
