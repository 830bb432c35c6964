// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
)

// read feeds an answer in pieces of some length.
func read(text string, stream bool, length int) enforcer.Usage {
	r := New(stream)
	for len(text) > 0 {
		n := min(length, len(text))
		r.Feed([]byte(text[:n]))
		text = text[n:]
	}
	r.End()
	return r.Usage()
}

// TestRead cuts every answer at every place.
func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, text                string
		stream                    bool
		prompt, completion, total int64
	}{
		{"chat", `{"id":"x","choices":[{"message":{"content":"\"usage\": {\"total_tokens\": 9}"}}],"usage":{"prompt_tokens":11,"completion_tokens":5,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":3}},"system_fingerprint":"}"}`, false, 11, 5, 16},
		{"embeddings", `{"data":[{"usage":{"prompt_tokens":99}},[1,2]],"usage" : {"prompt_tokens":7,"total_tokens":7} }`, false, 7, 0, 7},
		{"messages", `{"usage":{"input_tokens":4,"output_tokens":6,"cache_read_input_tokens":10},"content":[]}`, false, 14, 6, 20},
		{"responses", `{"output":[],"usage":{"input_tokens":4,"output_tokens":6,"total_tokens":10}}`, false, 4, 6, 10},
		{"nothing", `{"choices":[],"usage":null}`, false, 0, 0, 0},
		{"an error", `{"error":{"usage":{"total_tokens":3}}}`, false, 0, 0, 0},
		{"no JSON", "<html>\"usage\": {", false, 0, 0, 0},
		{"negative", `{"usage":{"prompt_tokens":-5,"completion_tokens":2}}`, false, 0, 2, 2},
		{"chat stream", "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\ndata: [DONE]\n\n", true, 3, 4, 7},
		{"running totals", "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}\r\n\r\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\r\n\r\n", true, 3, 2, 5},
		{"messages stream", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n", true, 25, 15, 40},
		{"responses stream", "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":2,\"output_tokens\":3,\"total_tokens\":5}}}", true, 2, 3, 5},
	} {
		want := enforcer.Usage{Prompt: test.prompt, Completion: test.completion, Total: test.total, Known: test.total > 0}
		for length := 1; length <= len(test.text); length++ {
			if got := read(test.text, test.stream, length); got != want {
				t.Errorf("%s in pieces of %d: %+v", test.name, length, got)
				break
			}
		}
	}
}

// TestBounded: a usage object without an end is not kept.
func TestBounded(t *testing.T) {
	r := New(false)
	r.Feed([]byte(`{"usage":{"x":"`))
	piece := []byte(strings.Repeat("x", 1<<20))
	for range 8 {
		r.Feed(piece)
	}
	if cap(r.object.value) > 4*mostObject || !r.object.broken {
		t.Errorf("%d bytes are kept", cap(r.object.value))
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"usage":{"prompt_tokens":1,"total_tokens":2}}`, 3)
	f.Add("data: {\"usage\":{\"input_tokens\":1e400}}\n\n", 2)
	f.Fuzz(func(t *testing.T, text string, length int) {
		if length < 1 {
			return
		}
		for _, stream := range []bool{false, true} {
			whole, pieces := read(text, stream, len(text)+1), read(text, stream, length)
			if whole != pieces || whole.Total < 0 || whole.Total < whole.Prompt {
				t.Fatalf("%+v in one piece, %+v in several", whole, pieces)
			}
		}
	})
}
