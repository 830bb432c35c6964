// SPDX-License-Identifier: Apache-2.0

// Package enforcer is the seam between the payload processor and whoever decides which requests may go on: keys, tokens,
// subscriptions, quotas. The processor asks before a request leaves the gateway and tells afterwards what the answer cost.
// Here are only the words in which they speak. Nothing of Envoy, of a store or of Kubernetes belongs here.
package enforcer

import (
	"context"
	"net/http"
)

// Enforcer decides about requests. It is called by many requests at the same time.
//
// Deny is what happens when it fails: a request whose Decide returns an error, panics, or has not returned when its context
// ends gets 503 in the shape of the client's API and goes nowhere. What the error says goes to the log and not to the
// client, so it must hold no key and no token. An answer that means "no" is no error but a Decision with a status.
type Enforcer interface {
	Decide(ctx context.Context, r Request) (Decision, error)
}

// Request is what is known before a request goes on. Its maps and slices are the enforcer's to read, not to change or keep.
type Request struct {
	// ID is the gateway's name for the request (x-request-id).
	ID string
	// Method, Host and Path are as the client sent them; the path has no query.
	Method, Host, Path string
	// Headers are the client's own, as they came, forged ones and credentials included; names are canonical.
	Headers http.Header
	// Model is whose use is asked for: "<namespace>/<name>" when the path begins with them, otherwise the name in the body
	// ("publishers/<namespace>/models/<name>" or an alias). Empty: the request names no model.
	Model string
	// Format is the API of the request by its path; Stream tells whether the answer is asked for piece by piece.
	Format Format
	Stream bool
	// BodyBytes is how long the request's body is.
	BodyBytes int
	// MaxTokens is how many tokens the request lets its answer have, all of its choices together; zero: it does not say.
	MaxTokens int64
}

// Format is an API for inference.
type Format string

// The APIs that are known by the end of a path. Unknown is every other one; its usage cannot be read.
const (
	Unknown         Format = ""
	ChatCompletions Format = "openai-chat"
	Completions     Format = "openai-completions"
	Embeddings      Format = "openai-embeddings"
	Messages        Format = "messages"
	Responses       Format = "openai-responses"
)

// Decision is what an enforcer answers. The zero Decision allows, changes nothing and wants no report.
type Decision struct {
	// Status is zero when the request may go on; otherwise the HTTP status of the refusal, such as 401, 403 or 429.
	Status int
	// NoModel tells that a request which may go on is for no model: nothing that it says may choose a route to one.
	NoModel bool
	// Headers are set on the request that goes on, or on the refusal (retry-after, x-ext-auth-reason).
	Headers map[string]string
	// Message is the refusal in words for the client. It is told in the shape of the client's API (an OpenAI or Anthropic
	// error object); Body, if not empty, goes out in its place as it is, with ContentType.
	Message     string
	Code        string // a word for programs, such as "insufficient_quota"; may be empty
	Body        []byte
	ContentType string
	// Report is called exactly once for each request that was allowed and has one: when its answer is over, when it failed,
	// when the client went away. It must not block for long and must not panic; it may outlive the request's context.
	Report func(Usage)
}

// Allowed tells whether the request may go on.
func (d Decision) Allowed() bool { return d.Status == 0 }

// Usage is what a request cost, as its answer says.
type Usage struct {
	// Prompt, Completion and Total are tokens. Total is the answer's own, or the sum of the others.
	Prompt, Completion, Total int64
	// Known tells whether the answer said anything of tokens. Of a stream that was cut the last figures count.
	Known bool
	// Delivered is about how many tokens have passed to the client, whatever the answer says of them: the events of a stream, or
	// a part of the bytes.
	Delivered int64
	// Status is the answer's HTTP status; zero: none came.
	Status int
	// Complete tells whether the answer came to its end.
	Complete bool
	// Provider is the external provider that answered; empty for models of the cluster. TargetModel is its name for the model.
	Provider, TargetModel string
}
