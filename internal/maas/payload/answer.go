// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"net/http"
	"strconv"
	"strings"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
	"github.com/modelplane/modelplane/internal/maas/payload/usage"
)

// answer is what passes from the model to the client.
type answer struct {
	filters []exchange.Filter
	reader  *usage.Reader // nil: nobody wants to know, or it is compressed
	bytes   int64
	over    bool
}

// responseHeaders begins the answer. An answer whose request was not seen passes as it is: there is nothing to say of it.
func (c *conversation) responseHeaders(m *extproc.HttpHeaders) ([]*extproc.ProcessingResponse, error) {
	if c.x == nil {
		c.x = exchange.New(http.Header{})
	}
	x := c.x
	headers := headersOf(m.GetHeaders())
	x.Answer = exchange.NewHeaders(headers)
	x.Status, _ = strconv.Atoi(x.Answer.Get(":status"))
	if x.Status >= 100 && x.Status < 200 { // more headers follow
		return []*extproc.ProcessingResponse{responseHeadersResponse(nil)}, nil
	}
	c.answer = &answer{}
	if x.Report != nil && !compressed(x.Answer) {
		c.answer.reader = usage.New(strings.HasPrefix(x.Answer.Get("content-type"), "text/event-stream"))
	}
	for _, plugin := range c.server.chain.Response {
		filter, err := plugin.Response(x)
		if err != nil {
			return nil, err
		}
		if filter != nil {
			c.answer.filters = append(c.answer.filters, filter)
		}
	}
	if m.GetEndOfStream() {
		c.finish()
	}
	return []*extproc.ProcessingResponse{responseHeadersResponse(x.Answer)}, nil
}

func compressed(h *exchange.Headers) bool {
	coding := h.Get("content-encoding")
	return coding != "" && coding != "identity"
}

// responseBody passes a piece on, in the words of the client.
func (c *conversation) responseBody(m *extproc.HttpBody) ([]*extproc.ProcessingResponse, error) {
	if c.answer == nil {
		c.answer = &answer{}
	}
	changed := len(c.answer.filters) > 0
	out, err := c.answer.feed(m.GetBody(), m.GetEndOfStream())
	if err != nil {
		return c.broken(err, m.GetEndOfStream())
	}
	if m.GetEndOfStream() {
		c.finish()
	}
	switch {
	case c.modes.response == duplex:
		if len(out) == 0 && !m.GetEndOfStream() {
			return nil, nil
		}
		return []*extproc.ProcessingResponse{responseBodyResponse(streamed(out, m.GetEndOfStream()))}, nil
	case !changed:
		return []*extproc.ProcessingResponse{responseBodyResponse(nil)}, nil
	}
	return []*extproc.ProcessingResponse{responseBodyResponse(replaced(out))}, nil
}

// broken is an answer that cannot be read. Its headers have left, so that the client can be told only by its end: half of
// a stream is not made to look whole.
func (c *conversation) broken(err error, _ bool) ([]*extproc.ProcessingResponse, error) {
	c.server.log.Error("An answer was cut off", "request", c.id(), "err", err.Error())
	return nil, exchange.Refuse(http.StatusBadGateway, "the provider's answer could not be understood")
}

// feed sends a piece through the filters, and through the reader what the provider itself has said.
func (a *answer) feed(piece []byte, end bool) ([]byte, error) {
	a.bytes += int64(len(piece))
	if a.reader != nil {
		if a.reader.Feed(piece); end {
			a.reader.End()
		}
	}
	a.over = a.over || end
	for _, f := range a.filters {
		var out []byte
		var err error
		if len(piece) > 0 {
			if out, err = f.Feed(piece); err != nil {
				return nil, err
			}
		}
		if end {
			out = append([]byte(nil), out...) // the filter's own until the next call
			rest, err := f.End()
			if err != nil {
				return nil, err
			}
			out = append(out, rest...)
		}
		piece = out
	}
	return piece, nil
}

// responseTrailers end a body that had no end of its own.
func (c *conversation) responseTrailers() ([]*extproc.ProcessingResponse, error) {
	var out []*extproc.ProcessingResponse
	if c.answer != nil && !c.answer.over {
		rest, err := c.answer.feed(nil, true)
		if err != nil {
			return c.broken(err, true)
		}
		c.finish()
		if c.modes.response == duplex && len(rest) > 0 {
			out = append(out, responseBodyResponse(streamed(rest, false)))
		}
	}
	return append(out, &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extproc.TrailersResponse{}}}), nil
}

// finish reports as soon as the answer is over.
func (c *conversation) finish() {
	c.answer.over = true
	c.report(c.answer.usage())
}

func (a *answer) usage() enforcer.Usage {
	u := enforcer.Usage{Delivered: usage.Tokens(a.bytes)}
	if a.reader != nil {
		u = a.reader.Usage()
		u.Delivered = a.reader.Delivered()
	}
	u.Complete = a.over
	return u
}
