// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/openinference"
)

// clientGone is what others write for a request whose client went away.
const clientGone = 499

// statuses of HTTP for those of gRPC.
var statuses = map[codes.Code]int{
	codes.OK:                 http.StatusOK,
	codes.Canceled:           clientGone,
	codes.Unknown:            http.StatusInternalServerError,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Internal:           http.StatusInternalServerError,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DataLoss:           http.StatusInternalServerError,
	codes.Unauthenticated:    http.StatusUnauthorized,
}

// kinds of our own errors.
var kinds = map[openinference.Kind]struct {
	http int
	grpc codes.Code
}{
	openinference.Internal:    {http.StatusInternalServerError, codes.Internal},
	openinference.Invalid:     {http.StatusBadRequest, codes.InvalidArgument},
	openinference.NotFound:    {http.StatusNotFound, codes.NotFound},
	openinference.TooLarge:    {http.StatusRequestEntityTooLarge, codes.ResourceExhausted},
	openinference.Busy:        {http.StatusTooManyRequests, codes.ResourceExhausted},
	openinference.Unavailable: {http.StatusServiceUnavailable, codes.Unavailable},
	openinference.Late:        {http.StatusGatewayTimeout, codes.DeadlineExceeded},
	openinference.Cancelled:   {clientGone, codes.Canceled},
	openinference.Unsupported: {http.StatusNotImplemented, codes.Unimplemented},
}

// problem is the body of an answer that is an error: as the protocol has it, and as clients of the known proxy read it.
type problem struct {
	Error   string `json:"error"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// longestText bounds what is said of an error.
const longestText = 4 << 10

// unconnected is how gRPC begins when it has no connection.
const unconnected = "connection error: desc = "

// told is an error for which neither the request nor the mesh is at fault, as the mesh says beside it: the model cannot be
// loaded, or nobody may have it.
type told struct {
	error
	after int // seconds until the model is tried again; 0 when the mesh does not know
}

// Unwrap leads to the status.
func (t *told) Unwrap() error { return t.error }

// What the mesh says of an error, beside its status.
const (
	trailerReason = "mm-reason"
	trailerRetry  = "mm-retry-after"
)

// withReason looks at what came with an error.
func withReason(err error, trailer metadata.MD) error {
	if err == nil || len(trailer.Get(trailerReason)) == 0 {
		return err
	}
	out := &told{error: err}
	if after := trailer.Get(trailerRetry); len(after) > 0 {
		out.after, _ = strconv.Atoi(after[0]) // 0 is as good as nothing
	}
	return out
}

// withReasons has errors of all calls carry what the mesh says beside them.
func withReasons() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, question, answer any, to *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
			var trailer metadata.MD
			err := next(ctx, method, question, answer, to, append(options, grpc.Trailer(&trailer))...)
			return withReason(err, trailer)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, kind *grpc.StreamDesc, to *grpc.ClientConn, method string, next grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := next(ctx, kind, to, method, options...)
			if err != nil {
				return nil, err
			}
			return &reasoned{stream}, nil
		}),
	}
}

// reasoned is a stream whose errors carry what the mesh says beside them.
type reasoned struct{ grpc.ClientStream }

// RecvMsg is where errors of a stream are seen.
func (r *reasoned) RecvMsg(message any) error {
	err := r.ClientStream.RecvMsg(message)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return withReason(err, r.Trailer())
}

// explain turns an error into a status of HTTP and a body.
func explain(err error) (int, problem) {
	if own, ok := errors.AsType[*openinference.Error](err); ok {
		k := kinds[own.Kind]
		return k.http, problem{own.Message, int(k.grpc), own.Message}
	}
	if errors.Is(err, context.Canceled) {
		err = status.Error(codes.Canceled, "the client went away")
	}
	about, modelAtFault := errors.AsType[*told](err)
	if modelAtFault {
		err = about.error
	}
	s := status.Convert(err)
	text := s.Message()
	if cause, ok := strings.CutPrefix(text, unconnected); ok && s.Code() == codes.Unavailable {
		text = "the mesh in this pod cannot be reached, try again: " + strings.Trim(cause, `"`)
	}
	if text == "" {
		text = "the mesh answers with " + s.Code().String()
	}
	if len(text) > longestText {
		cut := longestText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	code, ok := statuses[s.Code()]
	switch {
	case modelAtFault:
		code = http.StatusServiceUnavailable
	case !ok:
		code = http.StatusInternalServerError
	}
	return code, problem{text, int(s.Code()), text}
}

// fail writes an error.
func fail(w http.ResponseWriter, err error) {
	code, what := explain(err)
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		after := 1
		if about, ok := errors.AsType[*told](err); ok && about.after > 0 {
			after = about.after
		}
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	reply(w, code, what)
}

func reply(w http.ResponseWriter, code int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // only plain structs and maps come here
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(code)
	_, _ = w.Write(text) // a client that went away hears nothing
}
