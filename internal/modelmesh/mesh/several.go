// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// mostSeveral bounds how many models one call may name.
const mostSeveral = 256

// several is a call that names many models: each of them gets the message, and the client gets all answers behind each
// other, which is one message to every decoder of protobuf. Repeated fields then have the values of all models.
type several struct {
	mesh     *Mesh
	x        *exchange
	ids      []string
	vmodels  bool // ids are names that lead to models
	all      bool // every model must answer; otherwise one is enough
	balanced bool
}

// severalOf understands a call that names many models; nil when it names fewer.
func (m *Mesh) severalOf(x *exchange, header metadata.MD) (*several, error) {
	models, vmodels := idsOf(header)
	s := &several{mesh: m, x: x, ids: models, balanced: first(header, "mm-balanced") == "true"}
	if len(vmodels) > 0 {
		s.ids, s.vmodels = vmodels, true
	}
	switch {
	case len(models) > 0 && len(vmodels) > 0:
		return nil, status.Error(codes.InvalidArgument, errBothIDs.Error())
	case len(s.ids) < 2 || m.namedWithin(x.method):
		return nil, nil
	case len(s.ids) > mostSeveral:
		return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("the call names %d models; at most %d can be called at once", len(s.ids), mostSeveral))
	}
	switch required := first(header, "mm-required"); required {
	case "", "any":
	case "all":
		s.all = true
	default:
		return nil, status.Error(codes.InvalidArgument, "the header mm-required is "+required+"; it must be all or any")
	}
	return s, nil
}

// answer calls the models, a few at a time.
func (s *several) answer(ctx context.Context) error {
	request, err := s.only()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers, errs := make([]*gathered, len(s.ids)), make([]error, len(s.ids))
	defer func() {
		for _, one := range answers {
			one.free()
		}
	}()
	room := &budget{left: s.mesh.set.MaxMessage}
	turns := make(chan struct{}, s.mesh.set.MultiParallelism)
	var calls sync.WaitGroup
	for i, id := range s.ids {
		answers[i] = &gathered{ctx: ctx, request: request, room: room}
		turns <- struct{}{}
		calls.Go(func() {
			defer func() { <-turns }()
			if errs[i] = s.one(ctx, id, answers[i]); errs[i] != nil && s.all {
				cancel(errs[i]) // the others need not go on
			}
		})
	}
	calls.Wait()
	if s.all && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return s.send(answers, errs)
}

// only is the one message of the client.
func (s *several) only() (*frame, error) {
	request, err := s.x.first()
	if err != nil {
		return nil, err
	}
	if request == nil {
		return nil, status.Error(codes.InvalidArgument, "the call names several models and has no message for them")
	}
	if _, err := s.x.next(1); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, err
		}
		return nil, status.Error(codes.InvalidArgument, "the call names several models, which get one message; call each of them by itself to send more")
	}
	return request, nil
}

// one calls one model. What it answers is kept.
func (s *several) one(ctx context.Context, id string, into *gathered) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x := newExchange(into, s.x.method, s.x.header, s.x.ledger)
	defer x.close()
	c := &call{x: x, id: id, balanced: s.balanced}
	if s.vmodels {
		c.vmodel = id
		var err error
		if c.id, err = s.mesh.resolve(ctx, id); err != nil {
			return err
		}
	}
	return s.mesh.routeName(ctx, c)
}

// send hands over what there is. When nobody answered, the first error is the answer.
func (s *several) send(answers []*gathered, errs []error) error {
	var together mem.BufferSlice
	for i, err := range errs {
		if err == nil {
			together = append(together, answers[i].data...)
		}
	}
	failed := errors.Join(errs...)
	if first := firstOf(errs); first != nil && (s.all || len(errs) == countOf(errs)) {
		return first
	}
	if failed != nil {
		s.mesh.log.Debug("Some of several models did not answer", "method", s.x.method[1:], "err", failed.Error())
	}
	s.x.sent += together.Len()
	return s.x.in.SendMsg(&frame{together}) //nolint:wrapcheck // the client is gone, nobody reads it
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func countOf(errs []error) (n int) {
	for _, err := range errs {
		n += truth(err != nil)
	}
	return n
}

// names are for the log.
func (s *several) names() string { return strings.Join(s.ids, ",") }

// budget is how much all answers together may take.
type budget struct {
	mu   sync.Mutex
	left int
}

func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left -= n
	return b.left >= 0
}

// gathered stands in for a client: it asks one question and keeps the answer.
type gathered struct {
	ctx     context.Context //nolint:containedctx // that is what a stream of gRPC has
	request *frame
	room    *budget

	asked bool
	data  mem.BufferSlice
}

var _ grpc.ServerStream = (*gathered)(nil)

// Context is for gRPC.
func (g *gathered) Context() context.Context { return g.ctx }

// SetHeader leaves out what one of many models says beside its answer.
func (g *gathered) SetHeader(metadata.MD) error { return nil }

// SendHeader does the same.
func (g *gathered) SendHeader(metadata.MD) error { return nil }

// SetTrailer does the same.
func (g *gathered) SetTrailer(metadata.MD) {}

// RecvMsg is the question, once.
func (g *gathered) RecvMsg(message any) error {
	into, ok := message.(*frame)
	if !ok || g.asked {
		return io.EOF
	}
	g.asked = true
	g.request.data.Ref()
	into.data = g.request.data
	return nil
}

// SendMsg keeps the answer.
func (g *gathered) SendMsg(message any) error {
	from, ok := message.(*frame)
	if !ok {
		return status.Error(codes.Internal, "a model answered with what is no message")
	}
	if !g.room.take(from.data.Len()) {
		return status.Error(codes.ResourceExhausted, "the answers of the models are together larger than a message may be; call fewer of them at once")
	}
	from.data.Ref()
	g.data = append(g.data, from.data...)
	return nil
}

func (g *gathered) free() {
	if g != nil && g.data != nil {
		g.data.Free()
		g.data = nil
	}
}
