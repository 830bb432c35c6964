// SPDX-License-Identifier: Apache-2.0

package entity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Record is one entity, or what a client says of one.
type Record struct {
	Kind *Kind
	// ID is 0 until it is stored.
	ID int64
	// Name is what clients call it, which is unique below its parent.
	Name        *string
	ExternalID  *string
	Description *string
	// Created and Updated are milliseconds since 1970.
	Created, Updated int64
	// Values of the kind's own fields, by their names: string, int64, float64 or []string.
	Values map[string]any
	// Custom properties; nil if the client said nothing of them.
	Custom map[string]Value
}

// Invalid is what is wrong with what a client says.
type Invalid struct {
	// Missing tells that a field is needed that is not there.
	Missing bool
	Message string
}

func (e *Invalid) Error() string { return e.Message }

func invalid(format string, args ...any) error {
	return &Invalid{Message: fmt.Sprintf(format, args...)}
}

// Bounds of what is stored. Names and ids of others are columns of 255 characters, values of 16 MiB.
const (
	maxName  = 255
	maxValue = 1 << 20
)

// Decode reads what a client says of an entity, all of it or what is to change. Fields that are read only may be there, so
// that what was read can be sent back, and are left alone.
func (k *Kind) Decode(body []byte) (*Record, error) {
	fields, err := object(body)
	if err != nil {
		return nil, err
	}
	r := &Record{Kind: k, Values: map[string]any{}}
	for _, name := range fields.names {
		raw := fields.values[name]
		if string(raw) == "null" {
			continue
		}
		if err := r.take(name, raw); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// ArtifactType is what a client says of it; empty if nothing.
func ArtifactType(body []byte) (string, error) {
	fields, err := object(body)
	if err != nil || fields.values["artifactType"] == nil {
		return "", err
	}
	return stringOf("artifactType", fields.values["artifactType"], maxName)
}

// object reads the fields of a JSON object, in their order. A name that comes twice is refused: programs disagree about
// which of the two counts.
func object(body []byte) (out struct {
	names  []string
	values map[string]json.RawMessage
}, err error,
) {
	out.values = map[string]json.RawMessage{}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return out, invalid("the body must be a JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return out, invalid("the body is no valid JSON: %v", err)
		}
		name, _ := t.(string) // the decoder lets nothing else be a key
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return out, invalid("the body is no valid JSON: %v", err)
		}
		if _, twice := out.values[name]; twice {
			return out, invalid("field %q is there twice", name)
		}
		out.names = append(out.names, name)
		out.values[name] = raw
	}
	if _, err := d.Token(); err != nil {
		return out, invalid("the body is no valid JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return out, invalid("there is something behind the JSON object")
	}
	return out, nil
}

// take reads one field.
func (r *Record) take(name string, raw json.RawMessage) error {
	switch name {
	case "id":
		s, err := stringOf(name, raw, maxName)
		if err == nil && s != "" {
			r.ID, err = ParseID(name, s)
		}
		return err
	case "name":
		return textOf(name, raw, maxName, &r.Name)
	case "externalId":
		return textOf(name, raw, maxName, &r.ExternalID)
	case "description":
		return textOf(name, raw, maxValue, &r.Description)
	case "createTimeSinceEpoch", "lastUpdateTimeSinceEpoch":
		_, err := stringOf(name, raw, maxName)
		return err
	case "customProperties":
		return r.custom(raw)
	case "artifactType":
		s, err := stringOf(name, raw, maxName)
		if err == nil && (r.Kind.ArtifactType == "" || s != r.Kind.ArtifactType) {
			err = invalid("artifactType is %q, which a %s cannot be", s, r.Kind.Name)
		}
		return err
	}
	f, known := r.Kind.Field(name)
	if !known {
		return invalid("json: unknown field %q", name)
	}
	value, err := f.decode(raw)
	if err == nil && f.At != InPath {
		r.Values[name] = value
	}
	return err
}

func textOf(name string, raw json.RawMessage, limit int, into **string) error {
	s, err := stringOf(name, raw, limit)
	if err == nil {
		*into = &s
	}
	return err
}

func stringOf(name string, raw json.RawMessage, limit int) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", invalid("field %s must be a string", name)
	}
	return s, checkText(name, s, limit)
}

func checkText(name, s string, limit int) error {
	switch {
	case utf8.RuneCountInString(s) > limit:
		return invalid("field %s has more than %d characters", name, limit)
	case strings.ContainsRune(s, 0):
		return invalid("field %s has a null byte", name)
	}
	return nil
}

// ParseID reads the id of an entity.
func ParseID(name, s string) (int64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || id <= 0 {
		return 0, invalid("%s is %s, which is not the id of anything; ids are whole numbers", name, strconv.Quote(shorten(s)))
	}
	return id, nil
}

func shorten(s string) string {
	const shown = 40
	if len(s) > shown {
		return strings.ToValidUTF8(s[:shown], "") + "…"
	}
	return s
}

// decode reads a value of the field's type.
func (f Field) decode(raw json.RawMessage) (any, error) {
	switch f.Type {
	case Double:
		var v float64
		if err := json.Unmarshal(raw, &v); err != nil || math.IsInf(v, 0) {
			return nil, invalid("field %s must be a number", f.Name)
		}
		return v, nil
	case Step:
		var v int64
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, invalid("field %s must be a whole number", f.Name)
		}
		return v, nil
	case Texts:
		var v []string
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, invalid("field %s must be a list of strings", f.Name)
		}
		for _, s := range v {
			if err := checkText(f.Name, s, maxValue); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	s, err := stringOf(f.Name, raw, maxValue)
	if err != nil {
		return nil, err
	}
	return f.parse(s)
}

// parse reads what is written as a string.
func (f Field) parse(s string) (any, error) {
	switch f.Type {
	case ID:
		return ParseID("field "+f.Name, s)
	case Number:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, invalid("field %s must be a whole number in quotes", f.Name)
		}
		return n, nil
	case Enum:
		if !slices.Contains(f.Words, s) {
			return nil, invalid("field %s is %s; it can be %s", f.Name, strconv.Quote(shorten(s)), strings.Join(f.Words, ", "))
		}
	}
	return s, nil
}

// Complete fills in what nobody said of a new entity, and refuses what somebody must have said.
func (r *Record) Complete() error {
	if r.Kind.NeedsName && (r.Name == nil || *r.Name == "") {
		return missing("name")
	}
	for _, f := range r.Kind.Fields {
		if _, said := r.Values[f.Name]; said {
			continue
		}
		if f.Required {
			return missing(f.Name)
		}
		if f.Default != "" {
			r.Values[f.Name] = f.Default
		}
	}
	return r.consistent()
}

// missing has the words that clients know.
func missing(field string) error {
	return &Invalid{Missing: true, Message: fmt.Sprintf("required field '%s' is zero value.", field)}
}

// consistent refuses values that contradict each other.
func (r *Record) consistent() error {
	begin, begun := r.Values["startTimeSinceEpoch"].(int64)
	end, ended := r.Values["endTimeSinceEpoch"].(int64)
	if begun && ended && end < begin {
		return invalid("endTimeSinceEpoch is before startTimeSinceEpoch")
	}
	return nil
}

// Change puts what a client said into an entity. What the client did not say stays, and so does what is fixed; custom
// properties are replaced as a whole.
func (r *Record) Change(said *Record) error {
	if said.Name != nil && r.Name != nil && *said.Name != *r.Name {
		return invalid("the name of a %s cannot be changed", r.Kind.Name)
	}
	if said.ExternalID != nil {
		r.ExternalID = said.ExternalID
	}
	if said.Description != nil {
		r.Description = said.Description
	}
	if said.Custom != nil {
		r.Custom = said.Custom
	}
	for name, value := range said.Values {
		f, _ := r.Kind.Field(name)
		if f.Fixed && r.Values[name] != value {
			return invalid("field %s cannot be changed", name)
		}
		r.Values[name] = value
	}
	return r.consistent()
}
