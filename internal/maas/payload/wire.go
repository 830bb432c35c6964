// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"maps"
	"net/http"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	kinds "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// mode is how Envoy sends bodies.
type mode int

const (
	duplex    mode = iota // piece by piece, and takes any number of pieces back: what is meant where Envoy does not say
	buffered              // as a whole
	streaming             // piece by piece, and takes one back for each
	none                  // not at all
)

type modes struct{ request, response mode }

func (m *modes) learn(p *extproc.ProtocolConfiguration) {
	m.request, m.response = modeOf(p.GetRequestBodyMode()), modeOf(p.GetResponseBodyMode())
}

func modeOf(m filter.ProcessingMode_BodySendMode) mode {
	switch m {
	case filter.ProcessingMode_FULL_DUPLEX_STREAMED:
		return duplex
	case filter.ProcessingMode_BUFFERED, filter.ProcessingMode_BUFFERED_PARTIAL:
		return buffered
	case filter.ProcessingMode_STREAMED:
		return streaming
	}
	return none
}

// headersOf reads Envoy's headers; those of several values keep them all.
func headersOf(m *core.HeaderMap) http.Header {
	out := http.Header{}
	for _, h := range m.GetHeaders() {
		value := h.GetValue()
		if len(h.GetRawValue()) > 0 {
			value = string(h.GetRawValue())
		}
		out[h.GetKey()] = append(out[h.GetKey()], value)
	}
	return out
}

// mutation is what was changed.
func mutation(h *exchange.Headers) *extproc.HeaderMutation {
	if h == nil {
		return nil
	}
	set, removed := h.Changes()
	return &extproc.HeaderMutation{RemoveHeaders: removed, SetHeaders: options(set)}
}

func options(set map[string]string) []*core.HeaderValueOption {
	var out []*core.HeaderValueOption
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, option(name, set[name]))
	}
	return out
}

func option(name, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{
		Header:       &core.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func requestHeadersResponse(x *exchange.Exchange) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{
		Response: &extproc.CommonResponse{HeaderMutation: mutation(x.Headers), ClearRouteCache: x.Reroute},
	}}}
}

func requestBodyResponse(body *extproc.BodyMutation) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{
		Response: &extproc.CommonResponse{BodyMutation: body},
	}}}
}

func responseHeadersResponse(h *exchange.Headers) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extproc.HeadersResponse{
		Response: &extproc.CommonResponse{HeaderMutation: mutation(h)},
	}}}
}

func responseBodyResponse(body *extproc.BodyMutation) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: &extproc.BodyResponse{
		Response: &extproc.CommonResponse{BodyMutation: body},
	}}}
}

func streamed(body []byte, end bool) *extproc.BodyMutation {
	return &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
		StreamedResponse: &extproc.StreamedBodyResponse{Body: body, EndOfStream: end},
	}}
}

func replaced(body []byte) *extproc.BodyMutation {
	if len(body) == 0 {
		return cleared()
	}
	return &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: body}}
}

func cleared() *extproc.BodyMutation {
	return &extproc.BodyMutation{Mutation: &extproc.BodyMutation_ClearBody{ClearBody: true}}
}

// pieceLength keeps messages to Envoy short, so that it sends on what it has while it reads the rest.
const pieceLength = 64 << 10

type piece struct {
	bytes []byte
	last  bool
}

// pieces of a body; an empty one has one piece, which is its end.
func pieces(body []byte) []piece {
	var out []piece
	for len(body) > pieceLength {
		out = append(out, piece{bytes: body[:pieceLength]})
		body = body[pieceLength:]
	}
	return append(out, piece{body, true})
}

// immediate is an answer in place of the model's.
func immediate(r *exchange.Refusal, f enforcer.Format) *extproc.ProcessingResponse {
	body, contentType := r.Render(f)
	headers := append([]*core.HeaderValueOption{option("content-type", contentType)}, options(r.Headers)...)
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extproc.ImmediateResponse{
		Status:  &kinds.HttpStatus{Code: kinds.StatusCode(r.Status)}, //nolint:gosec // a status
		Headers: &extproc.HeaderMutation{SetHeaders: headers}, Body: body, Details: "payload_processing",
	}}}
}
