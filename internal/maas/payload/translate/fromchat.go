// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/modelplane/modelplane/internal/maas/payload/sse"
)

func stopReason(finish string) string {
	switch finish {
	case "length":
		return "max_tokens"
	case "tool_calls", "function_call":
		return "tool_use"
	case "content_filter":
		return "refusal"
	}
	return "end_turn"
}

func (u *chatUsage) message() object {
	if u == nil {
		return object{"input_tokens": 0, "output_tokens": 0}
	}
	return object{"input_tokens": u.Prompt, "output_tokens": u.Completion}
}

// messageFromChat is a whole answer.
func messageFromChat(body []byte) ([]byte, error) {
	var in chatAnswer
	if err := json.Unmarshal(body, &in); err != nil || len(in.Choices) == 0 {
		return nil, errors.New("the provider's answer is not one of the chat completions API")
	}
	content := []object{}
	said := in.Choices[0].Message
	if text := said.Content + said.Refusal; text != "" {
		content = append(content, object{"type": "text", "text": text})
	}
	for _, call := range said.ToolCalls {
		input := json.RawMessage(call.Function.Arguments)
		if len(bytes.TrimSpace(input)) == 0 {
			input = json.RawMessage("{}")
		}
		if !json.Valid(input) {
			return nil, errors.New("the provider's answer calls a tool with arguments that are no JSON")
		}
		content = append(content, object{"type": "tool_use", "id": call.ID, "name": call.Function.Name, "input": input})
	}
	return encode(object{
		"id": in.ID, "type": "message", "role": "assistant", "model": in.Model, "content": content,
		"stop_reason": stopReason(in.Choices[0].FinishReason), "stop_sequence": nil, "usage": in.Usage.message(),
	})
}

// messageStream makes events of a message of the chunks of chat completions. One block is open at a time.
type messageStream struct {
	begun  bool
	open   string // what block is open: "", "text" or "tool_use"
	call   int    // which call, if it is one
	index  int    // of the open block, or the next
	finish string
	usage  *chatUsage
	ended  bool
}

var done = []byte("[DONE]")

func (s *messageStream) Event(e sse.Event) ([]sse.Event, error) {
	if bytes.Equal(bytes.TrimSpace(e.Data), done) {
		return s.over(), nil
	}
	var in chatAnswer
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return nil, errors.New("an event of the provider is not one of the chat completions API")
	}
	if !isNull(in.Error) {
		message, _ := providerError(0, e.Data)
		s.ended = true
		return []sse.Event{event("error", object{"type": "error", "error": object{"type": "api_error", "message": message}})}, nil
	}
	out := s.begin(in)
	if in.Usage != nil {
		s.usage = in.Usage
	}
	for _, choice := range in.Choices {
		if choice.Index != 0 {
			continue
		}
		if text := choice.Delta.Content + choice.Delta.Refusal; text != "" {
			out = append(out, s.text(text)...)
		}
		for _, call := range choice.Delta.ToolCalls {
			out = append(out, s.tool(call)...)
		}
		if choice.FinishReason != "" {
			s.finish = choice.FinishReason
		}
	}
	return out, nil
}

func (s *messageStream) begin(in chatAnswer) []sse.Event {
	if s.begun {
		return nil
	}
	s.begun = true
	return []sse.Event{event("message_start", object{"type": "message_start", "message": object{
		"id": in.ID, "type": "message", "role": "assistant", "model": in.Model, "content": []object{},
		"stop_reason": nil, "stop_sequence": nil, "usage": in.Usage.message(),
	}})}
}

// turnTo opens a block and closes the one before.
func (s *messageStream) turnTo(kind string, content object) []sse.Event {
	out := s.closeBlock()
	s.open = kind
	return append(out, event("content_block_start", object{"type": "content_block_start", "index": s.index, "content_block": content}))
}

func (s *messageStream) closeBlock() []sse.Event {
	if s.open == "" {
		return nil
	}
	out := []sse.Event{event("content_block_stop", object{"type": "content_block_stop", "index": s.index})}
	s.open = ""
	s.index++
	return out
}

func (s *messageStream) delta(delta object) sse.Event {
	return event("content_block_delta", object{"type": "content_block_delta", "index": s.index, "delta": delta})
}

func (s *messageStream) text(text string) []sse.Event {
	var out []sse.Event
	if s.open != "text" {
		out = s.turnTo("text", object{"type": "text", "text": ""})
	}
	return append(out, s.delta(object{"type": "text_delta", "text": text}))
}

func (s *messageStream) tool(call chatToolCall) []sse.Event {
	number := 0
	if call.Index != nil {
		number = *call.Index
	}
	var out []sse.Event
	if s.open != "tool_use" || s.call != number {
		s.call = number
		out = s.turnTo("tool_use", object{"type": "tool_use", "id": call.ID, "name": call.Function.Name, "input": object{}})
	}
	if call.Function.Arguments != "" {
		out = append(out, s.delta(object{"type": "input_json_delta", "partial_json": call.Function.Arguments}))
	}
	return out
}

// over closes what is open and says why it ended and what it cost.
func (s *messageStream) over() []sse.Event {
	if s.ended || !s.begun {
		return nil
	}
	s.ended = true
	return append(s.closeBlock(),
		event("message_delta", object{
			"type": "message_delta", "delta": object{"stop_reason": stopReason(s.finish), "stop_sequence": nil}, "usage": s.usage.message(),
		}),
		event("message_stop", object{"type": "message_stop"}))
}

// End takes a stream that has said why it ends for a whole one; any other was cut.
func (s *messageStream) End() []sse.Event {
	if s.ended {
		return nil
	}
	if s.finish != "" {
		return s.over()
	}
	s.ended = true
	return []sse.Event{event("error", object{"type": "error", "error": object{"type": "api_error", "message": cutOff}})}
}
