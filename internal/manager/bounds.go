// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Anybody who reaches the webhook port can send anything. These bound one request; the budget bounds all of them together.
const (
	// maxReview is what the API server sends for one object at most: the old and the new one, of at most 3 MiB each as
	// JSON, and what surrounds them.
	maxReview = 7 << 20
	// maxConversion: the API server converts objects one by one as it reads them. Room is left for lists all the same, of
	// five objects of the largest size or a thousand of the usual.
	maxConversion = 16 << 20
	// maxHeaders is far beyond what an API server sends.
	maxHeaders = 16 << 10
	// maxConnections: an API server has one for each request that it waits for. More wait to be accepted.
	maxConnections = 512

	// fewConnections is from when on those that are idle are closed, the longest first, so that others find room.
	fewConnections = maxConnections / 2

	// headerTimeout is for the handshake as well. A stop closes connections that have said nothing for five seconds; until then
	// it must not be noted that they are slow.
	headerTimeout = 8 * time.Second
	bodyTimeout   = 5 * time.Second // an API server sends all of it at once
	readTimeout   = 20 * time.Second
	writeTimeout  = 30 * time.Second // the API server waits for ten
	idleTimeout   = 90 * time.Second // as long as an API server keeps a connection

	// patienceForMemory is how long a request waits for others to be done. The API server comes back after an answer that
	// asks it to, and gives up after ten seconds.
	patienceForMemory = 2 * time.Second
)

// Memory that webhooks may take, together: a quarter of what the process may have.
const (
	leastWebhookMemory   = 64 << 20
	mostWebhookMemory    = 256 << 20
	defaultWebhookMemory = 128 << 20 // where nothing limits the process
)

// budget is memory that requests in flight share. What a request takes is estimated before it is decoded, because JSON of a
// few megabytes can become hundreds in memory.
type budget struct {
	total int64
	free  *semaphore.Weighted
}

func newBudget(total int64) *budget { return &budget{total: total, free: semaphore.NewWeighted(total)} }

// webhookMemory follows from the memory limit of the process.
func webhookMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return defaultWebhookMemory
	}
	return min(max(limit/4, leastWebhookMemory), mostWebhookMemory)
}

var (
	errTooLarge = errors.New("the request is larger than any that the API server sends")
	errCostly   = errors.New("the request would take more memory than webhooks may use; give the manager a higher memory limit")
	errBusy     = errors.New("too many requests at once; try again")
)

// take waits a short while for n bytes of the budget.
func (b *budget) take(ctx context.Context, n int64) error {
	if n > b.total {
		return errCostly
	}
	ctx, cancel := context.WithTimeout(ctx, patienceForMemory)
	defer cancel()
	if b.free.Acquire(ctx, n) != nil {
		return errBusy
	}
	return nil
}

func (b *budget) give(n int64) { b.free.Release(n) }

// read reads a whole body. What it needs is taken from the budget as the bytes arrive, so that a claim to send much costs
// nobody anything; held is to be given back, also after an error.
func (b *budget) read(ctx context.Context, body io.Reader, most int64) (raw []byte, held int64, err error) {
	for {
		if len(raw) == cap(raw) {
			size := min(max(2*int64(cap(raw)), 8<<10), most+1)
			if err := b.take(ctx, size); err != nil {
				return nil, held, err
			}
			grown := make([]byte, len(raw), size)
			copy(grown, raw)
			b.give(held)
			raw, held = grown, size
		}
		n, err := body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case int64(len(raw)) > most:
			return nil, held, errTooLarge
		case errors.Is(err, io.EOF):
			return raw, held, nil
		case err != nil:
			return nil, held, err
		}
	}
}

// bounded answers requests of at most a size, as many at once as the memory allows. Cost says what next takes of it to deal
// with a body.
func (b *budget) bounded(most int64, cost func(raw []byte) int64, next func(w http.ResponseWriter, req *http.Request, raw []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			refuse(w, http.StatusMethodNotAllowed, errors.New("webhooks are called with POST"))
			return
		}
		if req.ContentLength > most {
			refuse(w, http.StatusRequestEntityTooLarge, errTooLarge)
			return
		}
		// Whoever sends a byte now and then must not hold what others need.
		deadline := http.NewResponseController(w)
		_ = deadline.SetReadDeadline(time.Now().Add(bodyTimeout))
		raw, held, err := b.read(req.Context(), req.Body, most)
		defer func() { b.give(held) }()
		if err != nil {
			refuse(w, codeOf(err), err)
			return
		}
		_ = deadline.SetReadDeadline(time.Now().Add(readTimeout)) // the answer may take longer
		decoded := cost(raw)
		if err := b.take(req.Context(), decoded); err != nil {
			refuse(w, codeOf(err), err)
			return
		}
		defer b.give(decoded)
		next(w, req, raw)
	})
}

// review bounds a handler of the review of one object.
func (b *budget) review(hook http.Handler) http.Handler {
	return b.bounded(maxReview, decodedSize, func(w http.ResponseWriter, req *http.Request, raw []byte) {
		req = req.WithContext(req.Context())
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		hook.ServeHTTP(w, req)
	})
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, errTooLarge), errors.Is(err, errCostly):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests
	default: // the client stopped in the middle, or was too slow
		return http.StatusBadRequest
	}
}

// refuse ends the connection as well: what is left of the body is not worth reading.
func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Connection", "close")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1") // an API server does
	}
	if code == http.StatusBadRequest {
		err = errors.New("the request could not be read to its end")
	}
	http.Error(w, fmt.Sprint(err), code)
}

// crowd knows which connections are idle. One that asks for nothing must not keep others out.
type crowd struct {
	few int

	mu   sync.Mutex
	open map[net.Conn]struct{}
	idle []net.Conn // the longest first
}

func newCrowd(few int) *crowd { return &crowd{few: few, open: map[net.Conn]struct{}{}} }

// changed fits http.Server.ConnState.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = slices.DeleteFunc(c.idle, func(other net.Conn) bool { return other == conn })
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
		return
	case http.StateIdle:
		c.idle = append(c.idle, conn)
	}
	c.open[conn] = struct{}{}
	for len(c.open) > c.few && len(c.idle) > 0 {
		_ = c.idle[0].Close()
		delete(c.open, c.idle[0])
		c.idle = c.idle[1:]
	}
}

// decodedSize is an estimate of what JSON takes in memory once it is decoded, checked and encoded again: its text some
// times over, and what maps, lists and their elements need.
func decodedSize(raw []byte) int64 {
	const perMap, perElement = 700, 100
	size, inString := 4*int64(len(raw)), false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{':
			size += perMap
		case c == '[' || c == ',' || c == ':':
			size += perElement
		}
	}
	return size
}
