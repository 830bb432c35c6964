// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelplane/modelplane/internal/openinference"
)

// answer is what a service, or a node, has said.
type answer struct {
	status int
	body   []byte
	// share is what the body takes of the memory for all requests.
	share *openinference.Share
	// stream is an answer that goes to the client piece by piece, in place of a body.
	stream *http.Response
}

func (a answer) good() bool { return a.status >= 200 && a.status < 300 }

func (a answer) release() {
	if a.share != nil {
		a.share.Release()
	}
	if a.stream != nil {
		_ = a.stream.Body.Close() // nothing more is wanted of it
	}
}

// caller asks services.
type caller struct {
	client *http.Client
	// anew is for calls that need a connection of their own.
	anew    *http.Client
	sidecar *sidecar
	budget  *openinference.Budget
	// again counts calls that were made a second time.
	again func()
}

// Connections to services that are kept for the next call, and how long one may take to be made.
const (
	idleConnections = 1000
	idlePerService  = 200
	idleTime        = 90 * time.Second
	connectTime     = 10 * time.Second
)

// newCaller limits each call, unless the limit is none.
func newCaller(limit time.Duration, budget *openinference.Budget) *caller {
	dialer := &net.Dialer{Timeout: connectTime, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: connectTime, ForceAttemptHTTP2: true,
		MaxIdleConns: idleConnections, MaxIdleConnsPerHost: idlePerService, IdleConnTimeout: idleTime,
		// A reply is read as it was sent, and bounded as such.
		DisableCompression: true,
	}
	anew := transport.Clone()
	anew.DisableKeepAlives = true
	return &caller{
		client: &http.Client{Transport: transport, Timeout: max(limit, 0)}, anew: &http.Client{Transport: anew, Timeout: max(limit, 0)},
		sidecar: &sidecar{}, budget: budget, again: func() {},
	}
}

// call asks one service. An answer that may be streamed comes as soon as it begins.
func (c *caller) call(ctx context.Context, step *Step, headers http.Header, input []byte, stream bool) (answer, error) {
	response, err := c.send(ctx, step, headers, input)
	if err != nil {
		return answer{}, err
	}
	if stream && streams(response.Header) {
		return answer{status: response.StatusCode, stream: response}, nil
	}
	defer response.Body.Close()
	reader := &noting{Reader: response.Body}
	share := c.budget.Share()
	body, err := share.Read(reader, response.ContentLength)
	if err == nil {
		return answer{status: response.StatusCode, body: body, share: share}, nil
	}
	share.Release()
	from := response.Request.URL.Redacted()
	switch {
	case reader.err != nil:
		return answer{}, failf(http.StatusInternalServerError, "Post %q: the reply breaks off: %s", from, reader.err)
	case openinference.KindOf(err) == openinference.TooLarge:
		return answer{}, failf(http.StatusInternalServerError, "Post %q: the reply is larger than %d bytes, which is what --max-body-bytes allows", from, c.budget.Each())
	}
	return answer{}, err
}

// noting remembers why a reader failed.
type noting struct {
	io.Reader
	err error
}

func (n *noting) Read(p []byte) (int, error) {
	read, err := n.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return read, err
}

// send makes the call. A service that goes away closes the connections that nobody uses, and a call may just then begin on
// one; such a call is made once more, on a connection of its own.
func (c *caller) send(ctx context.Context, step *Step, headers http.Header, input []byte) (*http.Response, error) {
	var used, answered atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(info httptrace.GotConnInfo) { used.Store(info.Reused) },
		GotFirstResponseByte: func() { answered.Store(true) },
	})
	response, err := c.post(traced, c.client, step, headers, input)
	if err == nil || !used.Load() || answered.Load() || !closed(err) || ctx.Err() != nil {
		return response, err
	}
	c.again()
	return c.post(ctx, c.anew, step, headers, input)
}

func (c *caller) post(ctx context.Context, client *http.Client, step *Step, headers http.Header, input []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.sidecar.address(step.ServiceURL), bytes.NewReader(input))
	if err != nil && strings.Contains(step.ServiceURL, "@") { // the error would repeat a password
		return nil, failf(http.StatusInternalServerError, "the serviceUrl of step %s of node %s cannot be read", step.label, step.node)
	}
	if err != nil {
		return nil, err
	}
	request.Header = headers // which nobody changes any more
	return client.Do(request)
}

// closed tells whether the other side hung up.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, net.ErrClosed) || hungUp(err)
}

// hungUp recognises an error that net/http has no name for.
func hungUp(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "http: server closed idle connection" {
			return true
		}
	}
	return false
}

// streams tells whether an answer is made to be read piece by piece.
func streams(header http.Header) bool {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return false
	}
	return kind == "text/event-stream" || kind == "application/x-ndjson" || kind == "application/jsonl"
}
