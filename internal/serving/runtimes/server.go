// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Servers that need something of their own.
const (
	mlserver    = "mlserver"
	triton      = "tritonserver"
	torchserve  = "torchserve"
	tensorflow  = "tensorflow-serving"
	huggingface = "huggingfaceserver"
	vllm        = "vllmserver"
)

// serverTypes are the servers of runtimes from before there was an annotation.
var serverTypes = map[string]string{
	"kserve-mlserver":           mlserver,
	"kserve-torchserve":         torchserve,
	"kserve-tritonserver":       triton,
	"kserve-tensorflow-serving": tensorflow,
	"kserve-huggingfaceserver":  huggingface,
	"kserve-vllmserver":         vllm,
}

// modelClasses are the classes by which MLServer knows formats.
var modelClasses = map[string]string{
	"xgboost":  "mlserver_xgboost.XGBoostModel",
	"lightgbm": "mlserver_lightgbm.LightGBMModel",
	"mlflow":   "mlserver_mlflow.MLflowRuntime",
}

const sklearnClass = "mlserver_sklearn.SKLearnModel"

func serverType(rt *Runtime) string {
	if kind := rt.Annotations[v1beta1.AnnotationServerType]; kind != "" {
		return kind
	}
	return serverTypes[rt.Name]
}

// defaults is what a server needs that neither the user nor the runtime says.
type defaults struct {
	kind string
	// container is the model's, with additions.
	container corev1.Container
	labels    map[string]string
	protocol  v1beta1.InferenceServiceProtocol
}

// defaultsFor applies what is known of the server in a runtime.
func defaultsFor(isvc *v1beta1.InferenceService, predictor *v1beta1.PredictorSpec, rt *Runtime) defaults {
	model := predictor.Model
	d := defaults{kind: serverType(rt), container: *model.Container.Core().DeepCopy()}
	if model.ProtocolVersion != nil {
		d.protocol = *model.ProtocolVersion
	}
	stored := model.StorageURI != nil || model.Storage != nil || len(predictor.StorageUris) > 0
	switch d.kind {
	case mlserver:
		d.mlserver(isvc.Name, model.ModelFormat.Name, stored)
	case triton:
		d.speak(v1beta1.ProtocolV2)
		if !stored {
			d.container.Args = append(d.container.Args, "--model-control-mode=explicit")
		}
	case torchserve:
		d.torchserve()
	}
	if i := lowestRank(&rt.Spec); i < len(ranked) {
		d.speak(ranked[i])
	}
	d.speak(v1beta1.ProtocolV1)
	return d
}

// speak sets the protocol unless there is one.
func (d *defaults) speak(p v1beta1.InferenceServiceProtocol) {
	if d.protocol == "" {
		d.protocol = p
	}
}

func (d *defaults) mlserver(service, format string, stored bool) {
	d.speak(v1beta1.ProtocolV2)
	if stored {
		d.env("MLSERVER_MODEL_NAME", service)
		d.env("MLSERVER_MODEL_URI", modelsDir)
	} else {
		d.env("MLSERVER_LOAD_MODELS_AT_STARTUP", "false")
	}
	class, ok := modelClasses[format]
	if !ok {
		class = sklearnClass
	}
	d.labels = map[string]string{v1beta1.LabelModelClass: class}
}

func (d *defaults) torchserve() {
	d.speak(v1beta1.ProtocolV1)
	envelope := "kserve"
	if d.protocol == v1beta1.ProtocolV2 || d.protocol == v1beta1.ProtocolGRPCV2 {
		envelope = "kservev2"
	}
	d.labels = map[string]string{v1beta1.LabelServiceEnvelope: envelope}
	setEnv(&d.container, "PROTOCOL_VERSION", string(d.protocol))
}

// env adds a variable unless the user has set it.
func (d *defaults) env(name, value string) {
	for i := range d.container.Env {
		if d.container.Env[i].Name == name {
			return
		}
	}
	d.container.Env = append(d.container.Env, corev1.EnvVar{Name: name, Value: value})
}

// imageFor is the image of a container in the wanted version, and in the build
// for the hardware that the container asks for. A digest says exactly which
// image is meant, so it is left alone.
func imageFor(c *corev1.Container, version *string, server string) string {
	if strings.Contains(c.Image, "@") {
		return c.Image
	}
	repository, tag := splitTag(c.Image)
	if version != nil && *version != "" {
		return repository + ":" + *version
	}
	if tag == "" {
		return c.Image
	}
	gpu := wantsNvidia(c.Resources.Limits)
	switch server {
	case tensorflow, torchserve, huggingface:
		if gpu && !strings.HasSuffix(tag, "-gpu") {
			tag += "-gpu"
		}
	case vllm:
		if !gpu && !strings.HasSuffix(repository, "-cpu") {
			repository += "-cpu"
		}
	}
	return repository + ":" + tag
}

// splitTag tells a tag from the port of a registry.
func splitTag(image string) (repository, tag string) {
	if i := strings.LastIndexByte(image, ':'); i >= 0 && !strings.Contains(image[i:], "/") {
		return image[:i], image[i+1:]
	}
	return image, ""
}

// wantsNvidia tells whether a whole GPU or a slice of one is asked for.
func wantsNvidia(limits corev1.ResourceList) bool {
	for name, quantity := range limits {
		if (name == nvidiaGPU || strings.HasPrefix(string(name), "nvidia.com/mig")) && !quantity.IsZero() {
			return true
		}
	}
	return false
}
