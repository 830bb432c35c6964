// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// part is one component of a service, in the form that most rules need.
type part struct {
	of   v1beta1.ComponentType
	path *field.Path
	// canary is a predictor on trial: it has no scaling of its own and may leave
	// out what the stable predictor says.
	canary bool

	pod   *v1beta1.PodSpec
	scale *v1beta1.ComponentExtensionSpec
	uris  []v1beta1.StorageUri

	predictor *v1beta1.PredictorSpec
	explainer *v1beta1.ExplainerSpec
}

func partsOf(isvc *v1beta1.InferenceService) []*part {
	spec, root := &isvc.Spec, field.NewPath("spec")
	parts := []*part{predictorPart(root.Child("predictor"), &spec.Predictor, false)}
	if t := spec.Transformer; t != nil {
		parts = append(parts, &part{of: v1beta1.TransformerComponent, path: root.Child("transformer"),
			pod: &t.PodSpec, scale: &t.ComponentExtensionSpec, uris: t.StorageUris})
	}
	if e := spec.Explainer; e != nil {
		parts = append(parts, &part{of: v1beta1.ExplainerComponent, path: root.Child("explainer"),
			pod: &e.PodSpec, scale: &e.ComponentExtensionSpec, uris: e.StorageUris, explainer: e})
	}
	for i := range spec.Canary {
		path := root.Child("canary").Index(i).Child("predictor")
		parts = append(parts, predictorPart(path, &spec.Canary[i].Predictor.PredictorSpec, true))
	}
	return parts
}

func predictorPart(path *field.Path, p *v1beta1.PredictorSpec, canary bool) *part {
	return &part{of: v1beta1.PredictorComponent, path: path, canary: canary,
		pod: &p.PodSpec, scale: &p.ComponentExtensionSpec, uris: p.StorageUris, predictor: p}
}

// framework is a block of a predictor for models of one framework.
type framework struct {
	name string // of the field, which is also the name of the format
	spec **v1beta1.PredictorExtensionSpec
	// v2 is true where the server has always spoken the newer protocol.
	v2 bool
}

// frameworks in the order in which they are looked for.
func frameworks(p *v1beta1.PredictorSpec) []framework {
	return []framework{
		{"sklearn", &p.SKLearn, false}, {"tensorflow", &p.Tensorflow, false}, {"xgboost", &p.XGBoost, false},
		{"pytorch", &p.PyTorch, false}, {"triton", &p.Triton, true}, {"onnx", &p.ONNX, true},
		{"huggingface", &p.HuggingFace, true}, {"pmml", &p.PMML, false}, {"lightgbm", &p.LightGBM, false},
		{"paddle", &p.Paddle, false},
	}
}

// frameworksOf are the blocks that are set.
func frameworksOf(p *v1beta1.PredictorSpec) []framework {
	return slices.DeleteFunc(frameworks(p), func(f framework) bool { return *f.spec == nil })
}

// block is a framework block or the model block.
type block struct {
	name string
	path *field.Path
	*v1beta1.PredictorExtensionSpec
}

func (p *part) blocks() []block {
	if p.predictor == nil {
		return nil
	}
	var out []block
	for _, f := range frameworksOf(p.predictor) {
		out = append(out, block{f.name, p.path.Child(f.name), *f.spec})
	}
	if m := p.predictor.Model; m != nil {
		out = append(out, block{"model", p.path.Child("model"), &m.PredictorExtensionSpec})
	}
	return out
}

// placed is a container and where it stands.
type placed struct {
	*corev1.Container
	path *field.Path
}

func listed(list []corev1.Container, path *field.Path) []placed {
	out := make([]placed, 0, len(list))
	for i := range list {
		out = append(out, placed{&list[i], path.Index(i)})
	}
	return out
}

// containers are all that the user describes, wherever they stand.
func (p *part) containers() []placed {
	out := listed(p.pod.Containers, p.path.Child("containers"))
	out = append(out, listed(p.pod.InitContainers, p.path.Child("initContainers"))...)
	for _, b := range p.blocks() {
		out = append(out, placed{b.Core(), b.path})
	}
	if p.explainer != nil && p.explainer.ART != nil {
		out = append(out, placed{p.explainer.ART.Core(), p.path.Child("art")})
	}
	if p.predictor != nil && p.predictor.WorkerSpec != nil {
		worker := p.predictor.WorkerSpec
		out = append(out, listed(worker.Containers, p.path.Child("workerSpec", "containers"))...)
		out = append(out, listed(worker.InitContainers, p.path.Child("workerSpec", "initContainers"))...)
	}
	return out
}

// customContainers stands for containers of the user among the implementations.
const customContainers = "containers"

// implementations names what the predictor is told to run. Containers beside a
// block are helpers, unless one has the name of the server itself.
func implementations(p *v1beta1.PredictorSpec) []string {
	var found []string
	for _, f := range frameworksOf(p) {
		found = append(found, f.name)
	}
	if p.Model != nil {
		found = append(found, "model")
	}
	servers := 0
	for _, c := range p.Containers {
		if c.Name == mainContainer {
			servers++
		}
	}
	if servers > 0 || len(p.Containers) > 0 && len(found) == 0 {
		found = append(found, customContainers)
	}
	return found
}

// storageURI is where a component's one model comes from, with the field that
// says so.
func (p *part) storageURI() (string, *field.Path) {
	if p.explainer != nil && p.explainer.ART != nil {
		return p.explainer.ART.StorageURI, p.path.Child("art", "storageUri")
	}
	for _, b := range p.blocks() {
		if b.StorageURI != nil {
			return *b.StorageURI, b.path.Child("storageUri")
		}
	}
	for _, c := range listed(p.pod.Containers, p.path.Child("containers")) {
		if c.Name != mainContainer {
			continue
		}
		if i := envIndex(c.Env, envStorageURI); i >= 0 {
			return c.Env[i].Value, c.path.Child("env").Index(i).Child("value")
		}
	}
	return "", nil
}

// Environment variables that rules know.
const (
	envStorageURI   = "STORAGE_URI"
	envProtocol     = "PROTOCOL"
	envPythonPath   = "PYTHONPATH"
	envPipelineSize = "PIPELINE_PARALLEL_SIZE"
	envTensorSize   = "TENSOR_PARALLEL_SIZE"
)

func envIndex(env []corev1.EnvVar, name string) int {
	return slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
}
