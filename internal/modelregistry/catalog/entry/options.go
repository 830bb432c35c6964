// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"maps"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// Option is what a client may filter by: known values of a text, or the range of a number.
type Option struct {
	Type   string   `json:"type"`
	Values []string `json:"values,omitempty"`
	Range  *Range   `json:"range,omitempty"`
}

// Range of a number.
type Range struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// A text with more values than these, or longer ones, is no choice for a person.
const (
	maxOptions = 49
	maxOption  = 100
)

// seen gathers the values of one property.
type seen struct {
	texts map[string]bool
	// tooMany: it is no choice.
	tooMany bool
	numbers *Range
	// fraction: not all of the numbers are whole.
	fraction bool
	custom   bool
}

// Options of entries, by the names that filters have for them. Properties of parts have the prefix artifacts.
func Options(entries []*Entry) map[string]Option {
	own, parts := map[string]*seen{}, map[string]*seen{}
	for _, e := range entries {
		e.gather(own)
		for _, part := range e.Parts {
			part.gather(parts)
		}
	}
	out := map[string]Option{}
	for prefix, all := range map[string]map[string]*seen{"": own, "artifacts.": parts} {
		for name, s := range all {
			s.offer(prefix+name, out)
		}
	}
	return out
}

// notOffered are properties that say nothing to a person who chooses.
var notOffered = map[string]bool{"model_id": true, "last_synced": true}

func (e *Entry) gather(into map[string]*seen) {
	for _, v := range e.values {
		if !v.option || notOffered[v.offered] {
			continue
		}
		s := into[v.offered]
		if s == nil {
			s = &seen{texts: map[string]bool{}, custom: v.Custom}
			into[v.offered] = s
		}
		for _, value := range v.All {
			s.add(value)
		}
		s.fraction = s.fraction || len(v.All) == 1 && v.All[0].Type == filter.Double
	}
}

func (s *seen) add(value filter.Value) {
	if n, ok := value.Number(); ok {
		if s.numbers == nil {
			s.numbers = &Range{Min: n, Max: n}
		}
		s.numbers.Min, s.numbers.Max = min(s.numbers.Min, n), max(s.numbers.Max, n)
		return
	}
	if value.Type != filter.String || value.String == "" || s.tooMany {
		return
	}
	if len(value.String) > maxOption || s.custom && strings.HasPrefix(value.String, "[") {
		s.tooMany = true
		return
	}
	s.texts[value.String] = true
	s.tooMany = len(s.texts) > maxOptions
}

func (s *seen) offer(name string, out map[string]Option) {
	suffix := func(t filter.Type) string {
		if s.custom {
			return name + "." + string(t)
		}
		return name
	}
	if s.numbers != nil {
		t := filter.Int
		if s.fraction {
			t = filter.Double
		}
		out[suffix(t)] = Option{Type: "number", Range: s.numbers}
	}
	if len(s.texts) > 0 && !s.tooMany {
		out[suffix(filter.String)] = Option{Type: "string", Values: slices.Sorted(maps.Keys(s.texts))}
	}
}
