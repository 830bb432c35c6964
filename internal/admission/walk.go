// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	jsonReader = reflect.TypeFor[json.Unmarshaler]()
	textReader = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// walker goes through a decoded document and a Go type side by side. Doing so,
// instead of reading the decoder's errors, gives every problem its full path and
// finds all of them at once.
type walker struct {
	problems Problems
	// lenient accepts unknown fields: set below status, which controllers write
	// (perhaps newer ones) and users cannot.
	lenient bool
}

func (w *walker) add(at *field.Path, kind metav1.CauseType, format string, args ...any) {
	w.problems = append(w.problems, Problem{Path: shorten(at.String()), Type: kind, Message: fmt.Sprintf(format, args...)})
}

// value checks one value and returns it without its problematic parts; false
// means that nothing of it is usable. Null is no value for any type, as it is
// for the decoder.
func (w *walker) value(at *field.Path, v any, t reflect.Type) (any, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v == nil || t.Kind() == reflect.Interface:
		return v, true
	case reflect.PointerTo(t).Implements(jsonReader):
		return v, w.opaque(at, v, t)
	case reflect.PointerTo(t).Implements(textReader):
		return v, w.text(at, v, t)
	}
	switch t.Kind() {
	case reflect.Struct:
		return w.structure(at, v, t)
	case reflect.Map:
		return w.mapping(at, v, t)
	case reflect.Slice, reflect.Array:
		return w.list(at, v, t)
	default:
		return v, w.scalar(at, v, t)
	}
}

func (w *walker) structure(at *field.Path, v any, t reflect.Type) (any, bool) {
	object, ok := v.(map[string]any)
	if !ok {
		return w.mismatch(at, v, "an object")
	}
	known := fieldsOf(t)
	clean := make(map[string]any, len(object))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		below := at.Child(name)
		f, ok := known[name]
		if !ok {
			if !w.lenient {
				w.unknown(below, name, known)
			}
			continue
		}
		if part, ok := w.under(at, name, below, object[name], f); ok {
			clean[name] = part
		}
	}
	return clean, true
}

// under checks a field of a structure. The status of the object itself may have
// fields that this version does not know.
func (w *walker) under(at *field.Path, name string, below *field.Path, v any, t reflect.Type) (any, bool) {
	if at == nil && name == "status" {
		w.lenient = true
		defer func() { w.lenient = false }()
	}
	return w.value(below, v, t)
}

func (w *walker) unknown(at *field.Path, name string, known map[string]reflect.Type) {
	message := "unknown field"
	if len(w.problems) < listed {
		if near := nearest(name, known); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
	}
	w.add(at, metav1.CauseTypeFieldValueNotSupported, "%s", message)
}

func (w *walker) mapping(at *field.Path, v any, t reflect.Type) (any, bool) {
	object, ok := v.(map[string]any)
	if !ok {
		return w.mismatch(at, v, "an object")
	}
	clean := make(map[string]any, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if part, ok := w.value(at.Key(key), object[key], t.Elem()); ok {
			clean[key] = part
		}
	}
	return clean, true
}

func (w *walker) list(at *field.Path, v any, t reflect.Type) (any, bool) {
	if text, ok := v.(string); ok && t.Elem().Kind() == reflect.Uint8 {
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			w.add(at, metav1.CauseTypeFieldValueInvalid, "must be base64: %v", err)
			return nil, false
		}
		return v, true
	}
	items, ok := v.([]any)
	if !ok {
		return w.mismatch(at, v, "a list")
	}
	clean := make([]any, 0, len(items))
	for i, item := range items {
		if part, ok := w.value(at.Index(i), item, t.Elem()); ok {
			clean = append(clean, part)
		}
	}
	return clean, true
}

// opaque lets a type read itself. Its message is kept, its path is ours.
func (w *walker) opaque(at *field.Path, v any, t reflect.Type) bool {
	raw, err := json.Marshal(v)
	if err == nil {
		err = reflect.New(t).Interface().(json.Unmarshaler).UnmarshalJSON(raw)
	}
	if err != nil {
		w.add(at, metav1.CauseTypeFieldValueInvalid, "invalid value %s: %v", shorten(string(raw)), err)
	}
	return err == nil
}

func (w *walker) text(at *field.Path, v any, t reflect.Type) bool {
	s, ok := v.(string)
	if !ok {
		_, ok = w.mismatch(at, v, "a string")
		return ok
	}
	if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
		w.add(at, metav1.CauseTypeFieldValueInvalid, "invalid value %s: %v", shorten(strconv.Quote(s)), err)
		return false
	}
	return true
}

func (w *walker) scalar(at *field.Path, v any, t reflect.Type) bool {
	var want string
	var ok bool
	switch t.Kind() {
	case reflect.String:
		var s string
		want = "a string"
		if s, ok = v.(string); ok && strings.ContainsRune(s, utf8.RuneError) {
			// The API server has put this sign where bytes were not UTF-8.
			w.add(at, metav1.CauseTypeFieldValueInvalid, "not valid UTF-8 (U+FFFD in %s); save the file as UTF-8", shorten(strconv.Quote(s)))
			return false
		}
	case reflect.Bool:
		want = "true or false"
		_, ok = v.(bool)
	case reflect.Float32, reflect.Float64:
		want = "a number"
		switch v.(type) {
		case int64, float64:
			ok = true
		}
	default:
		return w.integer(at, v, t)
	}
	if !ok {
		w.mismatch(at, v, want)
	}
	return ok
}

func (w *walker) integer(at *field.Path, v any, t reflect.Type) bool {
	n, ok := v.(int64)
	if !ok {
		if f, float := v.(float64); float && f == math.Trunc(f) && math.Abs(f) >= math.MaxInt64 {
			w.add(at, metav1.CauseTypeFieldValueInvalid, "%v is out of range", v)
			return false
		}
		w.mismatch(at, v, "an integer")
		return false
	}
	probe := reflect.New(t).Elem()
	if probe.CanInt() && probe.OverflowInt(n) || probe.CanUint() && (n < 0 || probe.OverflowUint(uint64(n))) {
		w.add(at, metav1.CauseTypeFieldValueInvalid, "%d is out of range for a %d-bit integer", n, t.Bits())
		return false
	}
	return true
}

func (w *walker) mismatch(at *field.Path, v any, want string) (any, bool) {
	w.add(at, metav1.CauseTypeTypeInvalid, "must be %s, not %s", want, article(v))
	return nil, false
}

// article names the type of a JSON value in a sentence.
func article(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case float64:
		return "a number"
	case []any:
		return "a list"
	default:
		return "an object"
	}
}

// shorten keeps user input in messages to a readable, printable length.
func shorten(text string) string {
	const limit = 256
	text = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit/2]) + "…" + string(runes[len(runes)-limit/2:])
	}
	return text
}
