// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/modelplane/modelplane/api/serving/v1alpha1"
)

// OfPredictor is the model that a Predictor asks for. It is complete but for its storage where the spec is invalid.
func OfPredictor(p *v1alpha1.Predictor) (Model, *Invalid) {
	s := specOf(&p.Spec)
	m := s.model(p.Name, FromPredictor)
	m.Ignored = ignoredOf(&p.Spec)
	return m, validate(&p.Spec)
}

// specOf brings a spec into the form that ids are made of.
func specOf(p *v1alpha1.PredictorSpec) *spec {
	s := &spec{
		Type: modelType{p.Type.Name, p.Type.Version}, Path: p.Path, SchemaPath: p.SchemaPath,
		Gpu: text(p.Gpu), ProtocolVersion: text(p.ProtocolVersion),
	}
	if p.ServiceAccountName != "" {
		s.ServiceAccountName = &p.ServiceAccountName
	}
	if p.Runtime != nil {
		s.Runtime = &runtime{p.Runtime.Name}
	}
	if st := p.Storage; st != nil {
		s.Storage = &storage{Path: st.Path, SchemaPath: st.SchemaPath, Key: st.StorageKey}
		if st.Parameters != nil { // an empty map that was written down counts
			s.Storage.Parameters = &st.Parameters
		}
		if st.PersistentVolumeClaim != nil {
			s.Storage.PersistentVolumeClaim = st.PersistentVolumeClaim
		}
		if st.S3 != nil {
			s.Storage.S3 = &s3{st.S3.SecretKey, st.S3.Bucket}
		}
	}
	return s
}

// text is a word of any type.
func text[T ~string](word *T) *string {
	if word == nil {
		return nil
	}
	s := string(*word)
	return &s
}

// validate finds the first rule that a spec breaks.
func validate(p *v1alpha1.PredictorSpec) *Invalid {
	st := p.Storage
	switch {
	case st == nil:
		return nil
	case st.Path != nil && p.Path != "":
		return &Invalid{"spec.path", "Both spec.path and spec.storage.path are set. Remove spec.path, which is the former name."}
	case st.SchemaPath != nil && p.SchemaPath != nil:
		return &Invalid{"spec.schemaPath", "Both spec.schemaPath and spec.storage.schemaPath are set. Remove spec.schemaPath, which is the former name."}
	case st.PersistentVolumeClaim != nil:
		return &Invalid{"spec.storage.persistentVolumeClaim", "The field spec.storage.persistentVolumeClaim is not supported. " +
			"Set spec.storage.parameters to type: pvc and name: the name of the claim, and spec.storage.path to the path in it."}
	case st.S3 != nil:
		return besideS3(st)
	}
	return nil
}

// besideS3 finds a newer field beside the former one.
func besideS3(st *v1alpha1.PredictorStorage) *Invalid {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"path", st.Path != nil}, {"schemaPath", st.SchemaPath != nil}, {"parameters", st.Parameters != nil}, {"key", st.StorageKey != nil},
	} {
		if f.set {
			return &Invalid{"spec.storage.s3", "Both spec.storage.s3 and spec.storage." + f.name + " are set. Remove spec.storage.s3 and set " +
				"spec.storage.key, path and parameters instead of it, or set nothing but s3."}
		}
	}
	return nil
}

// ignoredOf tells of settings that are accepted, because manifests have them, and change nothing.
func ignoredOf(p *v1alpha1.PredictorSpec) []string {
	var out []string
	if p.Storage == nil && p.Path != "" {
		out = append(out, "The field spec.path has no effect without spec.storage.")
	}
	if p.Storage == nil && p.SchemaPath != nil {
		out = append(out, "The field spec.schemaPath has no effect without spec.storage.")
	}
	if p.Gpu != nil {
		out = append(out, "The field spec.gpu has no effect. Name a runtime whose pods have accelerators in spec.runtime.")
	}
	if p.ServiceAccountName != "" {
		out = append(out, "The field spec.serviceAccountName has no effect. Models are fetched with the entries of the storage secret.")
	}
	return out
}
