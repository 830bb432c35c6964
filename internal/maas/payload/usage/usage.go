// SPDX-License-Identifier: Apache-2.0

// Package usage reads from an answer how many tokens it cost, while the answer passes by: JSON and server-sent events of
// chat completions, completions, embeddings, messages and responses. Wherever the pieces of the answer end, a figure is found,
// and whatever the answer's length, no more than one event or one usage object is kept. It changes nothing.
package usage

import (
	"bytes"
	"encoding/json"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/sse"
)

// What is kept at most: of a stream an event, of JSON a usage object.
const (
	mostEvent  = 4 << 20
	mostObject = 64 << 10
)

// Reader is fed with the pieces of one answer.
type Reader struct {
	events *sse.Splitter // nil: the answer is JSON
	object scanner
	lost   bool // an event was too long; what follows is not read
	bytes  int64
	parts  int64 // events that say something
	found  figures
}

// New reads events, or one JSON object.
func New(stream bool) *Reader {
	r := &Reader{}
	if stream {
		r.events = &sse.Splitter{Limit: mostEvent}
	}
	return r
}

// Feed takes the next piece.
func (r *Reader) Feed(piece []byte) {
	r.bytes += int64(len(piece))
	switch {
	case r.lost:
	case r.events != nil:
		r.lost = r.events.Feed(piece, r.event) != nil
	default:
		r.object.feed(piece)
	}
}

// End tells that nothing follows.
func (r *Reader) End() {
	if r.events != nil && !r.lost {
		r.lost = r.events.End(r.event) != nil
	}
}

func (r *Reader) event(e sse.Event) error {
	if len(e.Data) > 0 && !bytes.Equal(e.Data, []byte("[DONE]")) {
		r.parts++
	}
	if bytes.Contains(e.Data, []byte(`"usage"`)) {
		r.found.read(e.Data)
	}
	return nil
}

// Usage is what is known so far; of its fields only the tokens are set.
func (r *Reader) Usage() enforcer.Usage {
	if len(r.object.value) > 0 {
		r.found.take(r.object.value)
	}
	return r.found.usage()
}

// How many bytes there are for a token, about: in JSON, and in a stream, where most of them are not text.
const perToken, perEvent = 4, 512

// Delivered is about how many tokens have passed. Models send one with each event, and sometimes more.
func (r *Reader) Delivered() int64 {
	if r.events == nil {
		return Tokens(r.bytes)
	}
	return max(r.parts, r.bytes/perEvent)
}

// Tokens are those of so many bytes of text, about.
func Tokens(bytes int64) int64 { return (bytes + perToken - 1) / perToken }

// figures are the latest of each kind.
type figures struct{ prompt, completion, total, cached int64 }

type object struct {
	Prompt       *float64 `json:"prompt_tokens"`
	Completion   *float64 `json:"completion_tokens"`
	Total        *float64 `json:"total_tokens"`
	Input        *float64 `json:"input_tokens"`
	Output       *float64 `json:"output_tokens"`
	CacheCreated *float64 `json:"cache_creation_input_tokens"`
	CacheRead    *float64 `json:"cache_read_input_tokens"`
}

// read takes an event: usage is at the top, or in the message or response that an event tells of.
func (f *figures) read(data []byte) {
	var event struct {
		Usage   json.RawMessage `json:"usage"`
		Message struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"message"`
		Response struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"response"`
	}
	_ = json.Unmarshal(data, &event) // what could be read is taken
	for _, u := range []json.RawMessage{event.Message.Usage, event.Response.Usage, event.Usage} {
		f.take(u)
	}
}

// take lets later figures replace earlier ones: streams tell running totals.
func (f *figures) take(raw []byte) {
	var o object
	if len(raw) == 0 || json.Unmarshal(raw, &o) != nil {
		return
	}
	put(&f.prompt, o.Prompt, o.Input)
	put(&f.completion, o.Completion, o.Output)
	put(&f.total, o.Total)
	var cached float64
	for _, v := range []*float64{o.CacheCreated, o.CacheRead} {
		if v != nil && *v > 0 {
			cached += *v
		}
	}
	if cached > 0 {
		put(&f.cached, &cached)
	}
}

// reasonable is more than any answer costs; what is above is a mistake of the provider.
const reasonable = 1 << 40

func put(into *int64, from ...*float64) {
	for _, v := range from {
		if v != nil && *v >= 0 && *v <= reasonable && (*v > 0 || *into == 0) {
			*into = int64(*v)
		}
	}
}

// usage sums up. Cached tokens are those that providers do not count among the input.
func (f figures) usage() enforcer.Usage {
	u := enforcer.Usage{Prompt: f.prompt + f.cached, Completion: f.completion}
	u.Total = max(f.total, u.Prompt+u.Completion)
	u.Known = u.Total > 0
	return u
}

// scanner finds the value of the outermost field "usage" in JSON that comes in pieces.
type scanner struct {
	depth             int
	inString, escaped bool
	isValue           bool   // behind a colon at the outermost level
	key               []byte // the string at the outermost level, as far as it matters
	capturing         bool
	value             []byte
	broken            bool
}

const name = "usage"

func (s *scanner) feed(piece []byte) {
	for _, b := range piece {
		if s.broken {
			return
		}
		atEnd := s.depth == 1 && !s.inString && (b == ',' || b == '}')
		if s.capturing && !atEnd {
			if s.value = append(s.value, b); len(s.value) > mostObject {
				s.value, s.broken = nil, true
				return
			}
		}
		if s.inString {
			s.string(b)
			continue
		}
		s.structure(b)
	}
}

func (s *scanner) string(b byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case b == '\\':
		s.escaped = true
	case b == '"':
		s.inString = false
		return
	}
	if s.depth == 1 && !s.isValue && len(s.key) <= len(name) {
		s.key = append(s.key, b)
	}
}

func (s *scanner) structure(b byte) {
	switch b {
	case '"':
		s.inString = true
		if s.depth == 1 && !s.isValue {
			s.key = s.key[:0]
		}
	case '{', '[':
		s.depth++
	case '}', ']':
		s.depth--
		s.broken = s.depth < 0
		if s.depth == 0 {
			s.capturing, s.isValue = false, false
		}
	case ':':
		if s.depth == 1 {
			s.isValue = true
			if s.capturing = string(s.key) == name; s.capturing {
				s.value = s.value[:0]
			}
		}
	case ',':
		if s.depth == 1 {
			s.isValue, s.capturing = false, false
		}
	}
}
