// SPDX-License-Identifier: Apache-2.0

// Package exchange is one request and its answer on their way through the plugins: headers and body with what was changed of
// them, what plugins tell each other, and refusals in the shape of the client's API. It knows neither Envoy nor any plugin.
package exchange

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/payload/directory"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/jsonbody"
)

// Headers by which parts of the gateway tell each other where a request goes.
const (
	ModelHeader    = "x-gateway-model-name"
	ProviderHeader = "x-ipp-selected-provider"
	RequestID      = "x-request-id"
)

// Exchange is one request and its answer. One goroutine has it at a time.
type Exchange struct {
	// Client are the headers as they came, never changed.
	Client http.Header
	// Headers are those of the request that goes on, by lower-case names; :path, :authority and :method are among them.
	Headers *Headers
	// Body is the request's, if it is a JSON object; otherwise nil, and Raw is what came.
	Body *jsonbody.Document
	Raw  []byte
	// Path is the client's, without the query; Format the API it belongs to.
	Path   string
	Format enforcer.Format

	// Provider is who is asked, once that is known; nil: the model is the cluster's own.
	Provider *directory.Provider
	// Report tells the enforcer what the answer cost; nil: nobody wants to know.
	Report func(enforcer.Usage)
	// NoModel tells that the request was let through as one that is for no model, and must reach none.
	NoModel bool
	// Reroute tells that headers were changed by which routes are chosen.
	Reroute bool

	// Status and Answer are those of the answer, once it has begun.
	Status int
	Answer *Headers

	// translator is what api-translation found for the request, kept for the answer.
	Translator any
}

// New begins an exchange.
func New(headers http.Header) *Exchange {
	path, _, _ := strings.Cut(headers.Get(":path"), "?")
	client := http.Header{}
	for name, values := range headers {
		client[http.CanonicalHeaderKey(name)] = values
	}
	return &Exchange{Client: client, Headers: NewHeaders(headers), Path: path, Format: FormatOf(path)}
}

// FormatOf is the API that a path belongs to.
func FormatOf(path string) enforcer.Format {
	path = strings.TrimSuffix(path, "/")
	for _, known := range []struct {
		suffix string
		format enforcer.Format
	}{
		{"/chat/completions", enforcer.ChatCompletions},
		{"/completions", enforcer.Completions},
		{"/embeddings", enforcer.Embeddings},
		{"/v1/messages", enforcer.Messages},
		{"/v1/responses", enforcer.Responses},
	} {
		if strings.HasSuffix(path, known.suffix) {
			return known.format
		}
	}
	return enforcer.Unknown
}

// Model is whose use is asked for: "<namespace>/<name>" when the path begins with them, otherwise what the body says.
func (x *Exchange) Model() string {
	if x.NoModel {
		return ""
	}
	if own := PathModel(x.Path); own != "" {
		return own
	}
	if x.Body != nil {
		return x.Body.String("model")
	}
	return ""
}

// PathModel is "<namespace>/<name>" of a path that begins with them.
func PathModel(path string) string {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if len(parts) < 2 || parts[0] == "v1" || parts[0] == "maas-api" {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// Lead has a header by which routes to models are chosen say one thing; empty takes it off.
func (x *Exchange) Lead(header, value string) {
	came := len(x.Client.Values(header)) // several values are not one, though the first may be right
	if before := x.Headers.Get(header); value == before && came <= 1 && (value != "" || came == 0) {
		return
	}
	if value == "" {
		x.Headers.Remove(header)
	} else {
		x.Headers.Set(header, value)
	}
	x.Reroute = true
}

// Stream tells whether the client asked for the answer piece by piece.
func (x *Exchange) Stream() bool { return x.Body != nil && x.Body.True("stream") }

// bounds of what an answer may have, by the names of the APIs, and of how many answers are wanted.
var (
	boundNames  = []string{"max_tokens", "max_completion_tokens", "max_output_tokens"}
	choiceNames = []string{"n", "best_of"}
)

// What is more than anybody means.
const mostTokens, mostChoices = 1 << 32, 1 << 10

// MaxTokens is how many tokens the client lets all choices of the answer have together; zero: it does not say.
func (x *Exchange) MaxTokens() int64 {
	if x.Body == nil {
		return 0
	}
	largest := func(names []string) (out int64) {
		for _, name := range names {
			var n float64
			if raw := x.Body.Raw(name); len(raw) > 0 && json.Unmarshal(raw, &n) == nil && n >= 1 {
				out = max(out, int64(min(n, mostTokens)))
			}
		}
		return out
	}
	return min(largest(boundNames)*min(max(largest(choiceNames), 1), mostChoices), mostTokens)
}

// Finish reports once.
func (x *Exchange) Finish(u enforcer.Usage) {
	report := x.Report
	x.Report = nil
	if report == nil {
		return
	}
	if x.Provider != nil {
		u.Provider, u.TargetModel = x.Provider.Name, x.Provider.TargetModel
	}
	u.Status = x.Status
	report(u)
}

// RequestPlugin looks at requests before they go on. An error that is a *Refusal is what the client is told; any other one
// ends the request with 500.
type RequestPlugin interface {
	Request(ctx context.Context, x *Exchange) error
}

// ResponsePlugin looks at answers. It may change their headers at once; nil for a Filter: the body is left alone.
type ResponsePlugin interface {
	Response(x *Exchange) (Filter, error)
}

// Filter changes the body of an answer as it passes. What it returns is its own until the next call.
type Filter interface {
	Feed(piece []byte) ([]byte, error)
	End() ([]byte, error)
}
