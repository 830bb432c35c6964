// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/maas/payload"
)

// dial opens a stream as Envoy does.
func dial(t *testing.T, p processor) extproc.ExternalProcessor_ProcessClient {
	t.Helper()
	connection, err := grpc.NewClient(net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})), //nolint:gosec // nobody vouches for it
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	stream, err := extproc.NewExternalProcessorClient(connection).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func headers(pairs ...string) *extproc.HttpHeaders {
	out := &extproc.HttpHeaders{Headers: &core.HeaderMap{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		out.Headers.Headers = append(out.Headers.Headers, &core.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return out
}

func chatHeaders() *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: headers(":path", "/v1/chat/completions", ":method", "POST")}}
}

func bodyPiece(text string, end bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte(text), EndOfStream: end}}}
}

func transmit(t *testing.T, s extproc.ExternalProcessor_ProcessClient, messages ...*extproc.ProcessingRequest) {
	t.Helper()
	for _, m := range messages {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, s extproc.ExternalProcessor_ProcessClient) *extproc.ProcessingResponse {
	t.Helper()
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTrailers: a body that trailers end is sent on before them.
func TestTrailers(t *testing.T) {
	s := dial(t, startProcessor(t, plainConfig(), nil))
	transmit(t, s, chatHeaders(), bodyPiece(`{"model":`, false), bodyPiece(`"llama"}`, false),
		&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}}})
	if receive(t, s).GetRequestHeaders() == nil {
		t.Error("the headers did not go on")
	}
	if body := receive(t, s).GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(body.GetBody()) != `{"model":"llama"}` || body.GetEndOfStream() {
		t.Errorf("the body is %v", body)
	}
	if receive(t, s).GetRequestTrailers() == nil {
		t.Error("the trailers did not go on")
	}
}

// TestStreamedRequest: where headers have left before the body is seen, nothing goes on that had to be changed.
func TestStreamedRequest(t *testing.T) {
	s := dial(t, startProcessor(t, plainConfig(), nil))
	first := chatHeaders()
	first.ProtocolConfig = &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_STREAMED}
	transmit(t, s, first)
	if receive(t, s).GetRequestHeaders() == nil {
		t.Error("the headers did not go on")
	}
	transmit(t, s, bodyPiece(`{"model":`, false))
	if !receive(t, s).GetRequestBody().GetResponse().GetBodyMutation().GetClearBody() {
		t.Error("half a body went on")
	}
	transmit(t, s, bodyPiece(`"llama"}`, true))
	if refusal := receive(t, s).GetImmediateResponse(); refusal.GetStatus().GetCode() != 500 || !strings.Contains(string(refusal.GetBody()), "FULL_DUPLEX_STREAMED") {
		t.Errorf("got %v", refusal)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on: %v", err)
	}
}

// TestSlowSender: a request whose body does not come is refused in the client's words, and not one whose answer takes long.
func TestSlowSender(t *testing.T) {
	p := startProcessor(t, plainConfig(), func(o *payload.Options) { o.Bounds.Patience = 300 * time.Millisecond })
	patient := dial(t, p)
	transmit(t, patient, chatHeaders(), bodyPiece(`{"model":"llama"}`, true))
	for range 2 {
		if m := receive(t, patient); m.GetImmediateResponse() != nil {
			t.Fatalf("a request that came in time got %v", m)
		}
	}
	s := dial(t, p)
	transmit(t, s, chatHeaders(), bodyPiece(`{"model":`, false))
	if r := receive(t, s).GetImmediateResponse(); r.GetStatus().GetCode() != 408 || !strings.Contains(string(r.GetBody()), `{"error":{`) {
		t.Errorf("got %v", r)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on: %v", err)
	}
	transmit(t, patient, &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(":status", "200")}})
	if receive(t, patient).GetResponseHeaders() == nil {
		t.Error("a slow answer was cut off")
	}
}

// TestPromisedLength: what clients say of the length of their bodies takes no memory.
func TestPromisedLength(t *testing.T) {
	p := startProcessor(t, plainConfig(), nil)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const clients = 60
	for range clients {
		s := dial(t, p)
		transmit(t, s, &extproc.ProcessingRequest{
			ProtocolConfig: &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_STREAMED},
			Request:        &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: headers(":path", "/v1/chat/completions", ":method", "POST", "content-length", "1000000")},
		}, bodyPiece(`{`, false))
		receive(t, s)
		receive(t, s) // the piece has been taken
	}
	if after := heap(); after > before+clients*1_000_000/2 {
		t.Errorf("%d MB are held for %d clients that sent one byte each", (after-before)>>20, clients)
	}
}

// TestOddMessages: whatever order messages come in, the processor answers or ends the stream, and goes on to the next one.
func TestOddMessages(t *testing.T) {
	p := startProcessor(t, plainConfig(), nil)
	for _, messages := range [][]*extproc.ProcessingRequest{
		{{}},
		{bodyPiece("x", true)},
		{{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: &extproc.HttpBody{Body: []byte("x"), EndOfStream: true}}}},
		{{Request: &extproc.ProcessingRequest_ResponseTrailers{}}},
		{{Request: &extproc.ProcessingRequest_RequestTrailers{}}},
		{chatHeaders(), bodyPiece(strings.Repeat("[", 100_000), true)},
		{chatHeaders(), bodyPiece(`{"model":"claude","messages":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+`}`, true)},
		{{Request: &extproc.ProcessingRequest_RequestHeaders{}}, bodyPiece("", true)},
	} {
		s := dial(t, p)
		transmit(t, s, messages...)
		if m := receive(t, s); m.GetResponse() == nil {
			t.Errorf("%v got %v", messages, m)
		}
		_ = s.CloseSend()
	}
	if strings.Contains(p.log.String(), "mistake") {
		t.Error(p.log.String())
	}
}

// TestNoGoodEndBeforeTheDecision: a stream that ends before its request was decided about ends with an error. A good end would have
// Envoy send the request on as it came, with nobody's leave.
func TestNoGoodEndBeforeTheDecision(t *testing.T) {
	p := startProcessor(t, plainConfig(), nil)
	duplex := &extproc.ProcessingRequest{
		ProtocolConfig: &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED},
		Request:        &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: headers(":path", "/v1/chat/completions", ":method", "POST")},
	}
	for name, messages := range map[string][]*extproc.ProcessingRequest{
		"nothing": nil, "headers": {duplex}, "a part of the body": {duplex, bodyPiece(`{"model":`, false)},
	} {
		s := dial(t, p)
		transmit(t, s, messages...)
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if m, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("after %s: %v, %v", name, m, err)
		}
	}
}
