// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// asked is a request as a backend sees it.
type asked struct {
	Host, Path string
	Header     http.Header
	Body       map[string]any
	Length     int64
}

func ask(r *http.Request) asked {
	a := asked{Host: r.Host, Path: r.URL.Path, Header: r.Header, Length: r.ContentLength}
	text, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(text, &a.Body)
	return a
}

// TestThroughEnvoy: a request goes through the real Envoy, is translated, signed in, and its answer translated back.
func TestThroughEnvoy(t *testing.T) {
	for _, mode := range []string{"FULL_DUPLEX_STREAMED", "BUFFERED"} {
		t.Run(mode, func(t *testing.T) {
			seen := make(chan asked, 10)
			external := backend(t, func(w http.ResponseWriter, r *http.Request) {
				seen <- ask(r)
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"id":"msg_1","model":"claude-target","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`)
			})
			own := backend(t, func(w http.ResponseWriter, r *http.Request) {
				seen <- ask(r)
				fmt.Fprint(w, `{"own":true}`)
			})
			url := gateway{stages: []processor{startProcessor(t, plainConfig(), nil)}, external: external, own: own, body: mode}.start(t)
			status, text := post(t, url+"/v1/chat/completions", `{"model":"claude","messages":[{"role":"user","content":"hi"}]}`,
				"Authorization", "Bearer of-the-client", "X-MaaS-Username", "me", "X-Ipp-Selected-Provider", "forged")
			if status != http.StatusOK {
				t.Fatalf("%d: %s", status, text)
			}
			var answer struct {
				Object  string
				Choices []struct {
					Message      struct{ Content string }
					FinishReason string `json:"finish_reason"`
				}
				Usage struct {
					Total int `json:"total_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Object != "chat.completion" || answer.Choices[0].Message.Content != "hello" || answer.Usage.Total != 5 {
				t.Errorf("%v: %s", err, text)
			}
			got := <-seen
			if got.Path != "/v1/messages" || got.Header.Get("X-Api-Key") != secretKey || got.Header.Get("Anthropic-Version") == "" ||
				got.Header.Get("Authorization") != "" || got.Header.Get("X-Maas-Username") != "" || got.Header.Get("X-Ipp-Selected-Provider") != "anthropic" ||
				got.Header.Get("X-Gateway-Model-Name") != "claude" || got.Body["model"] != "claude-target" || got.Length <= 0 && mode == "BUFFERED" {
				t.Errorf("the provider got %+v", got)
			}

			status, text = post(t, url+"/v1/chat/completions", `{"model":"publishers/team/models/llama","messages":[],"stream":true}`, "X-Gateway-Model-Name", "forged")
			got = <-seen
			if status != http.StatusOK || text != `{"own":true}` || got.Body["model"] != "llama" || got.Header.Get("X-Gateway-Model-Name") != "publishers/team/models/llama" ||
				fmt.Sprint(got.Body["stream_options"]) != "map[include_usage:true]" {
				t.Errorf("%d %s, the backend got %+v", status, text, got)
			}

			status, text = post(t, url+"/v1/chat/completions", `{"model":"llama",`)
			if status != http.StatusBadRequest || !strings.Contains(text, `"error"`) {
				t.Errorf("malformed JSON: %d %s", status, text)
			}
			status, text = post(t, url+"/v1/messages", `{"model":"llama","messages":"`+strings.Repeat("x", 1<<20)+`"}`)
			if status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "request_too_large") && mode != "BUFFERED" {
				t.Errorf("a long body: %d %.200s", status, text)
			}
		})
	}
}

// TestStreamThroughEnvoy: each event of a stream is at the client before the next is sent.
func TestStreamThroughEnvoy(t *testing.T) {
	for _, mode := range []string{"FULL_DUPLEX_STREAMED", "STREAMED"} {
		t.Run(mode, func(t *testing.T) {
			next := make(chan struct{})
			external := backend(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				for _, e := range []string{
					`{"type":"message_start","message":{"id":"m","model":"claude-target","usage":{"input_tokens":4,"output_tokens":1}}}`,
					`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one"}}`,
					`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"two"}}`,
					`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}`,
					`{"type":"message_stop"}`,
				} {
					fmt.Fprintf(w, "event: x\ndata: %s\n\n", e)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
				}
			})
			stage := startProcessor(t, plainConfig(), nil)
			g := gateway{stages: []processor{stage}, external: external, own: external, body: mode, requestBody: "FULL_DUPLEX_STREAMED"}
			response := send(t, g.start(t)+"/v1/chat/completions", `{"model":"claude","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
			defer func() { _ = response.Body.Close() }()
			lines := bufio.NewScanner(response.Body)
			for _, want := range []string{`"role":"assistant"`, `"content":"one"`, `"content":"two"`, `"finish_reason":"stop"`} {
				if data := nextData(lines); !strings.Contains(data, want) {
					t.Fatalf("got %q, want %s", data, want)
				}
				next <- struct{}{} // only now the backend goes on
			}
			for _, want := range []string{`"total_tokens":11`, "[DONE]"} {
				if data := nextData(lines); !strings.Contains(data, want) {
					t.Fatalf("got %q, want %s", data, want)
				}
			}
			next <- struct{}{}
		})
	}
}

// nextData is the data of the next event.
func nextData(lines *bufio.Scanner) string {
	for lines.Scan() {
		if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
			return data
		}
	}
	return fmt.Sprint("the stream has ended: ", lines.Err())
}
