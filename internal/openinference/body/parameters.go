// SPDX-License-Identifier: Apache-2.0

package body

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/openinference"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// Parameters are what clients and servers tell each other besides tensors. A value is a bool, an int64, a uint64 that is
// no int64, a float64 or a string.
type Parameters map[string]any

// UnmarshalJSON refuses lists and objects, which the protocol does not have.
func (p *Parameters) UnmarshalJSON(text []byte) error {
	if err := counted(text, "a set of parameters"); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var raw map[string]any
	if err := decoder.Decode(&raw); err != nil {
		return err
	}
	out := Parameters{}
	for name, value := range raw {
		if len(name) > longestWord {
			return tooLarge("the name of a parameter is longer than %d bytes", longestWord)
		}
		switch v := value.(type) {
		case nil:
		case bool:
			out[name] = v
		case string:
			if len(v) > longestParameter {
				return tooLarge("parameter %q is longer than %d bytes", name, longestParameter)
			}
			out[name] = v
		case json.Number:
			n, err := number(v.String())
			if err != nil {
				return openinference.Invalidf("parameter %q is a number that is too large", name)
			}
			out[name] = n
		default:
			return openinference.Invalidf("parameter %q is a list or an object; parameters are texts, numbers and truth values", name)
		}
	}
	*p = out
	return nil
}

// number keeps whole numbers whole.
func number(text string) (any, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, nil
	}
	return strconv.ParseFloat(text, 64)
}

// flag is a parameter that is true or false, and whether it is there.
func (p Parameters) flag(name string) (value, there bool) {
	value, there = p[name].(bool)
	return value, there
}

// size is a whole number, and whether it is there.
func (p Parameters) size(name string) (int64, bool) {
	switch v := p[name].(type) {
	case int64:
		return v, true
	case nil:
		return 0, false
	}
	return -1, true // whatever it is, it is no size
}

// base64 tells whether elements of BYTES are written in base64.
func (p Parameters) base64() bool {
	kind, _ := p["content_type"].(string) // anything else says nothing
	return strings.EqualFold(kind, "base64") || strings.EqualFold(kind, "b64")
}

// without is the set without some names.
func (p Parameters) without(names ...string) Parameters {
	out := maps.Clone(p)
	for _, name := range names {
		delete(out, name)
	}
	return out
}

// append writes the set as JSON, in order of names.
func (p Parameters) append(to []byte) []byte {
	to = append(to, '{')
	for i, name := range slices.Sorted(maps.Keys(p)) {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(tensor.AppendString(to, name), ':')
		value, err := json.Marshal(p[name])
		if err != nil { // not-a-number and infinities, for which JSON has none
			value = []byte("null")
		}
		to = append(to, value...)
	}
	return append(to, '}')
}
