// SPDX-License-Identifier: Apache-2.0

// Package transfer reads objects over HTTP as fast and as faithfully as the server allows: large ones in parallel
// segments, broken ones from where they broke, against the checksums that the server or a listing states, and with
// patience for servers that are busy but none for those that refuse.
//
// It knows no kind of storage. How requests are signed is told by whoever asks; what it says in errors never contains a
// query, a header or a body, because these hold secrets.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Signer adds credentials to a request. It is called for every attempt, after all other headers are set.
type Signer func(ctx context.Context, request *http.Request) error

// Client sends requests. Make one with New.
type Client struct {
	// HTTP sends; it follows redirects within reason and never compresses.
	HTTP *http.Client
	// Segment is how much of a large object one request asks for.
	Segment int64
	// Attempts is how often something may fail in a row without a byte of progress.
	Attempts int
	// Stall is how long a server may keep silent.
	Stall time.Duration
	// Pause waits between attempts; tests do not.
	Pause func(ctx context.Context, d time.Duration) error

	slots    chan struct{}
	requests atomic.Int64
}

// Defaults that hold where nothing is said.
const (
	DefaultSegment  = 16 << 20
	DefaultAttempts = 6
	DefaultStall    = time.Minute
	maxRedirects    = 5
	longestPause    = 20 * time.Second
	// errorBody bounds what is read of an answer that is an error.
	errorBody = 64 << 10
)

// New makes a client that has so many requests under way at the same time.
func New(parallel int, trust Trust) (*Client, error) {
	if parallel < 1 {
		return nil, fmt.Errorf("%d requests at a time are not enough; allow at least 1", parallel)
	}
	transport, err := trust.transport(parallel)
	if err != nil {
		return nil, err
	}
	return &Client{
		HTTP:     &http.Client{Transport: transport, CheckRedirect: redirect},
		Segment:  DefaultSegment,
		Attempts: DefaultAttempts,
		Stall:    DefaultStall,
		Pause:    pause,
		slots:    make(chan struct{}, parallel),
	}, nil
}

// Requests is how many were sent.
func (c *Client) Requests() int64 { return c.requests.Load() }

// Parallel is how many requests may be under way.
func (c *Client) Parallel() int { return cap(c.slots) }

// redirect keeps what was meant for one host from others, and does not go from a protected connection to an open one.
func redirect(next *http.Request, via []*http.Request) error {
	last := via[len(via)-1]
	switch {
	case len(via) > maxRedirects:
		return errors.New("it redirects too often")
	case last.URL.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("it redirects from https to " + next.URL.Scheme)
	}
	if !strings.EqualFold(next.URL.Host, via[0].URL.Host) {
		kept := http.Header{}
		for _, name := range []string{"Range", "If-Range", "Accept-Encoding", "User-Agent"} {
			if value := next.Header.Get(name); value != "" {
				kept.Set(name, value)
			}
		}
		next.Header = kept
	}
	next.Header.Del("Referer")
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// acquire waits until a request may be sent.
func (c *Client) acquire(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) release() { <-c.slots }

// Request describes what to ask.
type Request struct {
	Method string // GET when empty
	URL    string
	Header http.Header
	// Body is sent anew with each attempt.
	Body string
	Sign Signer
}

func (r Request) build(ctx context.Context) (*http.Request, error) {
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(ctx, method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("the address is not valid") // the error would show all of it
	}
	if r.Body == "" {
		request.Body, request.GetBody, request.ContentLength = nil, nil, 0
	}
	for name, values := range r.Header {
		request.Header[name] = append([]string(nil), values...)
	}
	if request.Header.Get("Accept-Encoding") == "" {
		request.Header.Set("Accept-Encoding", "identity")
	}
	request.Header.Set("User-Agent", "modelplane")
	return request, nil
}

// send makes one attempt. The caller closes the body; ending is to be called after that.
func (c *Client) send(ctx context.Context, r Request) (response *http.Response, ending func(), err error) {
	if err := c.acquire(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ending = func() { cancel(nil); c.release() }
	request, err := r.build(ctx)
	if err == nil && r.Sign != nil {
		err = r.Sign(ctx, request)
	}
	if err != nil {
		ending()
		return nil, nil, err
	}
	c.requests.Add(1)
	watch := time.AfterFunc(c.Stall, func() { cancel(errStalled) })
	response, err = c.HTTP.Do(request)
	if err != nil {
		watch.Stop()
		err = &Problem{What: "the server cannot be reached: " + cause(ctx, err), transient: temporary(err), err: err}
		ending()
		return nil, nil, err
	}
	response.Body = &watched{ReadCloser: response.Body, watch: watch, stall: c.Stall, ctx: ctx}
	return response, ending, nil
}

// Do sends a request whose answer is small, and returns its body up to a limit. It tries again what may work later.
func (c *Client) Do(ctx context.Context, r Request, limit int64) ([]byte, http.Header, error) {
	for failures := 1; ; failures++ {
		body, header, err := c.once(ctx, r, limit)
		if err == nil || !c.again(ctx, err, failures) {
			return body, header, err
		}
	}
}

// Once sends a request that either works at once or not at all, such as to a service that only some machines have.
func (c *Client) Once(ctx context.Context, r Request, limit int64, within time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	body, _, err := c.once(ctx, r, limit)
	return body, err
}

// Aside is a client for what signers ask while they hold up a request: it does not wait for others to end.
func (c *Client) Aside() *Client {
	return &Client{HTTP: c.HTTP, Segment: c.Segment, Attempts: c.Attempts, Stall: c.Stall, Pause: c.Pause, slots: make(chan struct{}, 1)}
}

func (c *Client) once(ctx context.Context, r Request, limit int64) ([]byte, http.Header, error) {
	response, ending, err := c.send(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer ending()
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return nil, response.Header, refusal(response)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, nil, broken(err)
	}
	if int64(len(body)) > limit {
		return nil, nil, &Problem{What: "the server answers with more than is sensible"}
	}
	return body, response.Header, nil
}

// again waits before another attempt, unless none would help.
func (c *Client) again(ctx context.Context, err error, failures int) bool {
	var p *Problem
	if ctx.Err() != nil || failures >= c.Attempts || !errors.As(err, &p) || !p.transient {
		return false
	}
	wait := min(longestPause, 250*time.Millisecond<<min(failures, 10))
	wait = wait/2 + rand.N(wait/2+1) // spreads clients, keeps no secret
	return c.Pause(ctx, max(wait, min(p.after, longestPause))) == nil
}

// errStalled ends a connection on which nothing comes.
var errStalled = errors.New("the server keeps silent")

// watched ends a connection on which nothing comes for too long.
type watched struct {
	io.ReadCloser
	watch *time.Timer
	stall time.Duration
	ctx   context.Context
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.watch.Reset(w.stall)
	}
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(w.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

func (w *watched) Close() error {
	w.watch.Stop()
	return w.ReadCloser.Close()
}

func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}

// cause says why a connection failed, without the address that Go puts into such errors.
func cause(ctx context.Context, err error) string {
	if stalled := context.Cause(ctx); errors.Is(stalled, errStalled) {
		return stalled.Error()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return err.Error()
}
