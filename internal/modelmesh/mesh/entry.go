// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// state is how far a model has come in this instance.
type state int

const (
	queued  state = iota
	waiting       // for space
	loading
	sizing
	active
	failed
	removed
)

// entry is a model in this instance, from the wish to load it until it is unloaded.
type entry struct {
	id, typ, path, key string
	began              int64 // when it was wished for, in milliseconds
	want               wishes
	queuedAt           time.Time
	suspect            bool // a runtime ended while it loaded the model; set before it is queued

	used  atomic.Int64 // milliseconds
	calls atomic.Int64
	busy  atomic.Int64 // nanoseconds of all calls

	priority, index int64 // of the load pool, under its lock
	weight          int64 // in units, under the cache's lock
	resident        bool  // the runtime has it or is about to, under the cache's lock

	rate rate // of the task that looks at rates, alone

	mu       sync.Mutex
	state    state
	loadedAt int64
	err      error
	done     chan struct{} // closed when the load has ended, well or not
	idle     chan struct{} // closed when the last call has ended after removal; nil before
	inflight int
	slots    chan struct{} // one for each call that the runtime bears at once; nil when it bears any number
	queue    int           // calls that may be under way or waiting; 0 for any number
	cancel   context.CancelFunc
}

// wishes are what whoever registered a model wants of the mesh. They are members of the model's key, which is JSON, or of
// its storage_params, so that every client can express them.
type wishes struct {
	Size      int64 // in units; 0 when nobody said
	Pinned    bool
	MinCopies int
	Unclear   []string // names of those that cannot be understood
}

// mostCopies bounds the wish for copies.
const mostCopies = 100

func wishesOf(key string) wishes {
	var members map[string]json.RawMessage
	if len(key) == 0 || key[0] != '{' || json.Unmarshal([]byte(key), &members) != nil {
		return wishes{}
	}
	var nested map[string]json.RawMessage
	_ = json.Unmarshal(members["storage_params"], &nested)
	word := func(name string) string {
		raw, ok := members[name]
		if !ok {
			raw = nested[name]
		}
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return text
		}
		return string(raw)
	}
	var w wishes
	hear := func(name string, read func(string) error) {
		if text := word(name); text != "" && read(text) != nil {
			w.Unclear = append(w.Unclear, name)
		}
	}
	hear("pinned", func(text string) (err error) {
		w.Pinned, err = strconv.ParseBool(text)
		return err
	})
	hear("min_copies", func(text string) error {
		n, err := strconv.Atoi(text)
		if err == nil {
			w.MinCopies = min(max(n, 0), mostCopies)
		}
		return err
	})
	hear("size_bytes", func(text string) error {
		n, err := strconv.ParseUint(text, 10, 63)
		if err == nil {
			w.Size = units(n)
		}
		return err
	})
	return w
}

// outcome is why an instance did not answer a call although the call may be all right: another instance may do better.
type outcome struct {
	kind string
	err  error
}

// Kinds of outcomes, as they are written into the trailer of a peer's answer.
const (
	outcomeAbsent  = "absent"  // the model is not here
	outcomeRefused = "refused" // it cannot be loaded here now
	outcomeFailed  = "failed"  // loading was tried and failed
	outcomeRuntime = "runtime" // the runtime does not answer
	outcomeBusy    = "busy"    // the copy has as many calls as it bears
	outcomeLost    = "lost"    // the runtime did not have the model, which is gone from here now
)

func (o *outcome) Error() string { return o.err.Error() }
func (o *outcome) Unwrap() error { return o.err }

func because(kind string, code codes.Code, message string) *outcome {
	return &outcome{kind, status.Error(code, message)}
}

// live tells whether the entry is there for calls, now or soon.
func (e *entry) live() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state < failed
}

func (e *entry) is() (state, int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state, e.loadedAt
}

// advance takes a step unless the entry was removed meanwhile.
func (e *entry) advance(to state) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state >= failed {
		return false
	}
	e.state = to
	return true
}

// end marks the entry as failed or removed, and tells what it was before. Whoever waits for it learns why.
func (e *entry) end(as state, err error) (before state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.state
	if before >= failed {
		return before
	}
	e.state, e.err = as, err
	if before < active {
		close(e.done)
	}
	if e.inflight > 0 {
		e.idle = make(chan struct{})
	}
	if e.cancel != nil {
		e.cancel()
	}
	return before
}

// interrupt ends the call by which the entry is loaded; false when there is none.
func (e *entry) interrupt() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != loading && e.state != sizing {
		return false
	}
	e.cancel()
	return true
}

// serving marks the entry as loaded.
func (e *entry) serving(at int64, concurrency, queue int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state >= failed {
		return false
	}
	e.state, e.loadedAt = active, at
	if concurrency > 0 {
		e.slots, e.queue = make(chan struct{}, concurrency), queue
	}
	close(e.done)
	return true
}

// acquire waits until the model is loaded and may be called. release must follow. queued is told how long the call waited for
// others to end, where the runtime bears only so many at once.
func (e *entry) acquire(ctx context.Context, queued func(time.Duration)) (release func(), err error) {
	select {
	case <-e.done:
	default:
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	e.mu.Lock()
	if e.state != active {
		err := e.err
		e.mu.Unlock()
		return nil, err
	}
	if e.queue > 0 && e.inflight >= e.queue {
		e.mu.Unlock()
		return nil, because(outcomeBusy, codes.ResourceExhausted, "the model "+e.id+" has as many calls under way as its copy bears; try again")
	}
	e.inflight++
	slots := e.slots
	e.mu.Unlock()
	if slots == nil {
		return e.leave, nil
	}
	began := time.Now()
	select {
	case slots <- struct{}{}:
		queued(time.Since(began))
		return func() { <-slots; e.leave() }, nil
	case <-ctx.Done():
		e.leave()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inflight--
	if e.inflight == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

// underWay is how many calls have the entry.
func (e *entry) underWay() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inflight
}

// quiet is closed when no call has the entry any more; only after end.
func (e *entry) quiet() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.idle != nil {
		return e.idle
	}
	none := make(chan struct{})
	close(none)
	return none
}
