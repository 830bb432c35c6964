// SPDX-License-Identifier: Apache-2.0

// Package logger tells a receiver which requests a model gets and what it answers, as CloudEvents over HTTP or as objects in
// a storage.
//
// It stands in the way of requests and must not be in their way: bodies pass while they are copied, and where the receiver
// is slower than the model, or gone, events are left out, counted and told of, and requests go on. What is kept is bounded by
// number and by bytes. Nothing of a body, a header or an address with its password may reach the log of this process.
package logger

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The modes: which events there are.
const (
	ModeAll      = "all"
	ModeRequest  = "request"
	ModeResponse = "response"
)

// Options say what events carry and how many are kept.
type Options struct {
	// Mode is one of the modes above.
	Mode string
	// About is what every event says.
	About About
	// Headers are those of requests that events repeat.
	Headers []string
	// Sink takes events, Workers at the same time.
	Sink    Sink
	Workers int
	// Events and Bytes bound what waits for the sink; Body is the longest body that is kept.
	Events      int
	Bytes, Body int64
	Log         *slog.Logger
}

// About is what all events of one process have in common.
type About struct {
	Source, Service, Namespace, Component, Endpoint string
	Annotations                                     map[string]string
}

// Kind is whether an event is a request or an answer.
type Kind string

// The kinds.
const (
	Request  Kind = "request"
	Response Kind = "response"
)

// Event is one request or one answer.
type Event struct {
	ID string
	// Foreign says that the client chose the id.
	Foreign bool
	Kind    Kind
	Time    time.Time
	// ContentType and Encoding are the body's own. Status is the answer's, 0 for a request.
	ContentType, Encoding string
	Status                int
	// Headers are those of the request that were asked for.
	Headers map[string][]string
	Body    []byte
}

// Sink takes events to where they belong. Send returns when they are there or when it has given up.
type Sink interface {
	Send(ctx context.Context, events []Event) error
	// Batch is how many events are sent together at most, and how long the first of them waits for others.
	Batch() (size int, wait time.Duration)
}

// Logger copies what passes. Make one with New and end it with Close.
type Logger struct {
	Options
	Counts *Counts

	queue chan Event
	room  budget
	// sending ends when nothing is to be sent any more.
	sending context.Context
	giveUp  context.CancelFunc
	workers sync.WaitGroup

	mu     sync.RWMutex
	closed bool
}

// New begins to send.
func New(o Options) *Logger {
	headers := slices.Clone(o.Headers)
	for i, name := range headers {
		headers[i] = http.CanonicalHeaderKey(name)
	}
	o.Headers = headers
	l := &Logger{Options: o, Counts: newCounts(o.Log), queue: make(chan Event, o.Events), room: budget{most: o.Bytes}}
	l.sending, l.giveUp = context.WithCancel(context.Background())
	for range max(o.Workers, 1) {
		l.workers.Go(l.work)
	}
	return l
}

// offer puts an event into the queue. It never waits: an event for which there is no room is lost. The room for its body
// was taken before and is given back when the event has left.
func (l *Logger) offer(e Event) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.closed {
		select {
		case l.queue <- e:
			return
		default:
		}
	}
	l.room.release(int64(len(e.Body)))
	l.Counts.lose(Full, 1)
}

// work sends until the queue is closed and empty.
func (l *Logger) work() {
	size, wait := l.Sink.Batch()
	for first := range l.queue {
		batch := l.collect(first, size, wait)
		l.send(batch)
		for _, e := range batch {
			l.room.release(int64(len(e.Body)))
		}
	}
}

// collect waits until there are enough events, or for long enough. A batch that has half of the memory for all events goes
// before it is full: others would be lost for it.
func (l *Logger) collect(first Event, size int, wait time.Duration) []Event {
	batch := []Event{first}
	if size <= 1 {
		return batch
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	held := int64(len(first.Body))
	for len(batch) < size && held < l.Bytes/2 {
		select {
		case e, more := <-l.queue:
			if !more {
				return batch
			}
			batch = append(batch, e)
			held += int64(len(e.Body))
		case <-timer.C:
			return batch
		}
	}
	return batch
}

func (l *Logger) send(batch []Event) {
	if l.sending.Err() != nil {
		l.Counts.lose(Stopped, len(batch))
		return
	}
	err := l.Sink.Send(l.sending, batch)
	switch {
	case err == nil:
		l.Counts.sent(len(batch))
	case l.sending.Err() != nil:
		l.Counts.lose(Stopped, len(batch))
	default:
		l.Counts.fail(Undelivered, len(batch), err)
	}
}

// Close sends what waits until the context ends. What is left then is lost, and told of.
func (l *Logger) Close(ctx context.Context) {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	done := make(chan struct{})
	go func() { l.workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		l.giveUp()
		<-done // sinks end with their context, and the rest is only counted
	}
	l.giveUp()
	l.Counts.Tell()
}
