// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
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

// explain turns an error into a status of HTTP and a body.
func explain(err error) (int, problem) {
	if own, ok := errors.AsType[*openinference.Error](err); ok {
		k := kinds[own.Kind]
		return k.http, problem{own.Message, int(k.grpc), own.Message}
	}
	if errors.Is(err, context.Canceled) {
		err = status.Error(codes.Canceled, "the client went away")
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
	if !ok {
		code = http.StatusInternalServerError
	}
	return code, problem{text, int(s.Code()), text}
}

// fail writes an error.
func fail(w http.ResponseWriter, err error) {
	code, what := explain(err)
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
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
