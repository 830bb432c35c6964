// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/sse"
)

func then() time.Time { return time.Unix(1700000000, 0) }

// same compares JSON by what it means.
func same(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Errorf("%s: %v: %s", what, err, got)
		return
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%s: the test is wrong: %v", what, err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("%s (- is wanted):\n%s", what, diff)
	}
}

func find(t testing.TB, client enforcer.Format, format, kind string) *Translation {
	t.Helper()
	how, err := For(client, Target{Kind: kind, Format: format, Model: "target"}, then)
	if err != nil {
		t.Fatal(err)
	}
	return how
}

func TestRequests(t *testing.T) {
	for _, test := range []struct {
		name         string
		client       enforcer.Format
		format, kind string
		in, want     string
	}{
		{"the least", enforcer.ChatCompletions, "messages", "anthropic",
			`{"model":"m","messages":[{"role":"user","content":"<hi> & bye"}]}`,
			`{"model":"target","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"<hi> & bye"}]}]}`},
		{"everything", enforcer.ChatCompletions, "messages", "anthropic",
			`{"model":"m","max_tokens":5,"max_completion_tokens":7,"temperature":0.5,"top_p":1,"stop":"x","stream":true,"user":"u",
			"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},{"type":"function","function":{"name":"g"}}],
			"tool_choice":"required","parallel_tool_calls":false,
			"messages":[{"role":"system","content":"a"},{"role":"developer","content":[{"type":"text","text":"b"}]},
			{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"https://x.test/y"}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"2","type":"function","function":{"name":"g","arguments":""}}]},
			{"role":"tool","tool_call_id":"1","content":"one"},{"role":"tool","tool_call_id":"2","content":"two"},{"role":"user","content":"go on"}]}`,
			`{"model":"target","max_tokens":7,"temperature":0.5,"top_p":1,"stop_sequences":["x"],"stream":true,"metadata":{"user_id":"u"},"system":"a\n\nb",
			"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object","properties":{}}}],
			"tool_choice":{"type":"any","disable_parallel_tool_use":true},
			"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://x.test/y"}}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"a":1}},{"type":"tool_use","id":"2","name":"g","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"one"},{"type":"tool_result","tool_use_id":"2","content":"two"},{"type":"text","text":"go on"}]}]}`},
		{"a named tool", enforcer.ChatCompletions, "messages", "anthropic",
			`{"messages":[{"role":"user","content":"x"}],"stop":["a","b"],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
			`{"model":"target","max_tokens":4096,"stop_sequences":["a","b"],"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],
			"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"tool","name":"f"}}`},
		{"for vertex", enforcer.ChatCompletions, "vertex-messages", "vertex",
			`{"messages":[{"role":"user","content":"x"}]}`,
			`{"anthropic_version":"vertex-2023-10-16","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`},
		{"messages for vertex", enforcer.Messages, "vertex-messages", "vertex",
			`{"model":"m","max_tokens":1,"messages":[]}`, `{"anthropic_version":"vertex-2023-10-16","max_tokens":1,"messages":[]}`},
		{"messages to chat", enforcer.Messages, "openai-chat", "openai",
			`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"stop_sequences":["x"],"stream":true,"temperature":1,"metadata":{"user_id":"u"},
			"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},
			"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"f","input":{"a":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}]},{"type":"text","text":"and"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]}]}`,
			`{"model":"target","max_completion_tokens":9,"stop":["x"],"stream":true,"stream_options":{"include_usage":true},"temperature":1,"user":"u",
			"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,
			"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},
			{"role":"assistant","content":"a","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
			{"role":"tool","tool_call_id":"1","content":"r"},{"role":"user","content":[{"type":"text","text":"and"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`},
		{"another server", enforcer.Messages, "openai-chat", "vllm",
			`{"max_tokens":9,"messages":[{"role":"user","content":"hi"}],"tool_choice":{"type":"any"}}`,
			`{"model":"target","max_tokens":9,"tool_choice":"required","messages":[{"role":"user","content":"hi"}]}`},
	} {
		got, err := find(t, test.client, test.format, test.kind).Request([]byte(test.in))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		same(t, test.name, got, test.want)
	}
}

func TestUnsupported(t *testing.T) {
	for _, test := range []struct {
		client     enforcer.Format
		format, in string
		want       string
	}{
		{enforcer.ChatCompletions, "messages", `{"messages":[]}`, "must not be empty"},
		{enforcer.ChatCompletions, "messages", `{"messages":"x"}`, "field messages is a string"},
		{enforcer.ChatCompletions, "messages", `{"messages":[{"role":"system","content":"x"}]}`, "one of a user"},
		{enforcer.ChatCompletions, "messages", `{"n":2,"messages":[{"role":"user","content":"x"}]}`, "n must be 1"},
		{enforcer.ChatCompletions, "messages", `{"response_format":{"type":"json_schema"},"messages":[{"role":"user","content":"x"}]}`, "response_format"},
		{enforcer.ChatCompletions, "messages", `{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`, "input_audio"},
		{enforcer.ChatCompletions, "messages", `{"messages":[{"role":"clown","content":"x"}]}`, "clown"},
		{enforcer.ChatCompletions, "messages", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"["}}]}]}`, "not a JSON object"},
		{enforcer.Messages, "openai-chat", `{"messages":[]}`, "must not be empty"},
		{enforcer.Messages, "openai-chat", `{"messages":[{"role":"user","content":[{"type":"document"}]}]}`, "document"},
		{enforcer.Messages, "openai-chat", `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"computer_1","name":"c"}]}`, "computer_1"},
	} {
		_, err := find(t, test.client, test.format, "x").Request([]byte(test.in))
		if _, is := errors.AsType[*Unsupported](err); !is || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.in, err, test.want)
		}
	}
	for _, formats := range [][2]string{{"openai-embeddings", "messages"}, {"", "openai-chat"}, {"openai-responses", "openai-chat"}, {"openai-chat", "unknown"}} {
		if _, err := For(enforcer.Format(formats[0]), Target{Format: formats[1]}, then); err == nil {
			t.Errorf("%v is translated", formats)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		name         string
		client       enforcer.Format
		format, kind string
		in, want     string
	}{
		{"text", enforcer.ChatCompletions, "messages", "anthropic",
			`{"id":"i","model":"m","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"},{"type":"text","text":"b"}],"stop_reason":"max_tokens","usage":{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":10}}`,
			`{"id":"i","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ab"},"finish_reason":"length","logprobs":null}],"usage":{"prompt_tokens":13,"completion_tokens":2,"total_tokens":15}}`},
		{"tools", enforcer.ChatCompletions, "messages", "anthropic",
			`{"id":"i","model":"m","content":[{"type":"tool_use","id":"1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{}}`,
			`{"id":"i","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls","logprobs":null}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`},
		{"to a message", enforcer.Messages, "openai-chat", "openai",
			`{"id":"i","model":"m","choices":[{"message":{"content":"a","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`,
			`{"id":"i","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}`},
		{"azure", enforcer.ChatCompletions, "openai-chat", "azure",
			`{"id":"i","prompt_filter_results":[1],"choices":[{"index":0,"message":{"content":"a"},"content_filter_results":{"hate":{}}}]}`,
			`{"id":"i","choices":[{"index":0,"message":{"content":"a"}}]}`},
	} {
		got, err := find(t, test.client, test.format, test.kind).Answer([]byte(test.in))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		same(t, test.name, got, test.want)
	}
}

func TestErrors(t *testing.T) {
	chat, messages := find(t, enforcer.ChatCompletions, "messages", "anthropic"), find(t, enforcer.Messages, "openai-chat", "openai")
	same(t, "overloaded", chat.Error(529, []byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)),
		`{"error":{"message":"Overloaded","type":"server_error","param":null,"code":null}}`)
	same(t, "a page", chat.Error(502, []byte(`<html>`)), `{"error":{"message":"the provider answered with status 502","type":"server_error","param":null,"code":null}}`)
	same(t, "of OpenAI", messages.Error(429, []byte(`{"error":{"message":"slow down","type":"x","code":"rate"}}`)),
		`{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`)
	same(t, "a detail", messages.Error(400, []byte(`{"detail":"no"}`)), `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`)
}

// stream translates a stream and shows what comes out, event by event.
func stream(t *testing.T, how *Translation, in string) []string {
	t.Helper()
	var out []string
	s := how.Stream()
	add := func(events []sse.Event) {
		for _, e := range events {
			out = append(out, e.Name+" "+string(e.Data))
		}
	}
	splitter := sse.Splitter{}
	each := func(e sse.Event) error {
		events, err := s.Event(e)
		add(events)
		return err
	}
	if err := errors.Join(splitter.Feed([]byte(in), each), splitter.End(each)); err != nil {
		t.Error(err)
	}
	add(s.End())
	return out
}

func TestChatStream(t *testing.T) {
	how := find(t, enforcer.ChatCompletions, "messages", "anthropic")
	if _, err := how.Request([]byte(`{"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"x"}]}`)); err != nil {
		t.Fatal(err)
	}
	got := stream(t, how, strings.Join([]string{
		`event: message_start`, `data: {"type":"message_start","message":{"id":"i","model":"m","usage":{"input_tokens":5,"output_tokens":1}}}`, ``,
		`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, ``, `data: {"type":"ping"}`, ``,
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`, ``, `data: {"type":"content_block_stop","index":0}`, ``,
		`data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}`, ``,
		`data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`, ``,
		`data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`, ``, `data: {"type":"message_stop"}`, ``, ``,
	}, "\n"))
	var short []string
	for _, line := range got {
		line = strings.TrimPrefix(line, " ")
		if _, choice, is := strings.Cut(line, `"delta":`); is {
			line, _, _ = strings.Cut(choice, `,"logprobs"`)
		}
		short = append(short, line)
	}
	want := []string{
		`{"content":"","role":"assistant"},"finish_reason":null,"index":0`, `{"content":"hi"},"finish_reason":null,"index":0`,
		`{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null,"index":0`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]},"finish_reason":null,"index":0`,
		`{},"finish_reason":"tool_calls","index":0`,
		`{"choices":[],"created":1700000000,"id":"i","model":"m","object":"chat.completion.chunk","usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14}}`,
		`[DONE]`,
	}
	if diff := cmp.Diff(want, short); diff != "" {
		t.Error(diff)
	}
}

func TestMessageStream(t *testing.T) {
	got := stream(t, find(t, enforcer.Messages, "openai-chat", "openai"), strings.Join([]string{
		`data: {"id":"i","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, ``,
		`data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}`, ``,
		`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":""}}]}}]}`, ``,
		`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}`, ``,
		`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"u","function":{"name":"g","arguments":"{}"}}]}}]}`, ``,
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, ``,
		`data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14}}`, ``, `data: [DONE]`, ``, ``,
	}, "\n"))
	want := []string{
		`message_start {"message":{"content":[],"id":"i","model":"m","role":"assistant","stop_reason":null,"stop_sequence":null,"type":"message","usage":{"input_tokens":0,"output_tokens":0}},"type":"message_start"}`,
		`content_block_start {"content_block":{"text":"","type":"text"},"index":0,"type":"content_block_start"}`,
		`content_block_delta {"delta":{"text":"hi","type":"text_delta"},"index":0,"type":"content_block_delta"}`,
		`content_block_stop {"index":0,"type":"content_block_stop"}`,
		`content_block_start {"content_block":{"id":"t","input":{},"name":"f","type":"tool_use"},"index":1,"type":"content_block_start"}`,
		`content_block_delta {"delta":{"partial_json":"{}","type":"input_json_delta"},"index":1,"type":"content_block_delta"}`,
		`content_block_stop {"index":1,"type":"content_block_stop"}`,
		`content_block_start {"content_block":{"id":"u","input":{},"name":"g","type":"tool_use"},"index":2,"type":"content_block_start"}`,
		`content_block_delta {"delta":{"partial_json":"{}","type":"input_json_delta"},"index":2,"type":"content_block_delta"}`,
		`content_block_stop {"index":2,"type":"content_block_stop"}`,
		`message_delta {"delta":{"stop_reason":"tool_use","stop_sequence":null},"type":"message_delta","usage":{"input_tokens":5,"output_tokens":9}}`,
		`message_stop {"type":"message_stop"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCutStreams: half an answer does not look whole.
func TestCutStreams(t *testing.T) {
	for _, test := range []struct {
		how     *Translation
		in, bad string
	}{
		{find(t, enforcer.ChatCompletions, "messages", "x"), "data: {\"type\":\"message_start\"}\n\n", "[DONE]"},
		{find(t, enforcer.Messages, "openai-chat", "x"), "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "message_stop"},
		{find(t, enforcer.ChatCompletions, "messages", "x"), "data: {\"type\":\"error\",\"error\":{\"message\":\"overloaded\"}}\n\n", "[DONE]"},
		{find(t, enforcer.Messages, "openai-chat", "x"), "data: {\"error\":{\"message\":\"overloaded\"}}\n\n", "message_stop"},
	} {
		got := strings.Join(stream(t, test.how, test.in), "\n")
		if strings.Contains(got, test.bad) || strings.Count(got, `"error"`) < 1 {
			t.Errorf("%s became %s", test.in, got)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{"type":"function"}],"tool_choice":"auto"}`))
	f.Add([]byte(`{"system":"s","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{}}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, how := range []*Translation{find(t, enforcer.ChatCompletions, "messages", "x"), find(t, enforcer.ChatCompletions, "vertex-messages", "x"), find(t, enforcer.Messages, "openai-chat", "x"), find(t, enforcer.Messages, "vertex-messages", "x")} {
			if out, err := how.Request(body); err == nil && !json.Valid(out) {
				t.Fatalf("%q became %q", body, out)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use"},"choices":[{"delta":{"tool_calls":[{"index":1}]}}]}`))
	f.Add([]byte(`{"content":[{"type":"tool_use"}],"choices":[{"message":{"tool_calls":[{"function":{"arguments":"x"}}]}}],"error":{"message":"m"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, how := range []*Translation{find(t, enforcer.ChatCompletions, "messages", "x"), find(t, enforcer.Messages, "openai-chat", "x"), find(t, enforcer.ChatCompletions, "openai-chat", "azure")} {
			if out, err := how.Answer(body); err == nil && json.Valid(body) && !json.Valid(out) {
				t.Fatalf("%q became %q", body, out)
			}
			s := how.Stream()
			for range 3 {
				_, _ = s.Event(sse.Event{Data: body})
			}
			s.End()
			if how.Error != nil && !json.Valid(how.Error(500, body)) {
				t.Fatalf("the error of %q is no JSON", body)
			}
		}
	})
}
