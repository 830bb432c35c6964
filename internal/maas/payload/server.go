// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
	"github.com/modelplane/modelplane/internal/maas/payload/plugins"
)

// Bounds are what a processor holds at most.
type Bounds struct {
	// Body is the most bytes of a request's body.
	Body int
	// Held is the most bytes of all bodies that are held at the same time.
	Held int64
	// Patience is how long a request may take to arrive; a minute if zero.
	Patience time.Duration
}

// Server answers Envoy. One stream is one request and its answer.
type Server struct {
	extproc.UnimplementedExternalProcessorServer

	chain   plugins.Chain
	bounds  Bounds
	held    *held
	metrics *Metrics
	log     *slog.Logger
}

// NewServer makes one of plugins.
func NewServer(chain plugins.Chain, b Bounds, m *Metrics, log *slog.Logger) *Server {
	return &Server{chain: chain, bounds: b, held: &held{most: b.Held}, metrics: m, log: log}
}

// Process is one request and its answer.
func (s *Server) Process(stream extproc.ExternalProcessor_ProcessServer) (err error) {
	c := &conversation{server: s}
	s.metrics.open.Inc()
	defer s.metrics.open.Dec()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("A request was given up because of a mistake in this program", "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			s.metrics.panics.Inc()
			err = status.Error(codes.Internal, "the payload processor failed")
		}
		c.close()
	}()
	late := time.NewTimer(s.bounds.patience())
	defer late.Stop()
	messages := receive(stream)
	for {
		var answers []*extproc.ProcessingResponse
		last := true
		select {
		case m := <-messages:
			if m.err != nil {
				return c.ended(m.err)
			}
			answers, last = c.take(stream.Context(), m.request)
		case <-stream.Context().Done():
			return c.ended(stream.Context().Err())
		case <-late.C:
			if c.passed || c.answer != nil {
				continue // it has come; its answer may take as long as it wants
			}
			answers = []*extproc.ProcessingResponse{c.refuse(exchange.Refuse(http.StatusRequestTimeout, "the request did not arrive within %s", s.bounds.patience()))}
		}
		for _, answer := range answers {
			if err := stream.Send(answer); err != nil {
				return c.ended(err)
			}
		}
		c.through = c.through || c.passed || c.answer != nil
		if last {
			return nil
		}
	}
}

func (b Bounds) patience() time.Duration { return cmp.Or(b.Patience, time.Minute) }

// message is what Envoy says, or why it says no more.
type message struct {
	request *extproc.ProcessingRequest
	err     error
}

// receive reads until the stream ends, which it does when its exchange is over.
func receive(stream extproc.ExternalProcessor_ProcessServer) <-chan message {
	out := make(chan message)
	go func() {
		for {
			request, err := stream.Recv()
			select {
			case out <- message{request, err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// ended takes Envoy's going away for a good end: it does so when a client has gone. But as long as the request was not let through, no
// end is good: Envoy takes a stream that ends well for leave to send the request on as it came.
func (c *conversation) ended(err error) error {
	if !c.through {
		return status.Error(codes.Unavailable, "the request was not decided about")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// conversation is one stream.
type conversation struct {
	server *Server
	modes  modes
	x      *exchange.Exchange

	length   int    // of the request's body, if it was said
	body     []byte // as far as it has come
	reserved int64  // what of the processor's memory it has
	passed   bool   // the request is complete, and plugins have it
	through  bool   // Envoy was told to send it on

	answer *answer
}

// take is what is sent for a message; last: nothing more is to be said.
func (c *conversation) take(ctx context.Context, r *extproc.ProcessingRequest) (out []*extproc.ProcessingResponse, last bool) {
	if r.GetProtocolConfig() != nil {
		c.modes.learn(r.GetProtocolConfig())
	}
	var err error
	switch m := r.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		out, err = c.requestHeaders(ctx, m.RequestHeaders)
	case *extproc.ProcessingRequest_RequestBody:
		out, err = c.requestBody(ctx, m.RequestBody)
	case *extproc.ProcessingRequest_RequestTrailers:
		out, err = c.requestTrailers(ctx)
	case *extproc.ProcessingRequest_ResponseHeaders:
		out, err = c.responseHeaders(m.ResponseHeaders)
	case *extproc.ProcessingRequest_ResponseBody:
		out, err = c.responseBody(m.ResponseBody)
	case *extproc.ProcessingRequest_ResponseTrailers:
		out, err = c.responseTrailers()
	default:
		err = errors.New("Envoy sent a message of an unknown kind") //nolint:staticcheck // a name
	}
	if err != nil {
		return []*extproc.ProcessingResponse{c.refuse(err)}, true
	}
	return out, false
}

// refuse ends an exchange with an answer of our own.
func (c *conversation) refuse(err error) *extproc.ProcessingResponse {
	refusal, is := errors.AsType[*exchange.Refusal](err)
	undecided, unsure := errors.AsType[*plugins.Undecided](err)
	switch {
	case unsure:
		refusal = undecided.Refusal()
		c.server.log.Error("A request was denied because nobody could decide about it", "request", c.id(), "err", err.Error())
	case !is:
		refusal = exchange.Refuse(500, "the request could not be prepared for the model's provider; its operator finds the reason in the log under the request's id")
		c.server.log.Error("A request failed", "request", c.id(), "err", err.Error())
	}
	format := enforcer.Unknown
	if c.x != nil {
		format = c.x.Format
		if c.x.Status == 0 {
			c.x.Status = refusal.Status
		}
	}
	c.server.metrics.refused.WithLabelValues(fmt.Sprint(refusal.Status)).Inc()
	return immediate(refusal, format)
}

func (c *conversation) id() string {
	if c.x == nil {
		return ""
	}
	return c.x.Headers.Get(exchange.RequestID)
}

// close gives back what the conversation has, and tells what is known of its cost.
func (c *conversation) close() {
	c.release()
	if c.x == nil {
		return
	}
	u := enforcer.Usage{}
	if c.answer != nil {
		u = c.answer.usage()
	}
	c.report(u)
}

// report must not take the process with it.
func (c *conversation) report(u enforcer.Usage) {
	defer func() {
		if p := recover(); p != nil {
			c.server.log.Error("The cost of a request could not be reported", "request", c.id(), "err", fmt.Sprint(p))
		}
	}()
	c.x.Finish(u)
}

func (c *conversation) release() {
	c.body = nil
	c.server.held.give(c.reserved)
	c.reserved = 0
}
