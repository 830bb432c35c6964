// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

// handler answers ModelInfer itself and leaves the other calls, which are small, to gRPC's own server. That one reads a
// message to its end before anybody is asked, so that a thousand streams would take a thousand times the largest; here
// the budget decides by the length that comes before the message.
type handler struct {
	*server
	others *grpc.Server
}

const (
	prefixSize   = 5        // a flag for compression and four bytes of length
	smallMessage = 64 << 10 // enough for every other call
	piece        = 256 << 10
	longestText  = 1 << 10 // of an error
)

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != pb.GRPCInferenceService_ModelInfer_FullMethodName || r.ProtoMajor < 2 {
		r.Body = http.MaxBytesReader(w, r.Body, smallMessage+prefixSize)
		h.others.ServeHTTP(w, r)
		return
	}
	if kind := r.Header.Get("Content-Type"); r.Method != http.MethodPost || !strings.HasPrefix(kind, "application/grpc") {
		http.Error(w, "this is a gRPC call", http.StatusUnsupportedMediaType)
		return
	}
	began := time.Now()
	w.Header().Set("Content-Type", "application/grpc")
	w.Header()["Trailer"] = []string{"Grpc-Status", "Grpc-Message"}
	share := h.service.Budget.Share()
	defer share.Release()
	code, text := codes.OK, ""
	if answer, err := h.call(r, share); err != nil {
		code, text = statuses[inference.KindOf(err)], err.Error()
		if code == codes.Internal {
			slog.ErrorContext(r.Context(), "request failed", "method", r.URL.Path, "error", err)
		}
	} else {
		write(w, answer, h.service.ClientTimeout)
	}
	h.service.Metrics.Answered("grpc", code.String(), time.Since(began))
	w.Header().Set("Grpc-Status", strconv.Itoa(int(code)))
	w.Header().Set("Grpc-Message", escape(text))
}

// call reads one message, answers it, and keeps a defect in one request from ending the process.
func (h *handler) call(r *http.Request, share *inference.Share) (answer []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(r.Context(), "request failed", "method", r.URL.Path, "error", p)
			answer, err = nil, &inference.Error{Kind: inference.Internal, Message: "the server failed on this request"}
		}
	}()
	ctx, cancel, err := deadline(r.Context(), r.Header.Get("Grpc-Timeout"))
	if err != nil {
		return nil, err
	}
	defer cancel()
	request, err := read(r.Body, share)
	if err != nil {
		return nil, err
	}
	response, err := h.infer(ctx, request, share)
	if err != nil {
		return nil, err
	}
	size := proto.Size(response)
	if err := share.Grow(int64(size)); err != nil {
		return nil, err
	}
	answer, err = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, prefixSize, prefixSize+size), response)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(answer[1:], uint32(len(answer)-prefixSize))
	return answer, nil
}

func read(body io.Reader, share *inference.Share) (*pb.ModelInferRequest, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(body, prefix[:]); err != nil {
		return nil, inference.Invalidf("the request ends before its message")
	}
	if prefix[0] != 0 {
		return nil, &inference.Error{Kind: inference.Unsupported, Message: "messages that are compressed are not supported; send them as they are"}
	}
	data, err := share.Read(body, int64(binary.BigEndian.Uint32(prefix[1:])))
	if err != nil {
		return nil, err
	}
	need, err := cost(data)
	if err != nil {
		return nil, err
	}
	if err := share.Grow(need); err != nil {
		return nil, err
	}
	request := &pb.ModelInferRequest{}
	if err := proto.Unmarshal(data, request); err != nil {
		return nil, inference.Invalidf("the message cannot be read: %v", err)
	}
	return request, nil
}

// write sends an answer in pieces, each of which the client must read in time.
func write(w http.ResponseWriter, answer []byte, timeout time.Duration) {
	control := http.NewResponseController(w)
	for chunk := range slices.Chunk(answer, piece) {
		_ = control.SetWriteDeadline(time.Now().Add(timeout)) // every connection of ours can
		if _, err := w.Write(chunk); err != nil {
			return // the client went away, or does not read
		}
	}
	_ = control.SetWriteDeadline(time.Now().Add(timeout)) // for what is still in buffers
}

// units of the time that a client gives.
var units = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// deadline reads up to eight digits and a unit.
func deadline(ctx context.Context, text string) (context.Context, context.CancelFunc, error) {
	if text == "" {
		return ctx, func() {}, nil
	}
	unit := units[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil || unit == 0 || len(text) > 9 {
		return nil, nil, inference.Invalidf("the header grpc-timeout is no time")
	}
	each := int64(unit)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(min(int64(n), 1<<62/each)*each))
	return ctx, cancel, nil
}

// escape writes a text as the header grpc-message wants it.
func escape(text string) string {
	if len(text) > longestText {
		text = strings.ToValidUTF8(text[:longestText], "") + "…"
	}
	text = strings.ToValidUTF8(text, "�")
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}
