// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// messagesToChat is for clients of messages and providers of chat completions.
func messagesToChat(to Target) *Translation {
	return &Translation{
		Request: func(body []byte) ([]byte, error) {
			var in messagesRequest
			if err := json.Unmarshal(body, &in); err != nil {
				return nil, wrong("the body is not a request of the messages API: %s", jsonMistake(err))
			}
			out, err := in.chat(to)
			if err != nil {
				return nil, err
			}
			return encode(out)
		},
		Answer: messageFromChat,
		Stream: func() Streamer { return &messageStream{} },
		Error: func(status int, body []byte) []byte {
			message, code := providerError(status, body)
			return exchange.ErrorBody(enforcer.Messages, status, message, code)
		},
	}
}

// messagesRequest is a request of the messages API.
type messagesRequest struct {
	System        json.RawMessage `json:"system"`
	Messages      []sentMessage   `json:"messages"`
	MaxTokens     *int64          `json:"max_tokens"`
	Temperature   json.RawMessage `json:"temperature"`
	TopP          json.RawMessage `json:"top_p"`
	StopSequences []string        `json:"stop_sequences"`
	Stream        bool            `json:"stream"`
	Metadata      struct {
		UserID string `json:"user_id"`
	} `json:"metadata"`
	Tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	ToolChoice *struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Disable bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
}

type sentMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// sentBlock is a part of a message that a client sends.
type sentBlock struct {
	block
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Source    struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
	} `json:"source"`
}

// sentBlocks are a text or a list.
func sentBlocks(raw json.RawMessage) ([]sentBlock, error) {
	if isNull(raw) {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []sentBlock{{block: block{Type: "text", Text: text}}}, nil
	}
	var list []sentBlock
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, wrong("content is neither a text nor a list of blocks")
	}
	return list, nil
}

// onlyText joins blocks that must be text.
func onlyText(raw json.RawMessage, where string) (string, error) {
	blocks, err := sentBlocks(raw)
	var texts []string
	for _, b := range blocks {
		if b.Type != "text" {
			return "", wrong("%s can hold text only, not %.40s", where, b.Type)
		}
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n"), err
}

func (in messagesRequest) chat(to Target) (object, error) {
	if len(in.Messages) == 0 {
		return nil, wrong("messages must not be empty")
	}
	var turns []object
	system, err := onlyText(in.System, "system")
	if err != nil {
		return nil, err
	}
	if system != "" {
		turns = append(turns, object{"role": "system", "content": system})
	}
	for _, m := range in.Messages {
		more, err := m.chat()
		if err != nil {
			return nil, err
		}
		turns = append(turns, more...)
	}
	out := object{"model": to.Model, "messages": turns}
	if in.MaxTokens != nil {
		name := "max_tokens"
		if to.Kind == "openai" || to.Kind == "azure" { // their newer models refuse the older name
			name = "max_completion_tokens"
		}
		out[name] = *in.MaxTokens
	}
	for name, raw := range map[string]json.RawMessage{"temperature": in.Temperature, "top_p": in.TopP} {
		if !isNull(raw) {
			out[name] = raw
		}
	}
	if len(in.StopSequences) > 0 {
		out["stop"] = in.StopSequences
	}
	if in.Metadata.UserID != "" {
		out["user"] = in.Metadata.UserID
	}
	if in.Stream {
		out["stream"], out["stream_options"] = true, object{"include_usage": true}
	}
	return out, in.addTools(out)
}

// chat is a message in the other API, where results of tools are messages of their own.
func (m sentMessage) chat() ([]object, error) {
	blocks, err := sentBlocks(m.Content)
	if err != nil {
		return nil, err
	}
	switch m.Role {
	case "user":
		return fromUser(blocks)
	case "assistant":
		return fromAssistant(blocks)
	case "system":
		text, err := onlyText(m.Content, "a system message")
		return []object{{"role": "system", "content": text}}, err
	}
	return nil, wrong("role %.40q of a message is unknown", m.Role)
}

func fromUser(blocks []sentBlock) ([]object, error) {
	var results, parts []object
	for _, b := range blocks {
		switch b.Type {
		case "text":
			parts = append(parts, object{"type": "text", "text": b.Text})
		case "image":
			url := b.Source.URL
			if b.Source.Type == "base64" {
				url = "data:" + b.Source.MediaType + ";base64," + b.Source.Data
			}
			parts = append(parts, object{"type": "image_url", "image_url": object{"url": url}})
		case "tool_result":
			text, err := onlyText(b.Content, "the result of a tool")
			if err != nil {
				return nil, err
			}
			results = append(results, object{"role": "tool", "tool_call_id": b.ToolUseID, "content": text})
		default:
			return nil, wrong("blocks of the type %.40q are not supported by this model's provider", b.Type)
		}
	}
	switch {
	case len(parts) == 0:
	case len(parts) == 1 && parts[0]["type"] == "text":
		results = append(results, object{"role": "user", "content": parts[0]["text"]})
	default:
		results = append(results, object{"role": "user", "content": parts})
	}
	return results, nil
}

func fromAssistant(blocks []sentBlock) ([]object, error) {
	said := object{"role": "assistant", "content": nil}
	var text string
	var calls []chatToolCall
	for _, b := range blocks {
		switch b.Type {
		case "text":
			text += b.Text
			said["content"] = text
		case "tool_use":
			call := chatToolCall{ID: b.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = b.Name, "{}"
			if !isNull(b.Input) {
				call.Function.Arguments = string(b.Input)
			}
			calls = append(calls, call)
		case "thinking", "redacted_thinking": // the other API has no word for it, and it is no part of the answer
		default:
			return nil, wrong("blocks of the type %.40q are not supported by this model's provider", b.Type)
		}
	}
	if len(calls) > 0 {
		said["tool_calls"] = calls
	}
	return []object{said}, nil
}

func (in messagesRequest) addTools(out object) error {
	var tools []object
	for _, t := range in.Tools {
		if t.Type != "" && t.Type != "custom" {
			return wrong("tools of the type %.40q are not supported by this model's provider", t.Type)
		}
		function := object{"name": t.Name}
		if t.Description != "" {
			function["description"] = t.Description
		}
		if !isNull(t.InputSchema) {
			function["parameters"] = t.InputSchema
		}
		tools = append(tools, object{"type": "function", "function": function})
	}
	if len(tools) > 0 {
		out["tools"] = tools
	}
	if in.ToolChoice == nil {
		return nil
	}
	switch in.ToolChoice.Type {
	case "auto", "none":
		out["tool_choice"] = in.ToolChoice.Type
	case "any":
		out["tool_choice"] = "required"
	case "tool":
		out["tool_choice"] = object{"type": "function", "function": object{"name": in.ToolChoice.Name}}
	default:
		return wrong("tool_choice %.40q is unknown", in.ToolChoice.Type)
	}
	if in.ToolChoice.Disable {
		out["parallel_tool_calls"] = false
	}
	return nil
}
