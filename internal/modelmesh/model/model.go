// SPDX-License-Identifier: Apache-2.0

// Package model turns a Predictor, or an InferenceService in ModelMesh mode, into one plain model as the mesh knows it: its
// ids, its type, where it is, and what is wrong with how it was asked for. It also tells which runtimes can serve it.
//
// It is pure and knows neither the mesh's API nor the cluster. Models that were registered by other controllers keep their
// ids, so what goes into an id is kept to the byte.
package model

import (
	"crypto/sha1" //nolint:gosec // part of names, no secret
	"encoding/hex"
	"encoding/json"
	"regexp"
)

// Source is the kind of object that a model comes from. In the mesh it is the owner of the model's name.
type Source string

// The kinds that models come from.
const (
	FromPredictor Source = "ksp"
	FromService   Source = "isvc"
)

// Model is what the mesh is told of.
type Model struct {
	// Name is what clients ask for: that of the object. The mesh calls it a virtual model.
	Name   string
	Source Source
	// ID is the name of this very version of the model, empty where none can be told.
	ID string
	// Type is what a runtime must be able to serve, as in Supports.
	Type string
	// Path of the model in its storage, and Key with all else that is needed to fetch and load it, as JSON.
	Path, Key string
	// Parameters of the storage that the object itself gives.
	Parameters map[string]string
	// Ignored are sentences about settings that have no effect.
	Ignored []string
}

// Claim is the PersistentVolumeClaim that the object names, if it names one.
func (m Model) Claim() string {
	if m.Parameters["type"] != "pvc" {
		return ""
	}
	return m.Parameters["name"]
}

// Invalid is why a model cannot be asked for: the field that is wrong, and a sentence that ends in what to do.
type Invalid struct{ Field, Message string }

func (e *Invalid) Error() string { return e.Message }

// spec is a Predictor's spec as it goes into ids: in this order, with these names, and with an empty path.
type spec struct {
	ServiceAccountName *string   `json:"serviceAccountName,omitempty"`
	Type               modelType `json:"modelType"`
	Path               string    `json:"path"`
	SchemaPath         *string   `json:"schemaPath,omitempty"`
	Storage            *storage  `json:"storage,omitempty"`
	Gpu                *string   `json:"gpu,omitempty"`
	Runtime            *runtime  `json:"runtime,omitempty"`
	ProtocolVersion    *string   `json:"protocolVersion,omitempty"`
}

type modelType struct {
	Name    string  `json:"name"`
	Version *string `json:"version,omitempty"`
}

type storage struct {
	Path                  *string            `json:"path,omitempty"`
	SchemaPath            *string            `json:"schemaPath,omitempty"`
	Parameters            *map[string]string `json:"parameters,omitempty"`
	Key                   *string            `json:"key,omitempty"`
	PersistentVolumeClaim any                `json:"persistentVolumeClaim,omitempty"`
	S3                    *s3                `json:"s3,omitempty"`
}

type s3 struct {
	SecretKey string  `json:"secretKey"`
	Bucket    *string `json:"bucket,omitempty"`
}

type runtime struct {
	Name string `json:"name,omitempty"`
}

// modelKey is what a runtime's helper reads; it compares as text when a model is registered again.
type modelKey struct {
	StorageKey    *string           `json:"storage_key,omitempty"`
	StorageParams map[string]string `json:"storage_params,omitempty"`
	ModelType     modelType         `json:"model_type"`
	SchemaPath    *string           `json:"schema_path,omitempty"`
}

// model is what the mesh is told of a spec.
func (s *spec) model(name string, source Source) Model {
	m := Model{Name: name, Source: source, ID: name + "__" + string(source) + "-" + s.hash(), Type: s.label()}
	key := modelKey{ModelType: s.Type}
	if st := s.Storage; st != nil {
		m.Path = first(st.Path, &s.Path)
		key.SchemaPath = st.SchemaPath
		if key.SchemaPath == nil {
			key.SchemaPath = s.SchemaPath
		}
		key.StorageKey, m.Parameters = st.access()
		key.StorageParams = m.Parameters
	}
	m.Key = string(encode(key))
	return m
}

// access is the entry of the storage secret, and what is different from it.
func (st *storage) access() (key *string, parameters map[string]string) {
	key = st.Key
	if key == nil && st.S3 != nil {
		key = &st.S3.SecretKey
	}
	switch {
	case st.Parameters != nil:
		parameters = *st.Parameters
	case st.S3 != nil && st.S3.Bucket != nil:
		parameters = map[string]string{"bucket": *st.S3.Bucket}
	}
	return key, parameters
}

func first(values ...*string) string {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	return ""
}

// hash is ten letters that are other ones as soon as anything of the spec is.
func (s *spec) hash() string {
	const bytes = 5
	sum := sha1.Sum(encode(s)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:bytes])
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values always encode
	}
	return raw
}

var idForm = regexp.MustCompile(`^(.+)__([a-z]+)-[0-9a-f]{10}$`)

// ParseID finds out which object the id of a model was made for.
func ParseID(id string) (name string, source Source, ok bool) {
	parts := idForm.FindStringSubmatch(id)
	if parts == nil {
		return "", "", false
	}
	return parts[1], Source(parts[2]), true
}
