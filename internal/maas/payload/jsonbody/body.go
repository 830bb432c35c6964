// SPDX-License-Identifier: Apache-2.0

// Package jsonbody reads and changes the outermost fields of a JSON object without taking the rest apart: a prompt of some
// hundred kilobytes is looked at once and copied once, whatever is changed. It refuses what two readers may understand
// differently (a field that is there twice), because one of them would be the guard and the other the model's server.
package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// span is where a member of the object is: from its name's quote to the end of its value.
type span struct {
	name              string
	start, value, end int
}

// mostFields is the most that an object may have; those of requests have about twenty.
const mostFields = 256

// Document is a JSON object.
type Document struct {
	text   []byte
	fields []span
}

var errNoObject = errors.New("the body is not a JSON object")

// Parse takes the text over; it must not be changed afterwards.
func Parse(text []byte) (*Document, error) {
	if !json.Valid(text) {
		return nil, errors.New("the body is not valid JSON")
	}
	d := &Document{text: text}
	if err := d.index(); err != nil {
		return nil, err
	}
	return d, nil
}

// index finds the outermost fields of a text that is valid JSON.
func (d *Document) index() error {
	d.fields = d.fields[:0]
	i := space(d.text, 0)
	if i >= len(d.text) || d.text[i] != '{' {
		return errNoObject
	}
	for i = space(d.text, i+1); i < len(d.text) && d.text[i] == '"'; {
		s := span{start: i}
		i = skipString(d.text, i)
		if err := json.Unmarshal(d.text[s.start:i], &s.name); err != nil {
			return errNoObject
		}
		s.value = space(d.text, space(d.text, i)+1)
		i = skipValue(d.text, s.value)
		s.end = i
		if d.find(s.name) != nil {
			return fmt.Errorf("the body has the field %.40q twice; give it once", s.name)
		}
		if len(d.fields) >= mostFields {
			return fmt.Errorf("the body has more than %d fields", mostFields)
		}
		d.fields = append(d.fields, s)
		if i = space(d.text, i); i < len(d.text) && d.text[i] == ',' {
			i = space(d.text, i+1)
		}
	}
	return nil
}

func (d *Document) find(name string) *span {
	for i := range d.fields {
		if d.fields[i].name == name {
			return &d.fields[i]
		}
	}
	return nil
}

func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipString is behind the string that begins at i.
func skipString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// skipValue is behind the value that begins at i.
func skipValue(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			i = skipString(text, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// Bytes is the text as it is now.
func (d *Document) Bytes() []byte { return d.text }

// Raw is a field's value as it is written; nil: there is none.
func (d *Document) Raw(name string) json.RawMessage {
	if s := d.find(name); s != nil {
		return json.RawMessage(d.text[s.value:s.end])
	}
	return nil
}

// String is a field that is a string; empty: there is none, or it is something else.
func (d *Document) String(name string) string {
	var out string
	if raw := d.Raw(name); len(raw) > 0 && raw[0] == '"' {
		_ = json.Unmarshal(raw, &out)
	}
	return out
}

// True tells whether a field is true.
func (d *Document) True(name string) bool { return bytes.Equal(d.Raw(name), []byte("true")) }

// Set puts a value, which must be valid JSON, in the place of a field, or at the end.
func (d *Document) Set(name string, value []byte) error {
	quoted, err := json.Marshal(name)
	if err != nil {
		return err
	}
	var out []byte
	if s := d.find(name); s != nil {
		out = slices.Concat(d.text[:s.value], value, d.text[s.end:])
	} else {
		last := bytes.LastIndexByte(d.text, '}')
		if last < 0 {
			return errNoObject
		}
		var comma []byte
		if len(d.fields) > 0 {
			comma = []byte{','}
		}
		out = slices.Concat(d.text[:last], comma, quoted, []byte{':'}, value, d.text[last:])
	}
	d.text = out
	return d.index()
}

// SetString puts a string in the place of a field.
func (d *Document) SetString(name, value string) error {
	quoted, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return d.Set(name, quoted)
}
