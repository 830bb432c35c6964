// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"net/url"
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// Mode is the deployment mode of InferenceServices whose predictor is a model of the mesh.
const Mode = config.ModeModelMesh

// Annotations of InferenceServices with which storage and runtime were named before there were fields for them.
const (
	AnnotationSecretKey  = "serving.kserve.io/secretKey" //nolint:gosec // a name
	AnnotationSchemaPath = "serving.kserve.io/schemaPath"
	AnnotationRuntime    = "serving.kserve.io/servingRuntime"
)

// InMesh tells whether the predictor of an InferenceService is a model of the mesh now. The mode that was recorded once
// stays, whatever becomes of the annotation, as it does for all that stands around the predictor; and a service that is
// stopped has no model anywhere.
func InMesh(isvc *v1beta1.InferenceService) bool {
	mode, recorded := config.TranslateMode(isvc.Status.DeploymentMode)
	if !recorded {
		mode = isvc.Annotations[v1beta1.AnnotationDeploymentMode]
	}
	return mode == Mode && !strings.EqualFold(isvc.Annotations[v1beta1.AnnotationStop], "true")
}

// OfService is the model that an InferenceService asks for. Where it is invalid, the model has a name, and a type if that
// can be told.
func OfService(isvc *v1beta1.InferenceService) (Model, *Invalid) {
	s, given, invalid := baseOf(isvc)
	if invalid != nil {
		return Model{Name: isvc.Name, Source: FromService}, invalid
	}
	if s.Storage, invalid = storageOf(isvc, given); invalid != nil {
		return Model{Name: isvc.Name, Source: FromService, Type: s.label()}, invalid
	}
	return s.model(isvc.Name, FromService), nil
}

// framework is the former way to name a format: by a block of its own.
type framework struct {
	name  string
	given *v1beta1.PredictorExtensionSpec
}

// frameworksOf are those blocks, in the order in which they count.
func frameworksOf(p *v1beta1.PredictorSpec) []framework {
	return []framework{
		{"xgboost", p.XGBoost}, {"lightgbm", p.LightGBM}, {"sklearn", p.SKLearn}, {"tensorflow", p.Tensorflow},
		{"onnx", p.ONNX}, {"pytorch", p.PyTorch}, {"triton", p.Triton}, {"pmml", p.PMML},
	}
}

// baseOf is the spec without its storage, and the block of the service that it comes from.
func baseOf(isvc *v1beta1.InferenceService) (*spec, *v1beta1.PredictorExtensionSpec, *Invalid) {
	p := &isvc.Spec.Predictor
	pinned, annotated := isvc.Annotations[AnnotationRuntime]
	var block framework
	for _, f := range frameworksOf(p) {
		if f.given != nil {
			block = f
			break
		}
	}
	switch {
	case p.Model == nil && block.given == nil:
		return nil, nil, &Invalid{"spec.predictor.model", "The field spec.predictor.model is missing, and a service in ModelMesh mode needs it. Set it, with modelFormat " +
			"and storage."}
	case p.Model != nil && block.given != nil:
		return nil, nil, &Invalid{"spec.predictor." + block.name, "Both spec.predictor.model and spec.predictor." + block.name + " are set. Remove the latter, " +
			"which is the former way to name a format."}
	case p.Model != nil && annotated:
		return nil, nil, &Invalid{"spec.predictor.model", "The field spec.predictor.model is set beside the annotation " + AnnotationRuntime + ". Remove the annotation and " +
			"set spec.predictor.model.runtime."}
	case p.Model != nil:
		s := &spec{Type: modelType{p.Model.ModelFormat.Name, p.Model.ModelFormat.Version}, ProtocolVersion: spoken(&p.Model.PredictorExtensionSpec)}
		if p.Model.Runtime != nil {
			s.Runtime = &runtime{*p.Model.Runtime}
		}
		return s, &p.Model.PredictorExtensionSpec, nil
	}
	s := &spec{Type: modelType{Name: block.name}, ProtocolVersion: spoken(block.given)}
	if annotated {
		s.Runtime = &runtime{pinned}
	}
	return s, block.given, nil
}

func spoken(given *v1beta1.PredictorExtensionSpec) *string {
	if given.ProtocolVersion == nil || *given.ProtocolVersion == "" {
		return nil
	}
	return text(given.ProtocolVersion)
}

// storageOf is where the model of a service is: what an address says counts more than parameters.
func storageOf(isvc *v1beta1.InferenceService, given *v1beta1.PredictorExtensionSpec) (*storage, *Invalid) {
	const block = "spec.predictor.model"
	named := given.Storage
	parameters, out := map[string]string{}, &storage{}
	if named != nil {
		maps.Copy(parameters, named.Parameters)
		out.Key, out.SchemaPath, out.Path = named.StorageKey, named.SchemaPath, named.Path
	}
	switch {
	case given.StorageURI == nil && out.Path == nil:
		return nil, &Invalid{block + ".storage.path", "Neither " + block + ".storageUri nor storage.path is set. Set one of them."}
	case given.StorageURI != nil && out.Path != nil:
		return nil, &Invalid{block + ".storage.path", "Both " + block + ".storageUri and storage.path are set. Remove one of them."}
	case given.StorageURI != nil:
		path, found, invalid := fromURI(*given.StorageURI)
		if invalid != nil {
			return nil, invalid
		}
		out.Path = &path
		maps.Copy(parameters, found)
	}
	out.Parameters = &parameters // also when there are none: it goes into the id
	out.Key = annotated(out.Key, isvc, AnnotationSecretKey)
	out.SchemaPath = annotated(out.SchemaPath, isvc, AnnotationSchemaPath)
	return out, nil
}

func annotated(value *string, isvc *v1beta1.InferenceService, name string) *string {
	if text, ok := isvc.Annotations[name]; ok && value == nil {
		return &text
	}
	return value
}

const azureHosts = "blob.core.windows.net"

// fromURI takes an address apart into a path and the parameters of a storage.
func fromURI(uri string) (path string, parameters map[string]string, invalid *Invalid) {
	const field = "spec.predictor.model.storageUri"
	u, err := url.Parse(uri)
	if err != nil { // its text may hold a password
		return "", nil, &Invalid{field, "The field " + field + " is no address. Correct it: for example s3://bucket/path."}
	}
	path = strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "pvc":
		return path, map[string]string{"type": "pvc", "name": u.Host}, nil
	case "s3":
		return path, map[string]string{"type": "s3", "bucket": u.Host}, nil
	case "gs":
		return path, map[string]string{"type": "gcs", "bucket": u.Host}, nil
	case "http", "https":
		if strings.HasSuffix(u.Host, azureHosts) {
			container, rest, _ := strings.Cut(path, "/")
			account, _, _ := strings.Cut(u.Host, ".")
			return rest, map[string]string{"type": "azure", "container": container, "account_name": account}, nil
		}
		u.Path, u.RawPath = "", ""
		return path, map[string]string{"type": "http", "url": u.String()}, nil
	}
	return "", nil, &Invalid{field, "The field " + field + " has the scheme " + quoted(u.Scheme) + ", which models of the mesh cannot be fetched from. " +
		"Use pvc, s3, gs, http or https."}
}

func quoted(word string) string { return `"` + word + `"` }
