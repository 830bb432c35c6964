// SPDX-License-Identifier: Apache-2.0

// Package translate puts requests of one inference API into the words of another and the answers back: OpenAI's chat
// completions and Anthropic's messages, each to and from the other, and what Azure and Vertex want different. Streams are
// translated event by event; nothing of them is kept but what the next event needs. It reads no header, asks nobody, and what
// it cannot say in the other API it refuses rather than drops.
package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/sse"
)

// Formats of providers besides those that clients speak.
const VertexMessages = "vertex-messages"

// Target is who a request is translated for.
type Target struct {
	// Kind is what the provider is (openai, anthropic, azure, aws-bedrock, vertex …); Format the API that it speaks.
	Kind, Format string
	// Model is the provider's name for the model.
	Model string
}

// Translation is how one request and its answer are put into other words. A nil function leaves things as they are.
type Translation struct {
	// Request is the body for the provider.
	Request func(body []byte) ([]byte, error)
	// Answer is a whole answer for the client; its status is not an error's.
	Answer func(body []byte) ([]byte, error)
	// Stream is a translator of the events of one answer.
	Stream func() Streamer
	// Error puts an error of the provider into the client's words.
	Error func(status int, body []byte) []byte
}

// Passes tells whether answers are left alone.
func (t *Translation) Passes() bool { return t.Answer == nil && t.Stream == nil && t.Error == nil }

// Streamer translates events one by one.
type Streamer interface {
	// Event is what the client is sent for an event of the provider; often nothing.
	Event(e sse.Event) ([]sse.Event, error)
	// End is what is still to be said when the provider's stream is over.
	End() []sse.Event
}

// For finds how a client that speaks an API is understood by a provider; nil and an error: not at all. Now is the clock
// that answers are stamped with.
func For(client enforcer.Format, to Target, now func() time.Time) (*Translation, error) {
	switch {
	case client == enforcer.ChatCompletions && to.Format == string(enforcer.Messages):
		return chatToMessages(to, now, nil), nil
	case client == enforcer.ChatCompletions && to.Format == VertexMessages:
		return chatToMessages(to, now, forVertex), nil
	case client == enforcer.Messages && to.Format == VertexMessages:
		return &Translation{Request: forVertex}, nil
	case client == enforcer.Messages && to.Format == string(enforcer.ChatCompletions):
		return messagesToChat(to), nil
	case string(client) == to.Format && (to.Kind == "azure" || to.Kind == "azure-openai"):
		return forAzure(), nil
	case string(client) == to.Format:
		return &Translation{}, nil
	}
	return nil, fmt.Errorf("the provider speaks %s, which requests of the API %s cannot be translated to", to.Format, orUnknown(client))
}

func orUnknown(f enforcer.Format) string {
	if f == enforcer.Unknown {
		return "of this path"
	}
	return string(f)
}

// object is JSON that is made.
type object = map[string]any

// encode writes JSON without the escapes that are for web pages only.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
}

// event makes one of what can be encoded.
func event(name string, v any) sse.Event {
	data, err := encode(v)
	if err != nil { // made of strings, numbers and JSON that was read
		data = []byte("{}")
	}
	return sse.Event{Name: name, Data: data}
}

// wrong is a request that cannot be translated; the client is told.
func wrong(format string, args ...any) error { return &Unsupported{fmt.Sprintf(format, args...)} }

// Unsupported is what the client asked for and the provider's API has no words for, or a request that is not one of its API.
type Unsupported struct{ Message string }

func (u *Unsupported) Error() string { return u.Message }

// forVertex takes the model out of a messages request, where it is in the path, and says the version there.
func forVertex(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, wrong("the body is not a JSON object")
	}
	delete(fields, "model")
	fields["anthropic_version"] = json.RawMessage(`"vertex-2023-10-16"`)
	return encode(fields)
}

// providerError finds the words of an error in whatever shape a provider has.
func providerError(status int, body []byte) (message, code string) {
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	_ = json.Unmarshal(body, &shape) // what could be read is taken
	var inner struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	if json.Unmarshal(shape.Error, &inner) == nil && inner.Message != "" {
		_ = json.Unmarshal(inner.Code, &code) // a code that is a number is left out
		return inner.Message, code
	}
	for _, raw := range []json.RawMessage{shape.Error, shape.Detail} {
		if json.Unmarshal(raw, &message) == nil && message != "" {
			return message, ""
		}
	}
	if shape.Message != "" {
		return shape.Message, ""
	}
	return fmt.Sprintf("the provider answered with status %d", status), ""
}
