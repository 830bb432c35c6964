// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// object is a decoded JSON object.
type object map[string]any

// has tells whether a field was given and says something.
func (o object) has(field string) bool {
	_, ok := o[field]
	return ok
}

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
)

// decodeObject reads one JSON object and nothing after it.
func decodeObject(raw string) (object, error) {
	if strings.TrimSpace(raw) == "" {
		return nil, errors.New("the value is empty; write a JSON object, or remove the key to have its defaults")
	}
	decoder := json.NewDecoder(strings.NewReader(raw))
	decoder.UseNumber()
	var v any
	err := decoder.Decode(&v)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more text after the end of the object")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the value is not valid JSON: %s", inWords(raw, err))
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the value is %s; write a JSON object in braces", kindOf(v))
	}
	return o, nil
}

// inWords adds the line to a syntax error, since an offset in bytes helps nobody.
func inWords(raw string, err error) string {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		before := raw[:min(max(int(syntax.Offset), 0), len(raw))]
		return fmt.Sprintf("line %d: %v", 1+strings.Count(before, "\n"), err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "it ends too early; look for a missing brace or quote"
	}
	return err.Error()
}

// coercer shapes decoded JSON after a Go type. encoding/json alone would not do: it stops at the first fault, does not
// say where inside a quantity it failed, ignores unknown fields, and refuses the numbers in quotes that are customary
// in this ConfigMap. Nulls and empty strings are left out, so that they mean the default.
type coercer struct {
	faults  []string
	unknown []string
}

func (f *coercer) fault(path, format string, args ...any) {
	f.faults = append(f.faults, path+": "+fmt.Sprintf(format, args...))
}

// fit returns what to decode into t, or false when there is nothing to decode.
func (f *coercer) fit(path string, v any, t reflect.Type) (any, bool) {
	if v == nil || v == "" {
		return nil, false
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case quantityType:
		return f.quantity(path, v)
	case intOrStringType:
		return f.intOrPercent(path, v)
	}
	switch t.Kind() {
	case reflect.Struct:
		return f.fields(path, v, t)
	case reflect.Map:
		return f.entries(path, v, t)
	case reflect.Slice:
		return f.items(path, v, t)
	case reflect.Bool:
		return f.boolean(path, v)
	case reflect.Int, reflect.Int32, reflect.Int64:
		return f.integer(path, v, t)
	}
	if _, ok := v.(string); !ok {
		f.fault(path, "is %s; write a string", kindOf(v))
		return nil, false
	}
	return v, true
}

func (f *coercer) fields(path string, v any, t reflect.Type) (any, bool) {
	in, ok := v.(map[string]any)
	if !ok {
		f.fault(path, "is %s; write an object in braces", kindOf(v))
		return nil, false
	}
	out := object{}
	for _, name := range sortedKeys(in) {
		field, ok := fieldNamed(t, name)
		if !ok {
			f.unknown = append(f.unknown, join(path, name))
			continue
		}
		canonical := jsonName(field)
		if fitted, ok := f.fit(join(path, canonical), in[name], field.Type); ok {
			out[canonical] = fitted
		}
	}
	return out, true
}

func (f *coercer) entries(path string, v any, t reflect.Type) (any, bool) {
	in, ok := v.(map[string]any)
	if !ok {
		f.fault(path, "is %s; write an object in braces", kindOf(v))
		return nil, false
	}
	out := object{}
	for _, name := range sortedKeys(in) {
		if fitted, ok := f.fit(join(path, name), in[name], t.Elem()); ok {
			out[name] = fitted
		}
	}
	return out, true
}

func (f *coercer) items(path string, v any, t reflect.Type) (any, bool) {
	in, ok := v.([]any)
	if !ok {
		f.fault(path, "is %s; write a list in brackets", kindOf(v))
		return nil, false
	}
	out := make([]any, 0, len(in))
	for i, item := range in {
		if fitted, ok := f.fit(fmt.Sprintf("%s[%d]", path, i), item, t.Elem()); ok {
			out = append(out, fitted)
		}
	}
	return out, true
}

func (f *coercer) quantity(path string, v any) (any, bool) {
	text, ok := scalar(v)
	if !ok {
		f.fault(path, "is %s; write a quantity such as \"100m\" or \"1Gi\"", kindOf(v))
		return nil, false
	}
	q, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		f.fault(path, "%s is no quantity; write for example \"100m\" or \"1Gi\"", quote(text))
	case q.Sign() < 0:
		f.fault(path, "%s is negative; write a quantity of zero or more", quote(text))
	default:
		return text, true
	}
	return nil, false
}

func (f *coercer) intOrPercent(path string, v any) (any, bool) {
	text, ok := scalar(v)
	if ok {
		number, percent := strings.CutSuffix(text, "%")
		n, err := strconv.ParseInt(number, 10, 32)
		switch {
		case err != nil || n < 0:
		case percent && n <= 100:
			return strconv.FormatInt(n, 10) + "%", true
		case !percent:
			return n, true
		}
	}
	f.fault(path, "must be a number of pods such as \"1\" or a share from \"0%%\" to \"100%%\"")
	return nil, false
}

func (f *coercer) boolean(path string, v any) (any, bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b, true
		}
	}
	f.fault(path, "must be true or false")
	return nil, false
}

func (f *coercer) integer(path string, v any, t reflect.Type) (any, bool) {
	if text, ok := scalar(v); ok {
		if n, err := strconv.ParseInt(text, 10, t.Bits()); err == nil {
			return n, true
		}
	}
	f.fault(path, "must be a whole number")
	return nil, false
}

// scalar is the text of a string or number.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// fieldNamed finds a field by its JSON name as encoding/json does: exactly, or else without regard to case.
func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	var folded reflect.StructField
	found := false
	for _, field := range reflect.VisibleFields(t) {
		if field.Anonymous {
			continue
		}
		switch known := jsonName(field); {
		case known == name:
			return field, true
		case !found && strings.EqualFold(known, name):
			folded, found = field, true
		}
	}
	return folded, found
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

func join(path, name string) string {
	if len(name) > longestQuote || strings.ContainsFunc(name, unprintable) {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// kindOf names what was found without showing it.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	}
	return "an object"
}

// longestQuote bounds what of a value appears in a message.
const longestQuote = 64

func quote(s string) string {
	if len(s) > longestQuote {
		s = s[:longestQuote] + "…"
	}
	return strconv.Quote(strings.ToValidUTF8(s, ""))
}

// decode shapes the JSON of a key after value and overlays it. It returns what was given, after shaping.
func decode(raw string, value any) (given object, unknown, faults []string) {
	o, err := decodeObject(raw)
	if err != nil {
		return nil, nil, []string{err.Error()}
	}
	f := &coercer{}
	fitted, _ := f.fields("", map[string]any(o), reflect.TypeOf(value).Elem())
	slices.Sort(f.unknown)
	given, _ = fitted.(object)
	if len(f.faults) > 0 {
		return given, f.unknown, f.faults
	}
	encoded, err := json.Marshal(given)
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(encoded)).Decode(value)
	}
	if err != nil {
		return given, f.unknown, []string{err.Error()}
	}
	return given, f.unknown, nil
}
