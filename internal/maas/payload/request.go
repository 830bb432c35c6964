// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
	"github.com/modelplane/modelplane/internal/maas/payload/jsonbody"
)

// requestHeaders begins the exchange. Unless the body is sent without waiting, Envoy wants an answer before it sends it.
func (c *conversation) requestHeaders(ctx context.Context, m *extproc.HttpHeaders) ([]*extproc.ProcessingResponse, error) {
	c.x = exchange.New(headersOf(m.GetHeaders()))
	if length, err := strconv.ParseInt(c.x.Headers.Get("content-length"), 10, 64); err == nil && length >= 0 {
		if length > int64(c.server.bounds.Body) {
			return nil, c.tooLong()
		}
		c.length = int(length)
	}
	switch {
	case m.GetEndOfStream() || c.modes.request == none:
		if err := c.process(ctx); err != nil {
			return nil, err
		}
		return []*extproc.ProcessingResponse{requestHeadersResponse(c.x)}, nil
	case c.modes.request == duplex:
		return nil, nil
	}
	return []*extproc.ProcessingResponse{{Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{}}}}, nil
}

func (c *conversation) tooLong() error {
	return exchange.Refuse(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes", c.server.bounds.Body)
}

// requestBody keeps what comes, and sends the request on when it is complete.
func (c *conversation) requestBody(ctx context.Context, m *extproc.HttpBody) ([]*extproc.ProcessingResponse, error) {
	if c.x == nil {
		return nil, exchange.Refuse(http.StatusInternalServerError, "the gateway sends bodies without headers; set request_header_mode to SEND")
	}
	if err := c.keep(m.GetBody()); err != nil {
		return nil, err
	}
	if !m.GetEndOfStream() {
		if c.modes.request == duplex {
			return nil, nil
		}
		return []*extproc.ProcessingResponse{requestBodyResponse(cleared())}, nil // it leaves with the last piece
	}
	return c.send(ctx, true)
}

// keep takes a piece of the body within the bounds.
func (c *conversation) keep(piece []byte) error {
	if len(c.body)+len(piece) > c.server.bounds.Body {
		return c.tooLong()
	}
	if need := len(c.body) + len(piece); need > cap(c.body) {
		if err := c.grow(need); err != nil {
			return err
		}
	}
	c.body = append(c.body, piece...)
	return nil
}

// grow makes room that is counted before it is there. What a client says of its length makes none: it may never come.
func (c *conversation) grow(need int) error {
	room := max(need, min(2*cap(c.body), c.server.bounds.Body))
	if c.length >= need {
		room = min(room, c.length)
	}
	if !c.server.held.take(int64(room - cap(c.body))) {
		r := exchange.Refuse(http.StatusServiceUnavailable, "the gateway holds too many requests at the moment; try again")
		r.Headers = map[string]string{"retry-after": "1"}
		return r
	}
	c.reserved += int64(room - cap(c.body))
	body := make([]byte, len(c.body), room)
	copy(body, c.body)
	c.body = body
	return nil
}

// process has the plugins see the request.
func (c *conversation) process(ctx context.Context) error {
	c.passed = true
	x := c.x
	x.Raw = c.body
	if len(c.body) > 0 {
		body, err := jsonbody.Parse(c.body)
		switch {
		case err == nil:
			x.Body = body
		case isJSON(x):
			return exchange.Refuse(http.StatusBadRequest, "%v", err)
		}
	}
	for _, plugin := range c.server.chain.Request {
		if err := plugin.Request(ctx, x); err != nil {
			return err
		}
	}
	if x.Report != nil { // the answer is read here, and a compressed one cannot be
		x.Headers.Remove("accept-encoding")
	}
	return nil
}

// isJSON tells whether a body has to be a JSON object: those of the known APIs, whatever their headers say, and those that
// say so. Others, such as files, pass as they are; they name no model.
func isJSON(x *exchange.Exchange) bool {
	return x.Format != "" || strings.HasPrefix(strings.ToLower(x.Headers.Get("content-type")), "application/json")
}

// send is everything that Envoy needs to send the request on. Ended: nothing follows the body.
func (c *conversation) send(ctx context.Context, ended bool) ([]*extproc.ProcessingResponse, error) {
	if err := c.process(ctx); err != nil {
		return nil, err
	}
	body := c.body
	if c.x.Body != nil {
		body = c.x.Body.Bytes()
	}
	defer func() {
		c.release()
		c.x.Body, c.x.Raw = nil, nil
	}()
	switch c.modes.request {
	case duplex:
		out := []*extproc.ProcessingResponse{requestHeadersResponse(c.x)} // Envoy takes the length away by itself
		for _, piece := range pieces(body) {
			out = append(out, requestBodyResponse(streamed(piece.bytes, piece.last && ended)))
		}
		return out, nil
	case streaming:
		if set, removed := c.x.Headers.Changes(); len(set)+len(removed) > 0 {
			return nil, exchange.Refuse(http.StatusInternalServerError,
				"the gateway has sent the headers on before the body was seen; set request_body_mode to FULL_DUPLEX_STREAMED or BUFFERED")
		}
	}
	out := requestBodyResponse(replaced(body))
	if c.modes.request == buffered { // Envoy refuses a body that is not as long as its headers say
		c.x.Headers.Set("content-length", strconv.Itoa(len(body)))
		common := out.GetRequestBody().GetResponse()
		common.HeaderMutation, common.ClearRouteCache = mutation(c.x.Headers), c.x.Reroute
	}
	return []*extproc.ProcessingResponse{out}, nil
}

// requestTrailers end a body that had no end of its own.
func (c *conversation) requestTrailers(ctx context.Context) ([]*extproc.ProcessingResponse, error) {
	var out []*extproc.ProcessingResponse
	if c.x != nil && !c.passed && c.modes.request == duplex {
		var err error
		if out, err = c.send(ctx, false); err != nil {
			return nil, err
		}
	}
	return append(out, &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestTrailers{RequestTrailers: &extproc.TrailersResponse{}}}), nil
}
