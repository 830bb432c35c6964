// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// pause is how long a stream waits before its last word.
const pause = time.Second

// speaker is a language model that says what it was asked for and what it heard, in the APIs of OpenAI and of Anthropic. A token
// is a word.
type speaker struct{ key string }

// speak adds its ways in. With a PROVIDER_KEY it answers those who show it, as a provider does; without one nobody may show anything,
// as behind a gateway that keeps credentials to itself.
func speak(mux *http.ServeMux) {
	s := speaker{os.Getenv("PROVIDER_KEY")}
	mux.HandleFunc("POST /v1/chat/completions", s.answer(openAI{kind: "chat.completion", part: "message", piece: "delta"}))
	mux.HandleFunc("POST /v1/completions", s.answer(openAI{kind: "text_completion"}))
	mux.HandleFunc("POST /v1/messages", s.answer(anthropic{}))
}

// question is what is read of one, whichever API it belongs to.
type question struct {
	Model    string
	Stream   bool
	Prompt   json.RawMessage
	System   json.RawMessage
	Messages []struct{ Content json.RawMessage }
	Options  struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// reply in words, with what it cost.
type reply struct {
	model       string
	words       []string
	heard       int
	wantsToKnow bool // what it cost, in a stream
}

// dialect is how an API writes a reply.
type dialect interface {
	whole(r reply) any
	// events of a stream; the last that is a word waits before it comes.
	events(r reply) []sent
	// shown is how somebody shows a key.
	shown(key string) (header, value string)
}

type sent struct {
	name string
	data any
	word bool
}

func (s speaker) answer(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wrong := s.wrong(d, r.Header); wrong != "" {
			http.Error(w, wrong, http.StatusTeapot) // which no gateway says
			return
		}
		var q question
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err == nil {
			err = json.Unmarshal(body, &q)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		said := q.reply()
		if !q.Stream {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(d.whole(said)) // a client that has gone needs nothing
			return
		}
		stream(w, r, d.events(said))
	}
}

// wrong is what a request shows that it must not, or does not show that it must.
func (s speaker) wrong(d dialect, h http.Header) string {
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "x-maas-") {
			return "the model was told of the caller by " + name
		}
	}
	for _, other := range []dialect{openAI{}, anthropic{}} {
		header, _ := other.shown("")
		want := ""
		if own, value := d.shown(s.key); own == header && s.key != "" {
			want = value
		}
		if h.Get(header) != want {
			return "the wrong credentials are in " + header
		}
	}
	return ""
}

// reply says the last that was heard again.
func (q question) reply() reply {
	heard, last := len(text(q.System)), text(q.Prompt)
	for _, m := range q.Messages {
		last = text(m.Content)
		heard += len(last)
	}
	if len(q.Messages) == 0 {
		heard += len(last)
	}
	return reply{model: q.Model, words: append([]string{q.Model, "heard"}, last...), heard: heard, wantsToKnow: q.Options.Usage}
}

// text has the words of what is a text, or a list of parts that have one.
func text(raw json.RawMessage) []string {
	var whole string
	if json.Unmarshal(raw, &whole) == nil {
		return strings.Fields(whole)
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(raw, &parts) // something else has no words
	var out []string
	for _, p := range parts {
		out = append(out, strings.Fields(p.Text)...)
	}
	return out
}

// stream sends each event at once.
func stream(w http.ResponseWriter, r *http.Request, events []sent) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	words := 0
	for _, e := range events {
		if e.word {
			words++
		}
	}
	for _, e := range events {
		if e.word {
			words--
		}
		if e.word && words == 0 {
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
		}
		var out bytes.Buffer
		if e.name != "" {
			fmt.Fprintf(&out, "event: %s\n", e.name)
		}
		data, _ := e.data.(string)
		if data == "" {
			text, err := json.Marshal(e.data)
			if err != nil {
				return
			}
			data = string(text)
		}
		fmt.Fprintf(&out, "data: %s\n\n", data)
		if _, err := w.Write(out.Bytes()); err != nil {
			return
		}
		_ = flush.Flush() // whoever went away is seen above
	}
}

// object of JSON.
type object = map[string]any

// openAI is the dialect of chats, and without a part that of completions.
type openAI struct{ kind, part, piece string }

func (openAI) shown(key string) (header, value string) { return "Authorization", "Bearer " + key }

func (openAI) envelope(r reply, kind string, choices ...any) object {
	if choices == nil {
		choices = []any{}
	}
	return object{"id": "echo", "object": kind, "created": time.Now().Unix(), "model": r.model, "choices": choices}
}

func (openAI) usage(r reply) object {
	return object{"prompt_tokens": r.heard, "completion_tokens": len(r.words), "total_tokens": r.heard + len(r.words)}
}

func (openAI) choice(field, text string, end any) object {
	out := object{"index": 0, "finish_reason": end}
	if field == "" {
		out["text"] = text
		return out
	}
	out[field] = object{"role": "assistant", "content": text}
	return out
}

func (d openAI) whole(r reply) any {
	out := d.envelope(r, d.kind, d.choice(d.part, strings.Join(r.words, " "), "stop"))
	out["usage"] = d.usage(r)
	return out
}

func (d openAI) events(r reply) (out []sent) {
	kind := d.kind
	if d.part != "" {
		kind += ".chunk"
	}
	for i, word := range r.words {
		var end any
		if i == len(r.words)-1 {
			end = "stop"
		} else {
			word += " "
		}
		out = append(out, sent{data: d.envelope(r, kind, d.choice(d.piece, word, end)), word: true})
	}
	if r.wantsToKnow {
		last := d.envelope(r, kind)
		last["usage"] = d.usage(r)
		out = append(out, sent{data: last})
	}
	return append(out, sent{data: "[DONE]"})
}

// anthropic is the dialect of messages.
type anthropic struct{}

func (anthropic) shown(key string) (header, value string) { return "X-Api-Key", key }

func (anthropic) message(r reply, content []any, end any, spoken int) object {
	return object{
		"id": "echo", "type": "message", "role": "assistant", "model": r.model, "content": content, "stop_reason": end, "stop_sequence": nil,
		"usage": object{"input_tokens": r.heard, "output_tokens": spoken},
	}
}

func (a anthropic) whole(r reply) any {
	return a.message(r, []any{object{"type": "text", "text": strings.Join(r.words, " ")}}, "end_turn", len(r.words))
}

func (a anthropic) events(r reply) []sent {
	var out []sent
	add := func(kind string, word bool, fields object) {
		fields["type"] = kind
		out = append(out, sent{name: kind, data: fields, word: word})
	}
	add("message_start", false, object{"message": a.message(r, []any{}, nil, 1)})
	add("content_block_start", false, object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	for i, word := range r.words {
		if i < len(r.words)-1 {
			word += " "
		}
		add("content_block_delta", true, object{"index": 0, "delta": object{"type": "text_delta", "text": word}})
	}
	add("content_block_stop", false, object{"index": 0})
	add("message_delta", false, object{"delta": object{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": object{"output_tokens": len(r.words)}})
	add("message_stop", false, object{})
	return out
}
