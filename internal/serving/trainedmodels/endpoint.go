// SPDX-License-Identifier: Apache-2.0

package trainedmodels

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

const (
	transformerContainer = "transformer-container"
	envProtocol          = "PROTOCOL"
	envModelName         = "MLSERVER_MODEL_NAME"
	argModelName         = "--model_name"
)

// RuntimeAsked is the runtime that says which protocol a predictor speaks.
// Empty means that the predictor says it itself, or is chosen to speak v1.
func RuntimeAsked(spec *v1beta1.PredictorSpec) string {
	if m := spec.Model; m != nil && m.Runtime != nil && m.ProtocolVersion == nil {
		return *m.Runtime
	}
	return ""
}

// Getter is the part of the engine's reader that runtimes are read through.
type Getter interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
}

// ReadRuntime finds a runtime by name, in the namespace first; nil if there is
// none.
func ReadRuntime(ctx context.Context, r Getter, namespace, name string) (*v1alpha1.ServingRuntimeSpec, error) {
	own := &v1alpha1.ServingRuntime{}
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, own)
	if err == nil {
		return &own.Spec, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	shared := &v1alpha1.ClusterServingRuntime{}
	err = r.Get(ctx, client.ObjectKey{Name: name}, shared)
	if err == nil {
		return &shared.Spec, nil
	}
	return nil, client.IgnoreNotFound(err)
}

// Protocol is what a predictor speaks. The runtime is needed when RuntimeAsked
// names one.
func Protocol(spec *v1beta1.PredictorSpec, rt *v1alpha1.ServingRuntimeSpec) v1beta1.InferenceServiceProtocol {
	if c := container(spec.Containers, transformerContainer); c != nil { // it takes the requests for both
		return protocolOf(c)
	}
	switch ext := Block(spec); {
	case ext == nil && len(spec.Containers) > 0:
		return protocolOf(&spec.Containers[0])
	case ext == nil:
		return v1beta1.ProtocolV1
	case ext.ProtocolVersion != nil:
		return *ext.ProtocolVersion
	case spec.Triton != nil:
		return v1beta1.ProtocolV2
	case RuntimeAsked(spec) == "" || rt == nil || len(rt.ProtocolVersions) == 0:
		return v1beta1.ProtocolV1
	}
	for _, p := range rt.ProtocolVersions {
		if p == v1beta1.ProtocolV1 || p == v1beta1.ProtocolV2 {
			return p
		}
	}
	return rt.ProtocolVersions[0]
}

func protocolOf(c *corev1.Container) v1beta1.InferenceServiceProtocol {
	if said := valueOf(c.Env, envProtocol); said != "" {
		return v1beta1.InferenceServiceProtocol(said)
	}
	return v1beta1.ProtocolV1
}

// Path is where a server answers for a model; empty for a protocol that has no
// paths.
func Path(model string, p v1beta1.InferenceServiceProtocol) string {
	switch p {
	case v1beta1.ProtocolV1:
		return "/v1/models/" + model + ":predict"
	case v1beta1.ProtocolV2:
		return "/v2/models/" + model + "/infer"
	}
	return ""
}

// PredictPath is where a service answers predictions, below its address. A
// server of several models has no path of its own. The error says that nothing
// there answers over HTTP.
func PredictPath(isvc *v1beta1.InferenceService, rt *v1alpha1.ServingRuntimeSpec) (string, error) {
	var p v1beta1.InferenceServiceProtocol
	switch t := isvc.Spec.Transformer; {
	case t != nil && len(t.Containers) > 0:
		p = protocolOf(&t.Containers[0])
	case t != nil:
		p = v1beta1.ProtocolV1
	case MultiModel(&isvc.Spec.Predictor):
		return "", nil
	default:
		p = Protocol(&isvc.Spec.Predictor, rt)
	}
	path := Path(modelName(isvc), p)
	if path == "" {
		return "", fmt.Errorf("it speaks %s, and requests are sent over HTTP in v1 or v2", p)
	}
	return path, nil
}

// modelName is the name under which the server knows the model: what it was
// told, or else the name of the service.
func modelName(isvc *v1beta1.InferenceService) string {
	spec := &isvc.Spec.Predictor
	var args [][]string
	if t := isvc.Spec.Transformer; t != nil && len(t.Containers) > 0 {
		args = append(args, t.Containers[0].Args)
	}
	if c := container(spec.Containers, transformerContainer); c != nil {
		args = append(args, c.Args)
	}
	ext := Block(spec)
	if ext != nil {
		args = append(args, ext.Args)
	} else if len(spec.Containers) > 0 {
		args = append(args, spec.Containers[0].Args)
	}
	for i, list := range args {
		if ext != nil && i == len(args)-1 { // MLServer is told in a variable, which comes before arguments
			if name := valueOf(ext.Env, envModelName); name != "" {
				return name
			}
		}
		if name := argument(list, argModelName); name != "" {
			return name
		}
	}
	return isvc.Name
}

// argument is the value of a flag, in either way of writing it; the last counts.
func argument(args []string, flag string) (value string) {
	for i, arg := range args {
		if said, ok := strings.CutPrefix(arg, flag+"="); ok {
			value = said
		}
		if arg == flag && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			value = args[i+1]
		}
	}
	return value
}
