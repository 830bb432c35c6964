// SPDX-License-Identifier: Apache-2.0

package body

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelplane/modelplane/internal/openinference"
)

// Grower asks whether so many bytes more may be taken for a request.
type Grower func(bytes int64) error

// What a request may have of things that take far more memory than their JSON.
const (
	mostItems        = 1024
	longestWord      = 4 << 10
	longestParameter = 64 << 10
)

// Part is a piece of a body as it is. It is not copied: the body outlives it, and nobody writes to it.
type Part []byte

// UnmarshalJSON keeps the text.
func (p *Part) UnmarshalJSON(text []byte) error {
	*p = text
	return nil
}

// word is a text that is no data.
type word string

// UnmarshalJSON refuses what is no name.
func (w *word) UnmarshalJSON(text []byte) error {
	if len(text) > longestWord {
		return tooLarge("a name, id or datatype is longer than %d bytes", longestWord)
	}
	return json.Unmarshal(text, (*string)(w))
}

// few is a short list, which is counted before anything is made of it: an empty object takes three bytes in JSON and a
// hundred in memory.
type few[T any] []T

// UnmarshalJSON refuses what is no short list.
func (f *few[T]) UnmarshalJSON(text []byte) error {
	if err := counted(text, "a list of inputs, outputs or dimensions"); err != nil {
		return err
	}
	return json.Unmarshal(text, (*[]T)(f))
}

func tooLarge(format string, args ...any) error {
	return &openinference.Error{Kind: openinference.TooLarge, Message: fmt.Sprintf(format, args...)}
}

// counted refuses a list or object that is not short.
func counted(text []byte, what string) error {
	count := 0
	return Items(text, func([]byte) error {
		if count++; count > mostItems {
			return tooLarge("%s has more than %d entries", what, mostItems)
		}
		return nil
	})
}

// Items calls for each entry of a list or member of an object, in the text of one that is known to be valid JSON. Other
// values have none.
func Items(text []byte, do func(item []byte) error) error {
	text = bytes.TrimSpace(text)
	if len(text) < 2 || text[0] != '[' && text[0] != '{' {
		return nil
	}
	text = text[1 : len(text)-1]
	depth, begin, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[', c == '{':
			depth++
		case c == ']', c == '}':
			depth--
		case c == ',' && depth == 0:
			if err := do(bytes.TrimSpace(text[begin:i])); err != nil {
				return err
			}
			begin = i + 1
		}
	}
	if last := bytes.TrimSpace(text[begin:]); len(last) > 0 {
		return do(last)
	}
	return nil
}
