// SPDX-License-Identifier: Apache-2.0

package entity

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Value is a custom property: a string, an int64, a float64, a bool, or a Struct.
type Value any

// Struct is a JSON object as the value of a property.
type Struct json.RawMessage

// The types of custom properties, and the field that holds each.
var metadata = map[string]string{
	"MetadataStringValue": "string_value", "MetadataIntValue": "int_value", "MetadataDoubleValue": "double_value",
	"MetadataBoolValue": "bool_value", "MetadataStructValue": "struct_value",
}

// custom reads the custom properties of a record.
func (r *Record) custom(raw json.RawMessage) error {
	all, err := object(raw)
	if err != nil {
		return invalid("field customProperties: %v", err)
	}
	r.Custom = map[string]Value{}
	for _, name := range all.names {
		if err := checkText("customProperties", name, maxName); err != nil {
			return err
		}
		value, err := decodeValue(all.values[name])
		if err != nil {
			return invalid("customProperties.%s: %v", shorten(name), err)
		}
		r.Custom[name] = value
	}
	return nil
}

func decodeValue(raw json.RawMessage) (Value, error) {
	fields, err := object(raw)
	if err != nil {
		return nil, invalid("it must be an object with metadataType and a value")
	}
	var typ string
	if err := json.Unmarshal(fields.values["metadataType"], &typ); err != nil {
		return nil, invalid("metadataType is missing")
	}
	holds, known := metadata[typ]
	if !known {
		return nil, invalid("metadataType %s is none that can be kept", strconv.Quote(shorten(typ)))
	}
	for _, name := range fields.names {
		if name != "metadataType" && name != holds {
			return nil, invalid("json: unknown field %q", name)
		}
	}
	value, said := fields.values[holds]
	if !said {
		return nil, missing(holds)
	}
	return valueOf(holds, value)
}

func valueOf(holds string, raw json.RawMessage) (Value, error) {
	switch holds {
	case "double_value":
		var f float64
		if err := json.Unmarshal(raw, &f); err != nil || math.IsInf(f, 0) {
			return nil, invalid("double_value must be a number")
		}
		return f, nil
	case "bool_value":
		var b bool
		if err := json.Unmarshal(raw, &b); err != nil {
			return nil, invalid("bool_value must be true or false")
		}
		return b, nil
	}
	s, err := stringOf(holds, raw, maxValue)
	if err != nil {
		return nil, err
	}
	switch holds {
	case "int_value":
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, invalid("int_value must be a whole number in quotes")
		}
		return n, nil
	case "struct_value":
		return structOf(s)
	}
	return s, nil
}

// structOf reads an object that is written in base64, or as it is.
func structOf(s string) (Value, error) {
	text, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		text = []byte(s)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, invalid("struct_value must be a JSON object, written in base64")
	}
	canonical, err := json.Marshal(object)
	return Struct(canonical), err
}

// EncodeValue writes a custom property as clients read it. A Struct is written in base64, as it came.
func EncodeValue(v Value) (json.RawMessage, error) {
	switch v := v.(type) {
	case string:
		return json.Marshal(map[string]any{"metadataType": "MetadataStringValue", "string_value": v})
	case int64:
		return json.Marshal(map[string]any{"metadataType": "MetadataIntValue", "int_value": strconv.FormatInt(v, 10)})
	case float64:
		return json.Marshal(map[string]any{"metadataType": "MetadataDoubleValue", "double_value": v})
	case bool:
		return json.Marshal(map[string]any{"metadataType": "MetadataBoolValue", "bool_value": v})
	case Struct:
		return json.Marshal(map[string]any{"metadataType": "MetadataStructValue", "struct_value": base64.StdEncoding.EncodeToString(v)})
	}
	return nil, fmt.Errorf("a value of type %T cannot be written", v)
}

// structPrefix stands before a Struct among the strings of a property table.
const structPrefix = "mlmd-struct::"

// StoreStruct writes a Struct as databases have it.
func StoreStruct(s Struct) (string, error) {
	var message structpb.Struct
	if err := json.Unmarshal(s, &message); err != nil {
		return "", err
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(&message)
	return structPrefix + base64.StdEncoding.EncodeToString(raw), err
}

// LoadString reads a string of a property table, which may hold a Struct. One that cannot be read is the string it is.
func LoadString(s string) Value {
	if len(s) < len(structPrefix) || s[:len(structPrefix)] != structPrefix {
		return s
	}
	raw, err := base64.StdEncoding.DecodeString(s[len(structPrefix):])
	if err != nil {
		return s
	}
	var message structpb.Struct
	if err := proto.Unmarshal(raw, &message); err != nil {
		return s
	}
	text, err := json.Marshal(message.AsMap())
	if err != nil {
		return s
	}
	return Struct(text)
}

// StoreTexts writes a list as databases have it: a Struct with the list under the name of its property.
func StoreTexts(property string, texts []string) (string, error) {
	text, err := json.Marshal(map[string][]string{property: slices.Concat([]string{}, texts)})
	if err != nil {
		return "", err
	}
	return StoreStruct(text)
}

// LoadTexts is the other direction; false if the string holds no such list.
func LoadTexts(property, stored string) ([]string, bool) {
	s, ok := LoadString(stored).(Struct)
	if !ok {
		return nil, false
	}
	var object map[string][]string
	if err := json.Unmarshal(s, &object); err != nil {
		return nil, false
	}
	texts, ok := object[property]
	return texts, ok
}

// Metadata are the types of custom properties, each with the field that holds its value.
func Metadata() map[string]string { return maps.Clone(metadata) }
