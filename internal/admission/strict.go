// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
)

const (
	// maxBytes is what etcd stores in one request unless told otherwise.
	maxBytes = 3 << 19
	// maxDepth is far beyond any object of ours and far below what would make
	// a recursive reader run long.
	maxDepth = 256
)

// Strict decodes a JSON object into its Go type and refuses everything the type
// does not have: unknown fields, duplicates, values of another type. The error
// is of type Problems when it is about fields.
func Strict(raw []byte, into client.Object) error {
	found, err := inspect(raw, reflect.TypeOf(into))
	if err != nil {
		return err
	}
	if len(found.problems) > 0 {
		return found.problems
	}
	return found.decode(into)
}

// inspection is an object together with what is wrong with it.
type inspection struct {
	// clean is the object without the fields that have problems.
	clean    any
	problems Problems
}

// inspect compares a JSON document with a Go type. The error is about the
// document as a whole, when it cannot be read at all.
func inspect(raw []byte, t reflect.Type) (*inspection, error) {
	if err := readable(raw); err != nil {
		return nil, err
	}
	var value any
	duplicates, err := kjson.UnmarshalStrict(raw, &value)
	if err != nil {
		return nil, fmt.Errorf("the object is not valid JSON: %w", err)
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, fmt.Errorf("expected an object, found %s", article(value))
	}
	walker := &walker{}
	clean, _ := walker.value(nil, value, t)
	for _, duplicate := range duplicates {
		var at kjson.FieldError
		if errors.As(duplicate, &at) {
			walker.problems = append(walker.problems, Problem{
				Path: shorten(at.FieldPath()), Message: "duplicate field", Type: metav1.CauseTypeFieldValueDuplicate,
			})
		}
	}
	return &inspection{clean: clean, problems: walker.problems}, nil
}

// decode fills the typed object with what is left after the problems are taken out.
func (i *inspection) decode(into client.Object) error {
	raw, err := json.Marshal(i.clean)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// readable refuses what must not reach a parser.
func readable(raw []byte) error {
	if len(raw) > maxBytes {
		return fmt.Errorf("%sthe object has %d bytes, more than the %d that can be stored; move large content into a ConfigMap, a Secret or a volume",
			named(largestField(raw), "the largest field: "), len(raw), maxBytes)
	}
	if at := invalidUTF8(raw); at >= 0 {
		return fmt.Errorf("%snot valid UTF-8: byte %d (0x%02x) starts no character; save the file as UTF-8", named(fieldAt(raw, at), ""), at, raw[at])
	}
	if depth := nesting(raw); depth > maxDepth {
		return fmt.Errorf("the object is nested %d levels deep, more than the %d allowed", depth, maxDepth)
	}
	return nil
}

// named puts a field in front of a message, if it is known.
func named(path, what string) string {
	if path == "" {
		return ""
	}
	return path + ": " + what
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(raw []byte) int {
	if utf8.Valid(raw) {
		return -1
	}
	for at := 0; at < len(raw); {
		r, size := utf8.DecodeRune(raw[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// nesting returns how deep objects and lists are nested, without parsing them.
func nesting(raw []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
