// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"encoding/json"
	"strings"
)

// chatRequest is a request of chat completions, as far as it has a meaning elsewhere.
type chatRequest struct {
	Messages            []chatMessage   `json:"messages"`
	MaxTokens           *int64          `json:"max_tokens"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	Temperature         json.RawMessage `json:"temperature"`
	TopP                json.RawMessage `json:"top_p"`
	Stop                json.RawMessage `json:"stop"`
	Stream              bool            `json:"stream"`
	N                   *int64          `json:"n"`
	Tools               []chatTool      `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Parallel            *bool           `json:"parallel_tool_calls"`
	User                string          `json:"user"`
	ResponseFormat      *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []chatToolCall  `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

type chatToolCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type chatPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// chatAnswer is an answer or a piece of one.
type chatAnswer struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Index        int         `json:"index"`
		Message      chatContent `json:"message"`
		Delta        chatContent `json:"delta"`
		FinishReason string      `json:"finish_reason"`
	} `json:"choices"`
	Usage *chatUsage      `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type chatContent struct {
	Content   string         `json:"content"`
	Refusal   string         `json:"refusal"`
	ToolCalls []chatToolCall `json:"tool_calls"`
}

type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// parts are the content of a message, which may be a text, a list or nothing.
func (m chatMessage) parts() ([]chatPart, error) {
	if isNull(m.Content) {
		return nil, nil
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return []chatPart{{Type: "text", Text: text}}, nil
	}
	var list []chatPart
	if err := json.Unmarshal(m.Content, &list); err != nil {
		return nil, wrong("the content of a message is neither a text nor a list of parts")
	}
	return list, nil
}

// text is the content of a message that cannot be anything else.
func (m chatMessage) text() (string, error) {
	parts, err := m.parts()
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return "", wrong("messages of the role %s can hold text only, not %s", m.Role, p.Type)
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), err
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// stops are one text or several.
func stops(raw json.RawMessage) ([]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var several []string
	if err := json.Unmarshal(raw, &several); err != nil {
		return nil, wrong("stop is neither a text nor a list of texts")
	}
	return several, nil
}
