// SPDX-License-Identifier: Apache-2.0

// Package recall remembers for a moment what somebody else says of credentials, and keeps the way to them free: whoever sends wrong
// ones without end fills neither the memory nor the way for others. It keeps digests, and no credential.
package recall

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// ErrBusy is that a source has too many questions waiting already. Nothing is said of the credential.
var ErrBusy = errors.New("too many unknown credentials come from one place at once")

// Answer is what was said of a credential.
type Answer[T any] struct {
	Value T
	Err   error
	// Good tells that the credential is one: it is then remembered apart from wrong ones, and asked about before them.
	Good bool
	// For is how long it is believed, from when it was asked; zero: not at all, as nobody could tell.
	For time.Duration
}

// Bounds; each was chosen so that one source alone does not fill the next.
const (
	// size is how many good answers are remembered, and as many wrong ones.
	size = 20_000
	// slots is how many questions about unknown credentials are under way, as many about those that were good before, and
	// perSource how many of one source.
	slots, perSource = 32, 4
	// waiting is how many questions of one source may wait, and sources how many of them are told apart.
	waiting, sources = 64, 10_000
	// askTime is how long a question may take, with waiting, that nobody waits for any more.
	askTime = 5 * time.Second
)

type digest = [sha256.Size]byte

type known[T any] struct {
	answer Answer[T]
	until  time.Time
}

// Memory of answers. Of several who ask the same at once, one asks for all.
type Memory[T any] struct {
	// Now is the clock.
	Now func() time.Time

	asking           singleflight.Group
	proven, unproven chan struct{}

	mu        sync.Mutex
	good, bad map[digest]known[T]
	// were good once; their answers may be forgotten.
	were  map[digest]bool
	lanes map[string]*lane
}

// lane is what a source has under way.
type lane struct {
	slots chan struct{}
	users int
}

// New is empty.
func New[T any]() *Memory[T] {
	return &Memory[T]{
		Now: time.Now, proven: make(chan struct{}, slots), unproven: make(chan struct{}, slots),
		good: map[digest]known[T]{}, bad: map[digest]known[T]{}, were: map[digest]bool{}, lanes: map[string]*lane{},
	}
}

type sourceKey struct{}

// From says in a context where a request comes from.
func From(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// Source of a request, as the gateway that it came through last tells; peer is who sent it here, and may be empty.
func Source(h http.Header, peer string) string {
	if own := strings.TrimSpace(h.Get("X-Envoy-External-Address")); own != "" {
		return bounded(own)
	}
	if lines := h.Values("X-Forwarded-For"); len(lines) > 0 { // each adds who it had it from behind what it was told
		line := lines[len(lines)-1]
		if last := strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:]); last != "" {
			return bounded(last)
		}
	}
	if host, _, err := net.SplitHostPort(peer); err == nil {
		return host
	}
	return peer
}

func bounded(source string) string { return source[:min(len(source), 64)] }

// Get answers from memory, or asks.
func (m *Memory[T]) Get(ctx context.Context, credential string, ask func(context.Context) Answer[T]) (T, error) {
	key := sha256.Sum256([]byte(credential))
	k, was := m.recall(key)
	if k != nil {
		return k.Value, k.Err
	}
	source, _ := ctx.Value(sourceKey{}).(string)
	// The one who asks may go away before the others: the question goes on without them.
	done := m.asking.DoChan(string(key[:]), func() (any, error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		leave, err := m.enter(limited, source, was)
		if err != nil {
			return Answer[T]{Err: err}, nil
		}
		defer leave()
		asked := m.Now() // it may have changed since
		a := ask(limited)
		if a.For > 0 {
			m.keep(key, known[T]{a, asked.Add(a.For)})
		}
		return a, nil
	})
	select {
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case r := <-done:
		a, _ := r.Val.(Answer[T])
		return a.Value, a.Err
	}
}

func (m *Memory[T]) recall(key digest) (a *Answer[T], was bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.good[key]
	if !ok {
		k, ok = m.bad[key]
	}
	if ok && m.Now().Before(k.until) {
		return &k.answer, false
	}
	return nil, m.were[key]
}

// enter waits until a question may be asked. Credentials that were good before do not wait behind others.
func (m *Memory[T]) enter(ctx context.Context, source string, was bool) (leave func(), err error) {
	if was {
		return take(ctx, m.proven)
	}
	l, out, err := m.lane(source)
	if err != nil {
		return nil, err
	}
	mine, err := take(ctx, l.slots)
	if err != nil {
		out()
		return nil, err
	}
	all, err := take(ctx, m.unproven)
	if err != nil {
		mine()
		out()
		return nil, err
	}
	return func() { all(); mine(); out() }, nil
}

func take(ctx context.Context, slots chan struct{}) (give func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lane of a source; when there are too many, those that came last share one.
func (m *Memory[T]) lane(source string) (l *lane, out func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lanes[source] == nil && len(m.lanes) >= sources {
		source = ""
	}
	if l = m.lanes[source]; l == nil {
		l = &lane{slots: make(chan struct{}, perSource)}
		m.lanes[source] = l
	}
	if l.users >= waiting {
		return nil, nil, ErrBusy
	}
	l.users++
	return l, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.lanes, source)
		}
	}, nil
}

// keep makes room by whatever comes first: what is forgotten is asked for again. Wrong answers take no room of good ones.
func (m *Memory[T]) keep(key digest, k known[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.good, key)
	delete(m.bad, key)
	delete(m.were, key)
	if !k.answer.Good {
		put(m.bad, key, k)
		return
	}
	put(m.good, key, k)
	put(m.were, key, true)
}

func put[V any](into map[digest]V, key digest, v V) {
	for old := range into {
		if len(into) < size {
			break
		}
		delete(into, old)
	}
	into[key] = v
}
