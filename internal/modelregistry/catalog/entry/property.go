// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// Values of a property that a filter names. A name in backticks is first of all one that somebody has invented.
func (e *Entry) Values(p filter.Property) Values {
	if custom, ok := e.values[customPrefix+p.Name]; ok {
		if own, ok := e.values[p.Name]; ok && !p.Quoted {
			return Values{All: slices.Concat(own.All, custom.All), List: own.List}
		}
		return custom
	}
	return e.values[p.Name]
}

// customPrefix keeps invented names apart from those of fields.
const customPrefix = "\x00"

func stringValue(s string) filter.Value { return filter.Value{Type: filter.String, String: s} }

// plain is a text that somebody may have written without quotes, as a number.
func plain(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	}
	return "", false
}

// number is a whole number as both types, so that a filter by .double_value finds 1 as well as 1.5.
func number(n json.Number) []filter.Value {
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil
	}
	double := filter.Value{Type: filter.Double, Double: f}
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return []filter.Value{{Type: filter.Int, Int: i}, double}
	}
	return []filter.Value{double}
}

func scalar(value any) []filter.Value {
	switch value := value.(type) {
	case string:
		return []filter.Value{stringValue(value)}
	case bool:
		return []filter.Value{{Type: filter.Bool, Bool: value}}
	case json.Number:
		return number(value)
	}
	return nil
}

// properties takes over what the owner of an entry has invented.
func (r *reading) properties(value any) error {
	given, ok := value.(map[string]any)
	if !ok {
		return errors.New("must be an object")
	}
	if len(given) > maxProperties {
		return fmt.Errorf("there are more than %d", maxProperties)
	}
	shown := make(map[string]any, len(given))
	for name, one := range given {
		property, err := readProperty(one)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		shown[name] = property
		r.values[customPrefix+name] = Values{All: propertyValues(property), Custom: true, option: true, offered: name}
	}
	r.Fields["customProperties"] = shown
	return nil
}

// Property is a value as the wire shows it: its type, and the value under the name of the type.
type Property map[string]any

// StringProperty is a text.
func StringProperty(s string) Property {
	return Property{"metadataType": "MetadataStringValue", "string_value": s}
}

// NumberProperty is a whole number, or one with a fraction.
func NumberProperty(n json.Number) Property {
	if _, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return Property{"metadataType": "MetadataIntValue", "int_value": n.String()}
	}
	return Property{"metadataType": "MetadataDoubleValue", "double_value": n}
}

// DoubleProperty is a number with a fraction, even if there is none.
func DoubleProperty(f float64) Property {
	return Property{"metadataType": "MetadataDoubleValue", "double_value": f}
}

func boolProperty(b bool) Property {
	return Property{"metadataType": "MetadataBoolValue", "bool_value": b}
}

// PropertyOf is the property for a value of JSON. Whatever is not plain becomes text.
func PropertyOf(value any) Property {
	switch value := value.(type) {
	case string:
		return StringProperty(value)
	case bool:
		return boolProperty(value)
	case json.Number:
		return NumberProperty(value)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return StringProperty("")
	}
	return StringProperty(string(data))
}

// members are the names of values by their types.
var members = map[string]string{
	"MetadataStringValue": "string_value", "MetadataIntValue": "int_value", "MetadataDoubleValue": "double_value",
	"MetadataBoolValue": "bool_value", "MetadataStructValue": "struct_value", "MetadataProtoValue": "proto_value",
}

// readProperty accepts the form of the wire, and a plain value.
func readProperty(value any) (Property, error) {
	if p, ok := value.(Property); ok {
		return p, nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		if _, isList := value.([]any); isList || value == nil {
			return nil, errors.New("must be text, a number, true or false, or have a metadataType")
		}
		return PropertyOf(value), nil
	}
	kind, _ := object["metadataType"].(string)
	if kind == "" {
		for name, member := range members {
			if _, ok := object[member]; ok {
				kind = name
			}
		}
	}
	member, known := members[kind]
	if !known {
		return nil, fmt.Errorf("metadataType must be one of %s", strings.Join(slices.Sorted(maps.Keys(members)), ", "))
	}
	return typedProperty(kind, object[member], object)
}

func typedProperty(kind string, value any, object map[string]any) (Property, error) {
	s, isPlain := plain(value)
	switch kind {
	case "MetadataStringValue":
		if isPlain {
			return StringProperty(s), nil
		}
	case "MetadataIntValue":
		if _, err := strconv.ParseInt(s, 10, 64); isPlain && err == nil {
			return Property{"metadataType": kind, "int_value": s}, nil
		}
	case "MetadataDoubleValue":
		if f, err := strconv.ParseFloat(s, 64); isPlain && err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return DoubleProperty(f), nil
		}
	case "MetadataBoolValue":
		if b, ok := value.(bool); ok {
			return boolProperty(b), nil
		}
	default:
		return Property(object), nil
	}
	return nil, fmt.Errorf("there is no %s for a %s", members[kind], kind)
}

func propertyValues(p Property) []filter.Value {
	switch p["metadataType"] {
	case "MetadataStringValue":
		s, _ := p["string_value"].(string)
		return []filter.Value{stringValue(s)}
	case "MetadataIntValue":
		s, _ := p["int_value"].(string)
		return number(json.Number(s))
	case "MetadataDoubleValue":
		if f, ok := p["double_value"].(float64); ok {
			return []filter.Value{{Type: filter.Double, Double: f}}
		}
		n, _ := p["double_value"].(json.Number)
		return number(n)
	case "MetadataBoolValue":
		b, _ := p["bool_value"].(bool)
		return []filter.Value{{Type: filter.Bool, Bool: b}}
	}
	return nil
}

// With is a copy of an entry with more properties.
func (e *Entry) With(more map[string]Property) *Entry {
	out := *e
	out.Fields, out.values = maps.Clone(e.Fields), maps.Clone(e.values)
	shown := map[string]any{}
	if before, ok := e.Fields["customProperties"].(map[string]any); ok {
		shown = maps.Clone(before)
	}
	for name, p := range more {
		shown[name] = p
		out.values[customPrefix+name] = Values{All: propertyValues(p), Custom: true, option: true, offered: name}
	}
	out.Fields["customProperties"] = shown
	return &out
}

// WithParts is a copy of an entry with more parts.
func (e *Entry) WithParts(more []*Entry) *Entry {
	out := *e
	out.Parts = slices.Concat(e.Parts, more)
	return &out
}

// Number is a property that is a number.
func (e *Entry) Number(name string) (float64, bool) {
	for _, v := range e.Values(filter.Property{Name: name}).All {
		if f, ok := v.Number(); ok {
			return f, true
		}
	}
	return 0, false
}

// Text is a property that is text.
func (e *Entry) Text(name string) string {
	for _, v := range e.Values(filter.Property{Name: name}).All {
		if v.Type == filter.String {
			return v.String
		}
	}
	return ""
}

// Has tells whether there is such a property.
func (e *Entry) Has(name string) bool { return len(e.Values(filter.Property{Name: name}).All) > 0 }
