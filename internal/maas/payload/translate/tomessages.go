// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// defaultMaxTokens is said where the client says nothing: the messages API wants a bound.
const defaultMaxTokens = 4096

// chatToMessages is for clients of chat completions and providers of messages. Then, if there is one, has the last word
// about the request.
func chatToMessages(to Target, now func() time.Time, then func([]byte) ([]byte, error)) *Translation {
	var usage bool // whether the client wants a stream to end with its usage
	return &Translation{
		Request: func(body []byte) ([]byte, error) {
			var in chatRequest
			if err := json.Unmarshal(body, &in); err != nil {
				return nil, wrong("the body is not a request of the chat completions API: %s", jsonMistake(err))
			}
			usage = in.StreamOptions != nil && in.StreamOptions.IncludeUsage
			out, err := in.messages(to.Model)
			if err != nil {
				return nil, err
			}
			text, err := encode(out)
			if err != nil || then == nil {
				return text, err
			}
			return then(text)
		},
		Answer: func(body []byte) ([]byte, error) { return chatFromMessage(body, now().Unix()) },
		Stream: func() Streamer { return &chatStream{created: now().Unix(), usage: usage} },
		Error: func(status int, body []byte) []byte {
			message, code := providerError(status, body)
			return exchange.ErrorBody(enforcer.ChatCompletions, status, message, code)
		},
	}
}

// jsonMistake says what does not fit without quoting the request.
func jsonMistake(err error) string {
	if e, is := err.(*json.UnmarshalTypeError); is { //nolint:errorlint // returned as it is
		return "field " + e.Field + " is a " + e.Value
	}
	return "it cannot be read"
}

// messages is the request in the other API.
func (in chatRequest) messages(model string) (object, error) {
	switch {
	case in.N != nil && *in.N != 1:
		return nil, wrong("n must be 1: this model's provider gives one answer for a request")
	case in.ResponseFormat != nil && in.ResponseFormat.Type != "" && in.ResponseFormat.Type != "text":
		return nil, wrong("response_format %.40s is not supported by this model's provider; use a tool with a schema", in.ResponseFormat.Type)
	case len(in.Messages) == 0:
		return nil, wrong("messages must not be empty")
	}
	out := object{"model": model, "max_tokens": in.maxTokens()}
	system, turns, err := in.turns()
	if err != nil {
		return nil, err
	}
	if system != "" {
		out["system"] = system
	}
	out["messages"] = turns
	for name, raw := range map[string]json.RawMessage{"temperature": in.Temperature, "top_p": in.TopP} {
		if !isNull(raw) {
			out[name] = raw
		}
	}
	if in.Stream {
		out["stream"] = true
	}
	if in.User != "" {
		out["metadata"] = object{"user_id": in.User}
	}
	stop, err := stops(in.Stop)
	if err != nil {
		return nil, err
	}
	if len(stop) > 0 {
		out["stop_sequences"] = stop
	}
	return out, in.addTools(out)
}

func (in chatRequest) maxTokens() int64 {
	for _, n := range []*int64{in.MaxCompletionTokens, in.MaxTokens} {
		if n != nil {
			return *n
		}
	}
	return defaultMaxTokens
}

// turn is a message of the other API.
type turn struct {
	Role    string   `json:"role"`
	Content []object `json:"content"`
}

// turns are the messages; several in a row of one role become one, as the results of tools must be in one.
func (in chatRequest) turns() (system string, out []turn, err error) {
	var instructions []string
	for _, m := range in.Messages {
		role := m.Role
		var blocks []object
		switch role {
		case "system", "developer":
			var text string
			if text, err = m.text(); err == nil && text != "" {
				instructions = append(instructions, text)
			}
		case "user":
			blocks, err = m.blocks()
		case "assistant":
			blocks, err = m.assistant()
		case "tool", "function":
			role = "user"
			var text string
			text, err = m.text()
			blocks = []object{{"type": "tool_result", "tool_use_id": m.ToolCallID, "content": text}}
		default:
			err = wrong("role %.40q of a message is unknown", role)
		}
		if err != nil {
			return "", nil, err
		}
		if len(blocks) == 0 {
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].Role == role {
			out[last].Content = append(out[last].Content, blocks...)
			continue
		}
		out = append(out, turn{role, blocks})
	}
	if len(out) == 0 {
		return "", nil, wrong("messages must hold one of a user")
	}
	return strings.Join(instructions, "\n\n"), out, nil
}

// blocks are the parts of a user's message.
func (m chatMessage) blocks() ([]object, error) {
	parts, err := m.parts()
	if err != nil {
		return nil, err
	}
	var out []object
	for _, p := range parts {
		switch p.Type {
		case "text":
			if p.Text != "" {
				out = append(out, object{"type": "text", "text": p.Text})
			}
		case "image_url":
			out = append(out, object{"type": "image", "source": imageSource(p.ImageURL.URL)})
		default:
			return nil, wrong("parts of the type %.40q are not supported by this model's provider", p.Type)
		}
	}
	return out, nil
}

// imageSource is where an image is, or the image itself.
func imageSource(url string) object {
	if rest, is := strings.CutPrefix(url, "data:"); is {
		if kind, data, is := strings.Cut(rest, ";base64,"); is {
			return object{"type": "base64", "media_type": kind, "data": data}
		}
	}
	return object{"type": "url", "url": url}
}

// assistant is what the model said earlier, with the tools that it called.
func (m chatMessage) assistant() ([]object, error) {
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	var out []object
	if text != "" {
		out = append(out, object{"type": "text", "text": text})
	}
	for _, call := range m.ToolCalls {
		input := json.RawMessage(call.Function.Arguments)
		if strings.TrimSpace(call.Function.Arguments) == "" {
			input = json.RawMessage("{}")
		}
		var is map[string]json.RawMessage
		if json.Unmarshal(input, &is) != nil {
			return nil, wrong("the arguments of the call %.80s are not a JSON object", call.ID)
		}
		out = append(out, object{"type": "tool_use", "id": call.ID, "name": call.Function.Name, "input": input})
	}
	return out, nil
}

// addTools says which tools there are and which to use.
func (in chatRequest) addTools(out object) error {
	var tools []object
	for _, t := range in.Tools {
		if t.Type != "function" {
			return wrong("tools of the type %.40q are not supported by this model's provider", t.Type)
		}
		tool := object{"name": t.Function.Name, "input_schema": t.Function.Parameters}
		if isNull(t.Function.Parameters) {
			tool["input_schema"] = object{"type": "object", "properties": object{}}
		}
		if t.Function.Description != "" {
			tool["description"] = t.Function.Description
		}
		tools = append(tools, tool)
	}
	if len(tools) == 0 {
		return nil
	}
	out["tools"] = tools
	choice, err := in.toolChoice()
	if err != nil {
		return err
	}
	if in.Parallel != nil && !*in.Parallel && (choice == nil || choice["type"] != "none") {
		if choice == nil {
			choice = object{"type": "auto"}
		}
		choice["disable_parallel_tool_use"] = true
	}
	if choice != nil {
		out["tool_choice"] = choice
	}
	return nil
}

func (in chatRequest) toolChoice() (object, error) {
	if isNull(in.ToolChoice) {
		return nil, nil
	}
	var word string
	if json.Unmarshal(in.ToolChoice, &word) == nil {
		switch word {
		case "auto", "none":
			return object{"type": word}, nil
		case "required":
			return object{"type": "any"}, nil
		}
		return nil, wrong("tool_choice %.40q is unknown", word)
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(in.ToolChoice, &named) != nil || named.Function.Name == "" {
		return nil, wrong("tool_choice names no function")
	}
	return object{"type": "tool", "name": named.Function.Name}, nil
}
