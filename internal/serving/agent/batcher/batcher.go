// SPDX-License-Identifier: Apache-2.0

// Package batcher puts predictions that several clients ask for at about the same time into one request to the model, and
// gives each client its part of the answer.
//
// Only requests that could as well have come from one client are put together: same path, query, headers and fields beside
// the instances. Everything else passes as it is, and so does whatever is too large to wait here. One client's mistake is
// not another's: a batch that the model refuses is asked again one by one. Nothing here looks into an instance.
package batcher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how long requests wait for others, and how much of them.
type Options struct {
	// Size is how many instances a batch has at most, unless one request has more; Wait is how long the first waits.
	Size int
	Wait time.Duration
	// Upstream is the model server, and Transport how it is reached.
	Upstream  *url.URL
	Transport http.RoundTripper
	// Body is the longest request that waits, Bytes how much all of them have together, and Answer the longest answer.
	Body, Bytes, Answer int64
	// InFlight is how many batches are at the model at the same time.
	InFlight int
}

// Batcher collects. Make one with New.
type Batcher struct {
	Options
	used  atomic.Int64
	slots chan struct{}

	mu       sync.Mutex
	open     map[string]*batch // batches that others may still join
	stopping bool
}

// New makes a batcher.
func New(o Options) *Batcher {
	return &Batcher{Options: o, slots: make(chan struct{}, max(o.InFlight, 1)), open: map[string]*batch{}}
}

// suffix of the paths that are batched: predictions of version 1.
const suffix = ":predict"

// Handler answers predictions and leaves the rest to next.
func (b *Batcher) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, suffix) || req.Header.Get("Content-Encoding") != "" || req.ContentLength > b.Body {
			next.ServeHTTP(w, req)
			return
		}
		body, whole, err := b.read(req.Body)
		defer func() { b.release(len(body)) }()
		switch {
		case err != nil:
			http.Error(w, "can't read body", http.StatusBadRequest)
			return
		case !whole:
			req.Body = replayed{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
			next.ServeHTTP(w, req)
			return
		}
		asked, err := Decode(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if got, ok := b.ask(req, asked); ok {
			got.write(w)
		}
	})
}

// replayed is a body of which a part was read already.
type replayed struct {
	io.Reader
	io.Closer
}

// read takes a body into memory. It is not whole when it is too long, or when there is no room; what was read of it then
// belongs before the rest.
func (b *Batcher) read(from io.Reader) (body []byte, whole bool, err error) {
	const step = 32 << 10
	for {
		if int64(len(body)) > b.Body || !b.take(step) {
			return body, false, nil
		}
		if cap(body)-len(body) < step {
			body = append(make([]byte, 0, 2*cap(body)+step), body...)
		}
		n, err := from.Read(body[len(body) : len(body)+step])
		body = body[:len(body)+n]
		b.release(step - n)
		switch {
		case errors.Is(err, io.EOF):
			return body, int64(len(body)) <= b.Body, nil
		case err != nil:
			return body, false, err
		}
	}
}

func (b *Batcher) take(n int) bool {
	if b.used.Add(int64(n)) > b.Bytes {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *Batcher) release(n int) { b.used.Add(-int64(n)) }

// ask has a request answered in a batch. It is false when the client does not wait any more.
func (b *Batcher) ask(req *http.Request, asked *Request) (*reply, bool) {
	mine := &member{asked: asked, answer: make(chan *reply, 1)}
	joined := b.join(req, mine)
	select {
	case got := <-mine.answer:
		return got, true
	case <-req.Context().Done():
		b.leave(joined, mine)
		return nil, false
	}
}

// member is a request in a batch.
type member struct {
	asked  *Request
	answer chan *reply // has room for the one that comes
}

// batch is requests that go together.
type batch struct {
	key     string
	first   *http.Request // of those who began it
	members []*member
	count   int // instances
	timer   *time.Timer
	sent    bool

	ctx    context.Context // ends when nobody waits for the answer any more
	cancel context.CancelFunc
}

// join puts a request into the batch that is open for its like, or begins one. A batch that would become too large goes first.
func (b *Batcher) join(req *http.Request, mine *member) *batch {
	key, n := keyOf(req, mine.asked), len(mine.asked.Instances)
	b.mu.Lock()
	defer b.mu.Unlock()
	into := b.open[key]
	if into != nil && into.count+n > b.Size {
		b.launch(into)
		into = nil
	}
	if into == nil {
		into = &batch{key: key, first: req}
		into.ctx, into.cancel = context.WithCancel(context.WithoutCancel(req.Context()))
		into.timer = time.AfterFunc(b.Wait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.launch(into)
		})
		b.open[key] = into
	}
	into.members = append(into.members, mine)
	into.count += n
	if into.count >= b.Size || b.stopping {
		b.launch(into)
	}
	return into
}

// launch sends a batch, once. The caller has the lock.
func (b *Batcher) launch(it *batch) {
	if it.sent {
		return
	}
	it.sent = true
	it.timer.Stop()
	delete(b.open, it.key)
	if len(it.members) > 0 {
		go b.run(it, append([]*member(nil), it.members...))
	}
}

// leave takes a request out whose client has gone. A batch that nobody waits for is given up.
func (b *Batcher) leave(it *batch, mine *member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range it.members {
		if m == mine {
			it.members = append(it.members[:i], it.members[i+1:]...)
			it.count -= len(m.asked.Instances)
			break
		}
	}
	if len(it.members) > 0 {
		return
	}
	it.cancel()
	if !it.sent {
		b.launch(it)
	}
}

// Stop sends what waits, and from now on everything at once.
func (b *Batcher) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
	for _, it := range b.open {
		b.launch(it)
	}
}

// run asks the model and answers everybody.
func (b *Batcher) run(it *batch, members []*member) {
	defer it.cancel()
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-it.ctx.Done():
		return
	}
	requests := make([]*Request, len(members))
	for i, m := range members {
		requests[i] = m.asked
	}
	replies, again := b.together(it.ctx, it.first, requests)
	for i, m := range members {
		if again {
			replies, _ := b.together(it.ctx, it.first, requests[i:i+1])
			m.answer <- replies[0]
			continue
		}
		m.answer <- replies[i]
	}
}
