// SPDX-License-Identifier: Apache-2.0

// Package load is what benches put on a server: clients that ask as fast as they get answers or so many times a second, and
// what they saw in figures. It does not know what is asked.
package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Ask is one request; turn is a number that no other request of the same load has. The error is what was wrong with the answer.
type Ask func(ctx context.Context, turn int) error

// Figures are of requests as clients see them. With a rate, a request that had to wait for its turn is as late as that.
type Figures struct {
	Requests  int            `json:"requests"`
	PerSecond float64        `json:"requestsPerSecond,omitempty"` // where nothing else was asked meanwhile
	P50       float64        `json:"p50Milliseconds"`
	P99       float64        `json:"p99Milliseconds"`
	Max       float64        `json:"maxMilliseconds"`
	Failed    map[string]int `json:"failed,omitempty"` // by kind
	First     string         `json:"firstFailure,omitempty"`
}

// Failures is how many there were of any kind.
func (f Figures) Failures() (n int) {
	for _, count := range f.Failed {
		n += count
	}
	return n
}

// Tally collects what clients see. Its zero value is ready.
type Tally struct {
	// Kind tells failures apart; nil: all are of one.
	Kind func(error) string

	mu     sync.Mutex
	times  []time.Duration
	failed map[string]int
	first  string
}

// Add a request that took so long, or failed.
func (t *Tally) Add(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.times = append(t.times, took)
		return
	}
	if t.failed == nil {
		t.failed, t.first = map[string]int{}, err.Error()
	}
	kind := "failed"
	if t.Kind != nil {
		kind = t.Kind(err)
	}
	t.failed[kind]++
}

// Figures of what was asked in a time; 0 if that does not count.
func (t *Tally) Figures(took time.Duration) Figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := Figures{Requests: len(t.times), Failed: t.failed, First: t.first}
	if took > 0 {
		f.PerSecond = float64(len(t.times)) / took.Seconds()
	}
	f.P50, f.P99, f.Max = Quantiles(t.times)
	return f
}

// Quantiles in milliseconds; the times are sorted by it.
func Quantiles(times []time.Duration) (p50, p99, most float64) {
	if len(times) == 0 {
		return 0, 0, 0
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
	}
	return at(0.5), at(0.99), at(1)
}

// Load is how much is asked.
type Load struct {
	Clients int
	// Rate is of all clients together, per second; 0: as fast as they get answers.
	Rate float64
	// Duration bounds it by time, Most by requests; one of them may be 0.
	Duration time.Duration
	Most     int
	// Kind tells failures apart; nil: all are of one.
	Kind func(error) string
}

// Run lets the clients work until the load is over or the context ends.
func (l Load) Run(ctx context.Context, ask Ask) Figures {
	t := Tally{Kind: l.Kind}
	var turns atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range l.Clients {
		group.Go(func() {
			for ctx.Err() == nil {
				turn := int(turns.Add(1) - 1)
				due, ok := l.due(ctx, began, turn)
				if !ok {
					return
				}
				err := ask(ctx, turn)
				if ctx.Err() == nil {
					t.Add(time.Since(due), err)
				}
			}
		})
	}
	group.Wait()
	return t.Figures(time.Since(began))
}

// due waits for the turn of a request and tells when it was; false when the load is over.
func (l Load) due(ctx context.Context, began time.Time, turn int) (time.Time, bool) {
	at := time.Now()
	if l.Rate > 0 {
		at = began.Add(time.Duration(float64(turn) / l.Rate * float64(time.Second)))
	}
	if l.Duration > 0 && at.Sub(began) >= l.Duration || l.Most > 0 && turn >= l.Most {
		return at, false
	}
	if wait := time.Until(at); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return at, false
		}
	}
	return at, true
}

// Turns measures several ways by one client in turns, so that whatever else happens on the machine happens to all of them. A
// round that has one failure ends all.
func Turns(ctx context.Context, d time.Duration, ways ...Ask) ([]Figures, error) {
	tallies := make([]Tally, len(ways))
	began := time.Now()
	for round := 0; ctx.Err() == nil && time.Since(began) < d; round++ {
		for n := range ways {
			// Who comes first changes, lest one of them always finds another's traces in the processor's cache.
			way := (round + n) % len(ways)
			start := time.Now()
			err := ways[way](ctx, round)
			tallies[way].Add(time.Since(start), err)
			if err != nil {
				return nil, err
			}
		}
	}
	out := make([]Figures, len(ways))
	for n := range tallies {
		out[n] = tallies[n].Figures(0)
	}
	return out, ctx.Err()
}

// Save keeps what was measured in a file of JSON.
func Save(what any, path string) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Lines are those of a file that say something.
func Lines(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var list []string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if line := strings.TrimSpace(scanner.Text()); line != "" {
			list = append(list, line)
		}
	}
	if len(list) == 0 && scanner.Err() == nil {
		return nil, errors.New(path + " has nothing in it")
	}
	return list, scanner.Err()
}
