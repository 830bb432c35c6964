// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Annotations are what the pod webhook needs to know of a single model. A list
// of models needs none: it is injected by the controller.
func Annotations(s Source) map[string]string {
	out := map[string]string{}
	if s.Spec != nil {
		maps.Copy(out, specAnnotations(s.Spec))
	}
	if uri := s.uri(); uri != "" {
		out[v1beta1.AnnotationStorageSourceURI] = uri
		if s.ContainerName != "" {
			out[v1beta1.AnnotationStorageContainer] = s.ContainerName
		}
	}
	if c := s.Confidential; c != nil && c.Enabled {
		out[v1beta1.AnnotationConfidentialEnabled] = trueValue
		if c.ResourceID != nil && *c.ResourceID != "" {
			out[v1beta1.AnnotationConfidentialResource] = *c.ResourceID
		}
	}
	return out
}

func specAnnotations(spec *v1beta1.StorageSpec) map[string]string {
	out := map[string]string{v1beta1.AnnotationStorageSpec: trueValue}
	if spec.Parameters != nil {
		// A map of strings always has a JSON form.
		params, _ := json.Marshal(spec.Parameters)
		out[v1beta1.AnnotationStorageSpecParam] = string(params)
	}
	if spec.StorageKey != nil {
		out[v1beta1.AnnotationStorageSpecKey] = *spec.StorageKey
	}
	return out
}

// FromPod reads back what Annotations wrote, and leads a pod whose model is kept
// on nodes to the claim of that model. The source is empty for a pod without a
// model of that kind.
func FromPod(labels, annotations map[string]string) (Source, error) {
	uri := annotations[v1beta1.AnnotationStorageSourceURI]
	if uri == "" {
		return Source{}, nil
	}
	if key, ok := labels[v1beta1.LabelLocalModel]; ok {
		return localModel(uri, key, annotations)
	}
	s := Source{URI: uri, ContainerName: annotations[v1beta1.AnnotationStorageContainer]}
	if annotations[v1beta1.AnnotationConfidentialEnabled] == trueValue {
		s.Confidential = &v1beta1.ConfidentialSpec{Enabled: true}
		if id := annotations[v1beta1.AnnotationConfidentialResource]; id != "" {
			s.Confidential.ResourceID = &id
		}
	}
	if annotations[v1beta1.AnnotationStorageSpec] != trueValue {
		return s, nil
	}
	key := annotations[v1beta1.AnnotationStorageSpecKey]
	s.Spec = &v1beta1.StorageSpec{StorageKey: &key}
	if params := annotations[v1beta1.AnnotationStorageSpecParam]; params != "" {
		if json.Unmarshal([]byte(params), &s.Spec.Parameters) != nil {
			return Source{}, fmt.Errorf("annotation %s is no JSON object of texts; correct storage.parameters of the InferenceService",
				v1beta1.AnnotationStorageSpecParam)
		}
	}
	return s, nil
}

// localModel is a model that nodes keep in a claim, below the key of its address.
func localModel(uri, key string, annotations map[string]string) (Source, error) {
	claim := annotations[v1beta1.AnnotationLocalModelPVCName]
	if claim == "" {
		return Source{}, fmt.Errorf("the pod has label %s but no annotation %s; remove the label or let the webhook of InferenceService set both",
			v1beta1.LabelLocalModel, v1beta1.AnnotationLocalModelPVCName)
	}
	below := strings.TrimPrefix(uri, annotations[v1beta1.AnnotationLocalModelSourceURI])
	if !strings.HasPrefix(below, "/") {
		below = "/" + below
	}
	return Source{URI: schemePVC + "://" + claim + "/models/" + key + below}, nil
}
