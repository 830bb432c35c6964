// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Headers remember what was changed of them.
type Headers struct {
	values  map[string]string // the first value of each
	set     map[string]string
	removed map[string]bool
}

// NewHeaders takes headers as they came; names may have any case.
func NewHeaders(from http.Header) *Headers {
	h := &Headers{values: make(map[string]string, len(from)), set: map[string]string{}, removed: map[string]bool{}}
	for name, values := range from {
		if len(values) > 0 {
			h.values[strings.ToLower(name)] = values[0]
		}
	}
	return h
}

// Get is the first value.
func (h *Headers) Get(name string) string { return h.values[strings.ToLower(name)] }

// Names that begin so.
func (h *Headers) Names(prefix string) []string {
	var out []string
	for name := range h.values {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Set replaces all values. Line breaks cannot be in a header and are taken out.
func (h *Headers) Set(name, value string) {
	name = strings.ToLower(name)
	value = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, value)
	delete(h.removed, name)
	h.values[name], h.set[name] = value, value
}

// Remove takes a header away; one that is not there is named all the same, as it may have come without a value.
func (h *Headers) Remove(name string) {
	name = strings.ToLower(name)
	delete(h.values, name)
	delete(h.set, name)
	h.removed[name] = true
}

// Changes are what was set and removed.
func (h *Headers) Changes() (set map[string]string, removed []string) {
	return h.set, slices.Sorted(maps.Keys(h.removed))
}
