// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/modelplane/modelplane/internal/openinference/body"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
)

const events = "text/event-stream"

// wantsEvents tells whether a client takes an answer in pieces.
func wantsEvents(r *http.Request) bool {
	for _, value := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(value, ",") {
			if kind, _, err := mime.ParseMediaType(one); err == nil && kind == events {
				return true
			}
		}
	}
	return false
}

// answers gives one answer after the other, and io.EOF after the last.
type answers func() (*pb.ModelInferResponse, error)

// ask begins to ask. A runtime that answers only once does so here as well.
func (p *Proxy) ask(ctx context.Context, message *pb.ModelInferRequest) (answers, *pb.ModelInferResponse, error) {
	next, err := p.askStream(ctx, message)
	var first *pb.ModelInferResponse
	if err == nil {
		first, err = next()
	}
	if status.Code(err) != codes.Unimplemented {
		return next, first, err
	}
	first, err = p.mesh.ModelInfer(ctx, message)
	return func() (*pb.ModelInferResponse, error) { return nil, io.EOF }, first, err
}

func (p *Proxy) askStream(ctx context.Context, message *pb.ModelInferRequest) (answers, error) {
	stream, err := p.mesh.ModelStreamInfer(ctx)
	if err != nil {
		return nil, err
	}
	// An error of sending is io.EOF; the real one comes with the first answer.
	if err := stream.Send(message); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return func() (*pb.ModelInferResponse, error) {
		one, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if text := one.GetErrorMessage(); text != "" {
			return nil, status.Error(codes.Unknown, text)
		}
		return one.GetInferResponse(), nil
	}, nil
}

// stream writes each answer as an event. An error before the first is an ordinary one; later it is the last event. Only
// one answer is in memory at a time.
func (p *Proxy) stream(ctx context.Context, w http.ResponseWriter, message *pb.ModelInferRequest, encode func(*body.Response) []byte) {
	next, one, err := p.ask(ctx, message)
	if err != nil && !errors.Is(err, io.EOF) {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", events)
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	for ; err == nil; one, err = next() {
		if err = p.event(w, one, message.GetModelName(), encode); err != nil {
			break
		}
		if control.Flush() != nil {
			return // the client went away
		}
	}
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return
	}
	_, what := explain(err)
	if text, err := json.Marshal(what); err == nil {
		_ = p.write(w, eventOf(text)) // the client may be gone
	}
}

func (p *Proxy) event(w http.ResponseWriter, message *pb.ModelInferResponse, model string, encode func(*body.Response) []byte) error {
	share := p.budget.Share()
	defer share.Release()
	if err := share.Grow(2 * int64(proto.Size(message))); err != nil {
		return err
	}
	answer, err := fromMessage(message, model)
	if err != nil {
		return err
	}
	if err := share.Grow(answer.Size()); err != nil {
		return err
	}
	return p.write(w, eventOf(encode(answer)))
}

// eventOf frames JSON, which has no line breaks.
func eventOf(text []byte) []byte {
	return append(append([]byte("data: "), text...), "\n\n"...)
}
