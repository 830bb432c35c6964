// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"encoding/json"
)

// key is what a model's registration says of it besides its path, as JSON. What it has beyond the fields that concern
// storage is the runtime's and goes there as it is.
type key struct {
	storageKey *string
	bucket     string // as it was written before there were parameters
	params     map[string]string
	schema     string

	all map[string]json.RawMessage
}

// longestKey bounds a key.
const longestKey = 1 << 20

// readKey understands a key. Nothing at all is a key, too.
func readKey(text string) (*key, error) {
	k := &key{all: map[string]json.RawMessage{}}
	if text == "" {
		return k, nil
	}
	var fields struct {
		StorageKey    *string           `json:"storage_key"`
		Bucket        string            `json:"bucket"`
		StorageParams map[string]string `json:"storage_params"`
		SchemaPath    *string           `json:"schema_path"`
	}
	if len(text) > longestKey || json.Unmarshal([]byte(text), &k.all) != nil || json.Unmarshal([]byte(text), &fields) != nil {
		// The error would show a part of it, and there may be a secret in the parameters.
		return nil, mistakef("the key of the model is no JSON object with texts in storage_key, storage_params and schema_path; register the model with one")
	}
	if k.all == nil { // null
		k.all = map[string]json.RawMessage{}
	}
	k.storageKey, k.bucket, k.params = fields.StorageKey, fields.Bucket, fields.StorageParams
	if fields.SchemaPath != nil {
		k.schema = *fields.SchemaPath
	}
	return k, nil
}

// forRuntime is the key without anything of storage, with where the schema is and how much the model takes on disk.
func (k *key) forRuntime(schema string, size int64) (string, error) {
	out := map[string]any{}
	for name, value := range k.all {
		out[name] = value
	}
	for _, name := range []string{"storage_key", "storage_params", "bucket", "schema_path"} {
		delete(out, name)
	}
	if schema != "" {
		out["schema_path"] = schema
	}
	out["disk_size_bytes"] = size
	text, err := json.Marshal(out)
	return string(text), err
}
