// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/runtimes"
)

// typesName is the ConfigMap that the mesh of each pod reads.
const typesName = "tc-config"

// constraint is what the labels of a pod must have for models of a type.
type constraint struct {
	Required []string `json:"required"`
}

// rpc says where in a request the name of the model is.
type rpc struct {
	IDExtractionPath []int `json:"idExtractionPath"`
	VModelID         bool  `json:"vModelId"`
}

// constraints tell the mesh which pods may have models of which type, and how to find out which model is asked for.
func (p *planner) constraints() *corev1.ConfigMap {
	types := map[string]constraint{"_default": {Required: []string{"_no_runtime"}}} // which no pod has
	for name, spec := range p.seen.Runtimes {
		for _, typ := range typesOf("rt:"+name, model.Formats(spec), model.Protocols(spec, p.seen.RESTProxy.Enabled)) {
			types[typ] = constraint{Required: strings.Split(typ, "|")}
		}
	}
	methods := map[string]any{"allowOtherRpcs": true, "rpcConfigs": map[string]rpc{
		"inference.GRPCInferenceService/ModelInfer":                         {[]int{1}, true},
		"inference.GRPCInferenceService/ModelMetadata":                      {[]int{1}, true},
		"tensorflow.serving.PredictionService/Predict":                      {[]int{1, 1}, true},
		"org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions": {[]int{1}, true},
	}}
	labels := runtimes.ServiceLabels("")
	delete(labels, runtimes.LabelService)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: typesName, Labels: labels},
		BinaryData: map[string][]byte{"type_constraints": encoded(types), "dataplane_api_config": encoded(methods)},
	}
}

// typesOf are the types of models that a runtime serves: those that name it, those of its formats, and those of its formats
// that are asked for with a protocol.
func typesOf(pinned string, formats, protocols []string) []string {
	out := append([]string{pinned}, formats...)
	for _, format := range formats {
		for _, protocol := range protocols {
			out = append(out, format+"|"+protocol)
		}
	}
	return out
}

// encoded is the same text for the same content.
func encoded(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte("{}") // texts and numbers always encode
	}
	return raw
}
