// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// locate names the field of a JSON document that pick chooses: it is shown the
// place of every value that is not an object or a list. The path is empty when
// the document cannot be read that far.
func locate(raw []byte, pick func(from, to int) bool) (found string) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	var open []place
	for {
		from := int(decoder.InputOffset())
		token, err := decoder.Token()
		if err != nil {
			return found
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		if n := len(open); n > 0 && open[n-1].wantsKey() {
			open[n-1].key, _ = token.(string)
			continue
		} else if n > 0 {
			open[n-1].next()
		}
		if delim, ok := token.(json.Delim); ok {
			open = append(open, place{list: delim == '[', index: -1})
			continue
		}
		if pick(from, int(decoder.InputOffset())) {
			found = pathOf(open)
		}
	}
}

// place is where a reader stands in one object or list.
type place struct {
	list  bool
	index int
	key   string
	keyed bool
}

// wantsKey is true for every other token of an object.
func (p *place) wantsKey() bool {
	if p.list {
		return false
	}
	p.keyed = !p.keyed
	return p.keyed
}

func (p *place) next() { p.index++ }

func pathOf(open []place) string {
	var path *field.Path
	for _, p := range open {
		switch {
		case p.list:
			path = path.Index(p.index)
		default:
			path = path.Child(p.key)
		}
	}
	return shorten(path.String())
}

// fieldAt names the field whose value holds the byte at an offset.
func fieldAt(raw []byte, offset int) string {
	return locate(raw, func(from, to int) bool { return from <= offset && offset < to })
}

// largestField names the field with the longest value.
func largestField(raw []byte) string {
	most := 0
	return locate(raw, func(from, to int) bool {
		larger := to-from > most
		most = max(most, to-from)
		return larger
	})
}
