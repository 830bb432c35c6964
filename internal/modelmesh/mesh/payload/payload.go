// SPDX-License-Identifier: Apache-2.0

// Package payload hands copies of requests and responses to whoever an operator named: an address that takes JSON, or the
// log. It must never make a call wait or fail: what cannot be handed on in time is dropped, counted, and told of once a
// minute. Nothing of a payload reaches the log but its size.
package payload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Kind tells a request from a response.
type Kind string

// The two kinds of payload, as they are spelled in JSON.
const (
	Request  Kind = "request"
	Response Kind = "response"
)

// Payload is one message of a call. Data and Metadata must not change after it is handed over.
type Payload struct {
	// ID is the same for a request and its response.
	ID string
	// ModelID is the concrete model, VModelID the name that the caller used, or "".
	ModelID, VModelID string
	// Method is the full name of the gRPC method without a leading slash, as in inference.GRPCInferenceService/ModelInfer.
	Method string
	// Status is the gRPC code of a response, as in OK.
	Status   string
	Metadata map[string]string
	Data     []byte
}

// Options is what processors need of the process around them. Everything has a default.
type Options struct {
	// Threads hand payloads on at the same time (2), and so many may wait (64), of so many bytes in all (64 MiB).
	Threads, Capacity int
	Bytes             int64
	// Timeout is for one payload at one address (10 s).
	Timeout time.Duration
	// Dropped is called for every payload that was not handed on; it must not block. The reason is full, closed or failed.
	Dropped func(reason string)
	// Client reaches addresses; http.Client has no limit of its own, so Timeout applies.
	Client *http.Client
	Log    *slog.Logger
}

const (
	defaultThreads  = 2
	defaultCapacity = 64
	defaultBytes    = 64 << 20
	defaultTimeout  = 10 * time.Second
	tellEvery       = time.Minute
)

func (o Options) withDefaults() Options {
	if o.Threads <= 0 {
		o.Threads = defaultThreads
	}
	if o.Capacity <= 0 {
		o.Capacity = defaultCapacity
	}
	if o.Bytes <= 0 {
		o.Bytes = defaultBytes
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Dropped == nil {
		o.Dropped = func(string) {}
	}
	if o.Client == nil {
		o.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Processors is the set of them that a mesh was given. A nil one has no members.
type Processors struct {
	options Options
	list    []processor
	queue   chan job
	waiting atomic.Int64 // bytes
	mu      sync.RWMutex // held for reading while something is put into the queue
	closed  bool
	closing chan struct{}
	workers sync.WaitGroup
	context context.Context
	cancel  context.CancelFunc
	drops   atomic.Int64 // since they were last told of
	failure atomic.Pointer[string]
}

type job struct {
	kind    Kind
	payload Payload
	to      []processor
}

// New reads addresses such as http://host/path?model#method, https://… and logger://. None gives nil, which is of use.
func New(uris []string, o Options) (*Processors, error) {
	if len(uris) == 0 {
		return nil, nil
	}
	p := &Processors{options: o.withDefaults(), closing: make(chan struct{})}
	for _, uri := range uris {
		one, err := parse(uri, p.options)
		if err != nil {
			return nil, err
		}
		p.list = append(p.list, one)
	}
	p.queue = make(chan job, p.options.Capacity)
	p.context, p.cancel = context.WithCancel(context.Background())
	for range p.options.Threads {
		p.workers.Go(p.work)
	}
	p.workers.Go(p.tell)
	return p, nil
}

// Wants tells whether anybody would take a payload of this model and method, so that no copy is made for nobody.
func (p *Processors) Wants(modelID, vModelID, method string) bool {
	return p != nil && len(p.matching(modelID, vModelID, method)) > 0
}

// Request hands on a copy of a request. It returns at once.
func (p *Processors) Request(payload Payload) { p.take(Request, payload) }

// Response hands on a copy of a response. It returns at once.
func (p *Processors) Response(payload Payload) { p.take(Response, payload) }

func (p *Processors) matching(modelID, vModelID, method string) []processor {
	for i, one := range p.list {
		if one.matches(modelID, vModelID, method) {
			continue
		}
		// Only a processor that does not match costs a list of the others.
		rest := append([]processor(nil), p.list[:i]...)
		for _, other := range p.list[i+1:] {
			if other.matches(modelID, vModelID, method) {
				rest = append(rest, other)
			}
		}
		return rest
	}
	return p.list
}

func (p *Processors) take(kind Kind, payload Payload) {
	if p == nil {
		return
	}
	to := p.matching(payload.ModelID, payload.VModelID, payload.Method)
	if len(to) == 0 {
		return
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		p.drop("closed")
		return
	}
	size := int64(len(payload.Data))
	if p.waiting.Add(size) > p.options.Bytes {
		p.waiting.Add(-size)
		p.drop("full")
		return
	}
	select {
	case p.queue <- job{kind, payload, to}:
	default:
		p.waiting.Add(-size)
		p.drop("full")
	}
}

func (p *Processors) drop(reason string) {
	p.drops.Add(1)
	p.options.Dropped(reason)
}

func (p *Processors) work() {
	for {
		select {
		case j := <-p.queue:
			p.hand(j)
		case <-p.closing:
			p.finish()
			return
		}
	}
}

// finish hands on what was waiting when Close was called.
func (p *Processors) finish() {
	for {
		select {
		case j := <-p.queue:
			p.hand(j)
		default:
			return
		}
	}
}

func (p *Processors) hand(j job) {
	defer p.waiting.Add(-int64(len(j.payload.Data)))
	for _, one := range j.to {
		ctx, cancel := context.WithTimeout(p.context, p.options.Timeout)
		err := one.sink.send(ctx, j.kind, j.payload)
		cancel()
		if err != nil {
			why := fmt.Sprintf("%s: %v", one.name, withoutAddress(err))
			p.failure.Store(&why)
			p.drop("failed")
		}
	}
}

// withoutAddress keeps what went wrong and leaves the address to the name, which has no password in it.
func withoutAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// tell says once a minute how many were dropped, if any were.
func (p *Processors) tell() {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.summarise()
		case <-p.closing:
			return
		}
	}
}

func (p *Processors) summarise() {
	n := p.drops.Swap(0)
	if n == 0 {
		return
	}
	args := []any{"dropped", n, "capacity", p.options.Capacity}
	if why := p.failure.Swap(nil); why != nil {
		args = append(args, "last", *why)
	}
	p.options.Log.Warn("Payloads were dropped in the last minute. See that the payload processors answer in time, or raise "+
		"MM_PAYLOAD_PROCESSORS_THREADS and MM_PAYLOAD_PROCESSORS_CAPACITY.", args...)
}

// Close takes no more, hands on what waits as long as ctx lasts, and returns when every goroutine has ended.
func (p *Processors) Close(ctx context.Context) {
	if p == nil {
		return
	}
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, p.cancel)
	p.workers.Wait()
	stop()
	p.cancel()
	p.summarise()
}
