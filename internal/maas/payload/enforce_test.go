// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/maas/payload"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
)

// decide is an enforcer that is a function.
type decide func(context.Context, enforcer.Request) (enforcer.Decision, error)

func (d decide) Decide(ctx context.Context, r enforcer.Request) (enforcer.Decision, error) {
	return d(ctx, r)
}

// TestEnforcement: what the enforcer says happens, what it does not say is denied, and it is told what answers cost.
func TestEnforcement(t *testing.T) {
	reports := make(chan enforcer.Usage, 10)
	asked := make(chan enforcer.Request, 10)
	judge := func(ctx context.Context, r enforcer.Request) (enforcer.Decision, error) {
		asked <- r
		switch r.Headers.Get("Authorization") {
		case "Bearer good":
			return enforcer.Decision{Headers: map[string]string{"X-Checked": "yes"}, Report: func(u enforcer.Usage) { reports <- u }}, nil
		case "Bearer poor":
			return enforcer.Decision{Status: 429, Message: "the quota is used up", Code: "insufficient_quota", Headers: map[string]string{"retry-after": "7"}}, nil
		case "Bearer broken":
			return enforcer.Decision{}, errors.New("the store is away")
		case "Bearer slow":
			<-ctx.Done()
			return enforcer.Decision{}, nil
		case "Bearer panic":
			panic("a mistake")
		}
		return enforcer.Decision{Status: 401, Message: "Authentication required", Body: []byte("who?"), ContentType: "text/plain"}, nil
	}
	passed := make(chan http.Header, 10)
	own := backend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		passed <- r.Header
		switch {
		case strings.HasSuffix(r.URL.Path, "/messages"):
			w.Header().Set("Content-Type", "text/event-stream")
			for _, part := range []string{
				"event: message_start\ndata: {\"message\":{\"usage\":{\"input_to", "kens\":25,\"output_tokens\":1}}}\n\n",
				"event: message_delta\ndata: {\"usage\":{\"output_tokens\":1", "5}}\n\n",
			} {
				fmt.Fprint(w, part)
				_ = http.NewResponseController(w).Flush()
			}
		default:
			fmt.Fprint(w, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`)
		}
	})
	stage := startProcessor(t, enforcedConfig(), func(o *payload.Options) {
		o.World.Enforcer, o.World.DecideTimeout = decide(judge), 200*time.Millisecond
	})
	url := gateway{stages: []processor{stage}, external: own, own: own, body: "FULL_DUPLEX_STREAMED"}.start(t)
	for _, test := range []struct {
		key, path string
		status    int
		text      string
		usage     *enforcer.Usage
	}{
		{"good", "/v1/chat/completions", 200, "total_tokens", &enforcer.Usage{Prompt: 3, Completion: 4, Total: 7, Known: true, Delivered: 21, Status: 200, Complete: true}},
		{"good", "/v1/messages", 200, "message_delta", &enforcer.Usage{Prompt: 25, Completion: 15, Total: 40, Known: true, Delivered: 2, Status: 200, Complete: true}},
		{"poor", "/v1/chat/completions", 429, `"code":"insufficient_quota"`, nil},
		{"poor", "/v1/messages", 429, `"type":"rate_limit_error"`, nil},
		{"broken", "/v1/chat/completions", 503, "try again", nil},
		{"slow", "/v1/chat/completions", 503, "try again", nil},
		{"panic", "/v1/messages", 503, `"type":"error"`, nil},
		{"", "/v1/chat/completions", 401, "who?", nil},
	} {
		status, text := post(t, url+test.path, `{"model":"llama","stream":true}`, "Authorization", "Bearer "+test.key, "Accept-Encoding", "gzip")
		if status != test.status || !strings.Contains(text, test.text) {
			t.Errorf("%s %s: %d %s", test.key, test.path, status, text)
		}
		if got := <-asked; got.Model != "llama" || got.Path != test.path || !got.Stream || got.Method != http.MethodPost || got.ID == "" {
			t.Errorf("%s: asked %+v", test.key, got)
		}
		if test.usage == nil {
			if len(passed) > 0 {
				t.Errorf("%s: the request went on", test.key)
			}
			continue
		}
		if diff := cmp.Diff(*test.usage, <-reports); diff != "" {
			t.Errorf("%s %s: %s", test.key, test.path, diff)
		}
		if h := <-passed; h.Get("X-Checked") != "yes" || h.Get("Accept-Encoding") != "" {
			t.Errorf("%s: the backend got %v", test.key, h)
		}
	}
	if log := stage.log.String(); !strings.Contains(log, "the store is away") || strings.Contains(log, "Bearer") {
		t.Errorf("the log says %s", log)
	}
}

// TestReportOfLost: a client that goes away is paid for, once.
func TestReportOfLost(t *testing.T) {
	reports := make(chan enforcer.Usage, 10)
	own := backend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	stage := startProcessor(t, enforcedConfig(), func(o *payload.Options) {
		o.World.Enforcer = decide(func(context.Context, enforcer.Request) (enforcer.Decision, error) {
			return enforcer.Decision{Report: func(u enforcer.Usage) { reports <- u }}, nil
		})
	})
	url := gateway{stages: []processor{stage}, external: own, own: own, body: "FULL_DUPLEX_STREAMED"}.start(t)
	response := send(t, url+"/v1/chat/completions", `{"model":"llama","stream":true}`)
	if _, err := response.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	want := enforcer.Usage{Prompt: 3, Completion: 1, Total: 4, Known: true, Delivered: 1, Status: http.StatusOK}
	if diff := cmp.Diff(want, <-reports); diff != "" {
		t.Error(diff)
	}
	if len(reports) > 0 {
		t.Error("it was reported twice")
	}
}
