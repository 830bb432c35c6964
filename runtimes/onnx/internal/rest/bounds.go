// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

// grower asks whether so many bytes more may be taken for a request.
type grower func(bytes int64) error

// What a request may have of things that take far more memory than their JSON.
const (
	mostItems   = 1024
	longestWord = 4 << 10
)

// part is a piece of the body as it is. It is not copied: the body outlives it, and nobody writes to it.
type part []byte

// UnmarshalJSON keeps the text.
func (p *part) UnmarshalJSON(text []byte) error {
	*p = text
	return nil
}

// word is a text that is no data.
type word string

// UnmarshalJSON refuses what is no name.
func (w *word) UnmarshalJSON(text []byte) error {
	if len(text) > longestWord {
		return &inference.Error{Kind: inference.TooLarge, Message: fmt.Sprintf("a name, id or datatype is longer than %d bytes", longestWord)}
	}
	return json.Unmarshal(text, (*string)(w))
}

// few is a short list, which is counted before anything is made of it: an empty object takes three bytes in JSON and a
// hundred in memory.
type few[T any] []T

// UnmarshalJSON refuses what is no short list.
func (f *few[T]) UnmarshalJSON(text []byte) error {
	count := 0
	err := items(text, func([]byte) error {
		if count++; count > mostItems {
			return &inference.Error{Kind: inference.TooLarge, Message: fmt.Sprintf("a list of inputs, outputs or dimensions has more than %d entries", mostItems)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return json.Unmarshal(text, (*[]T)(f))
}

// items calls for each entry of a list or member of an object, in the text of one that is known to be valid JSON. Other
// values have none.
func items(text []byte, do func(item []byte) error) error {
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

// answerSize is how much an answer takes at most, besides a little.
func answerSize(outputs []*tensor.Tensor) int64 {
	size := int64(4 << 10)
	for _, t := range outputs {
		size += t.TextSize() + int64(len(t.Data))
	}
	return size
}
