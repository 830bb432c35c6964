// SPDX-License-Identifier: Apache-2.0

package recall

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var errNobody = errors.New("nobody's")

func yes(context.Context) Answer[string] {
	return Answer[string]{Value: "ann", Good: true, For: time.Minute}
}

func no(context.Context) Answer[string] { return Answer[string]{Err: errNobody, For: time.Second} }

// TestFlood: while one source asks about unknown credentials without end, which nobody answers, others are answered: those that
// were good before, and new ones from elsewhere.
func TestFlood(t *testing.T) {
	m := New[string]()
	at := time.Now()
	var mu sync.Mutex
	m.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	if who, err := m.Get(From(t.Context(), "good"), "old", yes); err != nil || who != "ann" {
		t.Fatal(who, err)
	}
	mu.Lock()
	at = at.Add(time.Hour) // what was said is forgotten
	mu.Unlock()
	release := make(chan struct{})
	var underWay, most atomic.Int64
	slow := func(context.Context) Answer[string] {
		if n := underWay.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer underWay.Add(-1)
		<-release
		return Answer[string]{Err: errNobody, For: time.Second}
	}
	const flood = 1000
	var all sync.WaitGroup
	busy := make(chan struct{}, flood)
	for i := range flood {
		all.Go(func() {
			if _, err := m.Get(From(context.Background(), "bad"), strconv.Itoa(i), slow); err != nil {
				busy <- struct{}{}
			}
		})
	}
	for range flood - waiting { // all that do not fit are told so at once
		select {
		case <-busy:
		case <-time.After(2 * time.Minute):
			t.Fatal("the flood waits")
		}
	}
	for source, credential := range map[string]string{"bad": "old", "good": "new"} {
		if who, err := m.Get(From(t.Context(), source), credential, yes); err != nil || who != "ann" {
			t.Errorf("%s: %q, %v", credential, who, err)
		}
	}
	close(release)
	all.Wait()
	if n := most.Load(); n > perSource {
		t.Errorf("%d questions of one source were under way", n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lanes) != 0 {
		t.Errorf("%d sources are remembered though nobody asks", len(m.lanes))
	}
}

// TestBounded: wrong answers take no room of good ones, and neither grows without end.
func TestBounded(t *testing.T) {
	m := New[string]()
	if _, err := m.Get(t.Context(), "good", yes); err != nil {
		t.Fatal(err)
	}
	for i := range size + 100 {
		if _, err := m.Get(t.Context(), strconv.Itoa(i), no); !errors.Is(err, errNobody) {
			t.Fatal(err)
		}
	}
	if len(m.bad) != size || len(m.good) != 1 || len(m.were) != 1 {
		t.Errorf("%d wrong, %d good, %d that were", len(m.bad), len(m.good), len(m.were))
	}
	asked := func(context.Context) Answer[string] { t.Error("it was asked again"); return Answer[string]{} }
	if who, err := m.Get(t.Context(), "good", asked); err != nil || who != "ann" {
		t.Error(who, err)
	}
	if _, err := m.Get(t.Context(), "away", func(context.Context) Answer[string] { return Answer[string]{Err: errors.New("away")} }); err == nil {
		t.Error("a failure is no answer")
	}
	if who, err := m.Get(t.Context(), "away", yes); err != nil || who != "ann" {
		t.Error("a failure was remembered", err)
	}
}

func TestSource(t *testing.T) {
	for want, c := range map[string]struct {
		header http.Header
		peer   string
	}{
		"1.1.1.1": {http.Header{"X-Envoy-External-Address": {"1.1.1.1"}, "X-Forwarded-For": {"9.9.9.9"}}, "8.8.8.8:1"},
		"2.2.2.2": {http.Header{"X-Forwarded-For": {"9.9.9.9, 3.3.3.3", "9.9.9.9,2.2.2.2"}}, "8.8.8.8:1"},
		"8.8.8.8": {nil, "8.8.8.8:1"},
		"":        {nil, ""},
	} {
		if got := Source(c.header, c.peer); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
