// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"errors"

	"github.com/modelplane/modelplane/internal/maas/payload/sse"
)

// message is an answer of the messages API.
type message struct {
	ID         string       `json:"id"`
	Model      string       `json:"model"`
	Content    []block      `json:"content"`
	StopReason string       `json:"stop_reason"`
	Usage      messageUsage `json:"usage"`
}

type block struct {
	Type  string          `json:"type"`
	Text  string          `json:"text"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type messageUsage struct {
	Input        int64 `json:"input_tokens"`
	Output       int64 `json:"output_tokens"`
	CacheCreated int64 `json:"cache_creation_input_tokens"`
	CacheRead    int64 `json:"cache_read_input_tokens"`
}

func (u messageUsage) chat() chatUsage {
	prompt := u.Input + u.CacheCreated + u.CacheRead
	return chatUsage{Prompt: prompt, Completion: u.Output, Total: prompt + u.Output}
}

func finishReason(stop string) string {
	switch stop {
	case "max_tokens":
		return "length"
	case "tool_use":
		return "tool_calls"
	}
	return "stop"
}

// chatFromMessage is a whole answer.
func chatFromMessage(body []byte, created int64) ([]byte, error) {
	var in message
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, errors.New("the provider's answer is not one of the messages API")
	}
	said := object{"role": "assistant", "content": nil}
	var text string
	var calls []chatToolCall
	for _, b := range in.Content {
		switch b.Type {
		case "text":
			text += b.Text
			said["content"] = text
		case "tool_use":
			call := chatToolCall{ID: b.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = b.Name, string(b.Input)
			calls = append(calls, call)
		}
	}
	if len(calls) > 0 {
		said["tool_calls"] = calls
	}
	return encode(object{
		"id": in.ID, "object": "chat.completion", "created": created, "model": in.Model,
		"choices": []object{{"index": 0, "message": said, "finish_reason": finishReason(in.StopReason), "logprobs": nil}},
		"usage":   in.Usage.chat(),
	})
}

// chatStream makes chunks of chat completions of the events of a message.
type chatStream struct {
	created   int64
	usage     bool // the client wants it
	id, model string
	tokens    messageUsage
	tools     int         // how many calls were begun
	calls     map[int]int // the number of a call by that of its block
	ended     bool
}

// messageEvent is any event of a messages stream.
type messageEvent struct {
	Type    string  `json:"type"`
	Index   int     `json:"index"`
	Message message `json:"message"`
	Block   block   `json:"content_block"`
	Delta   struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *messageUsage   `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// most calls of tools in one answer.
const mostCalls = 1024

func (s *chatStream) Event(e sse.Event) ([]sse.Event, error) {
	var in messageEvent
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return nil, errors.New("an event of the provider is not one of the messages API")
	}
	switch in.Type {
	case "message_start":
		s.id, s.model, s.tokens = in.Message.ID, in.Message.Model, in.Message.Usage
		return s.chunk(object{"role": "assistant", "content": ""}, nil), nil
	case "content_block_start":
		return s.begin(in)
	case "content_block_delta":
		return s.delta(in), nil
	case "message_delta":
		if in.Usage != nil {
			s.tokens.Output = in.Usage.Output
			s.tokens.Input = max(s.tokens.Input, in.Usage.Input)
		}
		return s.chunk(object{}, finishReason(in.Delta.StopReason)), nil
	case "message_stop":
		return s.over(), nil
	case "error":
		s.ended = true
		message, _ := providerError(0, e.Data)
		return []sse.Event{event("", object{"error": object{"message": message, "type": "server_error", "param": nil, "code": nil}})}, nil
	}
	return nil, nil // ping, the end of a block, and what will be invented
}

func (s *chatStream) chunk(delta object, finish any) []sse.Event {
	return []sse.Event{event("", object{
		"id": s.id, "object": "chat.completion.chunk", "created": s.created, "model": s.model,
		"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": nil}},
	})}
}

// begin tells of a call of a tool.
func (s *chatStream) begin(in messageEvent) ([]sse.Event, error) {
	if in.Block.Type != "tool_use" {
		if in.Block.Text == "" {
			return nil, nil
		}
		return s.chunk(object{"content": in.Block.Text}, nil), nil
	}
	if s.tools >= mostCalls {
		return nil, errors.New("the provider's answer calls too many tools")
	}
	if s.calls == nil {
		s.calls = map[int]int{}
	}
	number := s.tools
	s.calls[in.Index] = number
	s.tools++
	call := chatToolCall{Index: &number, ID: in.Block.ID, Type: "function"}
	call.Function.Name = in.Block.Name
	return s.chunk(object{"tool_calls": []chatToolCall{call}}, nil), nil
}

func (s *chatStream) delta(in messageEvent) []sse.Event {
	switch in.Delta.Type {
	case "text_delta":
		return s.chunk(object{"content": in.Delta.Text}, nil)
	case "input_json_delta":
		number, has := s.calls[in.Index]
		if !has {
			return nil
		}
		call := chatToolCall{Index: &number}
		call.Function.Arguments = in.Delta.PartialJSON
		return s.chunk(object{"tool_calls": []chatToolCall{call}}, nil)
	}
	return nil
}

// End tells of a stream that was cut; of one that came to its end everything was said.
func (s *chatStream) End() []sse.Event {
	if s.ended {
		return nil
	}
	s.ended = true
	return []sse.Event{event("", object{"error": object{"message": cutOff, "type": "server_error", "param": nil, "code": nil}})}
}

// cutOff is said in place of an end that did not come, lest half an answer be taken for a whole one.
const cutOff = "the provider's stream ended before the answer was complete"

// over says what it cost, if that was asked for, and that it is over.
func (s *chatStream) over() []sse.Event {
	if s.ended {
		return nil
	}
	s.ended = true
	var out []sse.Event
	if s.usage {
		out = append(out, event("", object{
			"id": s.id, "object": "chat.completion.chunk", "created": s.created, "model": s.model,
			"choices": []object{}, "usage": s.tokens.chat(),
		}))
	}
	return append(out, sse.Event{Data: []byte("[DONE]")})
}
