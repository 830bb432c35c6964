// SPDX-License-Identifier: Apache-2.0

package entity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// MarshalJSON writes the entity as clients read it, its fields always in the same order.
func (r *Record) MarshalJSON() ([]byte, error) {
	w := writer{out: bytes.NewBufferString("{")}
	if r.Kind.ArtifactType != "" {
		w.field("artifactType", r.Kind.ArtifactType)
	}
	w.field("id", strconv.FormatInt(r.ID, 10))
	for _, text := range []struct {
		name  string
		value *string
	}{{"name", r.Name}, {"externalId", r.ExternalID}, {"description", r.Description}} {
		if text.value != nil {
			w.field(text.name, *text.value)
		}
	}
	for _, f := range r.Kind.Fields {
		if value, said := r.Values[f.Name]; said {
			w.field(f.Name, f.encode(value))
		}
	}
	w.field("createTimeSinceEpoch", strconv.FormatInt(r.Created, 10))
	w.field("lastUpdateTimeSinceEpoch", strconv.FormatInt(r.Updated, 10))
	w.custom(r.Custom)
	w.out.WriteByte('}')
	return w.out.Bytes(), w.err
}

// encode gives a value the form that its field has in JSON.
func (f Field) encode(value any) any {
	if n, ok := value.(int64); ok && f.Type != Step {
		return strconv.FormatInt(n, 10)
	}
	return value
}

// writer writes the fields of an object one after the other, and keeps the first error.
type writer struct {
	out *bytes.Buffer
	err error
}

func (w *writer) field(name string, value any) {
	raw, err := json.Marshal(value)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("field %s: %w", name, err)
	}
	if w.out.Bytes()[w.out.Len()-1] != '{' {
		w.out.WriteByte(',')
	}
	key, _ := json.Marshal(name) // a string can always be written
	w.out.Write(key)
	w.out.WriteByte(':')
	w.out.Write(raw)
}

func (w *writer) custom(all map[string]Value) {
	inner := writer{out: bytes.NewBufferString("{")}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		raw, err := EncodeValue(all[name])
		if err != nil && w.err == nil {
			w.err = fmt.Errorf("custom property %s: %w", name, err)
		}
		inner.field(name, raw)
	}
	inner.out.WriteByte('}')
	w.field("customProperties", json.RawMessage(inner.out.Bytes()))
}
