// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// checkImplementation wants each component to say exactly one thing that it is
// to run. A canary that says nothing runs what the stable predictor runs.
func (s *service) checkImplementation(p *part) {
	choices, found := p.choices()
	want := fmt.Sprintf("exactly one of [%s] must be specified", strings.Join(choices, ", "))
	switch {
	case len(found) == 0 && p.canary:
	case len(found) == 0:
		s.Refuse(field.Required(p.path, want+", and there is none; add one"))
	case len(found) > 1:
		s.Refuse(field.Invalid(p.path, strings.Join(found, ", "), want+"; keep one and remove the others"+leftover(found)))
	default:
		s.checkCustom(p, found[0])
		s.checkFormat(p)
		s.checkSameKind(p, found[0])
	}
}

// checkSameKind wants a canary to be of the kind of the stable predictor, which
// it is laid over: a model over containers would be both.
func (s *service) checkSameKind(p *part, implementation string) {
	if !p.canary {
		return
	}
	if stable := implementations(s.parts[0].predictor); len(stable) == 1 && stable[0] != implementation {
		s.Refuse(field.Forbidden(p.path.Child(implementation), fmt.Sprintf("a canary takes over what it does not say from the stable predictor, "+
			"which has %s; use that here too", stable[0])))
	}
}

// choices are what a component can be told to run, and what it is told.
func (p *part) choices() (choices, found []string) {
	if p.predictor != nil {
		for _, f := range frameworks(p.predictor) {
			choices = append(choices, f.name)
		}
		return append(choices, "model", customContainers), implementations(p.predictor)
	}
	if p.explainer != nil {
		choices = append(choices, "art")
		if p.explainer.ART != nil {
			found = append(found, "art")
		}
	}
	if len(p.pod.Containers) > 0 {
		found = append(found, customContainers)
	}
	return append(choices, customContainers), found
}

// leftover explains a model that the user did not write.
func leftover(found []string) string {
	if !slices.Contains(found, "model") {
		return ""
	}
	return " (a framework block that was applied earlier is stored as model; kubectl replace removes it)"
}

// checkCustom looks at the server of the user, which tells in a variable which
// protocol it speaks.
func (s *service) checkCustom(p *part, implementation string) {
	if implementation != customContainers || p.predictor == nil {
		return
	}
	env := p.pod.Containers[0].Env
	i := envIndex(env, envProtocol)
	if i < 0 {
		return
	}
	known := []v1beta1.InferenceServiceProtocol{v1beta1.ProtocolV1, v1beta1.ProtocolV2}
	if said := v1beta1.InferenceServiceProtocol(env[i].Value); !slices.Contains(known, said) {
		s.Refuse(field.NotSupported(p.path.Child("containers").Index(0).Child("env").Index(i).Child("value"), said, known))
	}
}

func (s *service) checkFormat(p *part) {
	if m := p.predictor; m != nil && !p.canary && m.Model != nil && m.Model.ModelFormat.Name == "" {
		s.Refuse(field.Required(p.path.Child("model", "modelFormat", "name"), "name the format of the model, for example sklearn; a runtime is chosen by it"))
	}
}

// checkEnv refuses variables that would undo what the platform does, and containers that cannot be started.
func (s *service) checkEnv(p *part) {
	for _, c := range p.containers() {
		s.Refuse(pythonPath(c)...)
		s.Refuse(overLimit(c)...)
	}
	for _, c := range listed(p.pod.Containers, p.path.Child("containers")) {
		if i := envIndex(c.Env, envStorageURI); i >= 0 && p.predictor != nil && c.Name == transformerContainer {
			s.Refuse(field.Forbidden(c.path.Child("env").Index(i), "storage uri should not be specified in transformer container; "+
				"move "+envStorageURI+" to "+mainContainer+", which loads the model"))
		}
	}
}

// pythonPath refuses a variable that makes a server load code which is not in
// its image, such as a file beside the model.
func pythonPath(c placed) field.ErrorList {
	var out field.ErrorList
	for i, e := range c.Env {
		if e.Name == envPythonPath {
			out = append(out, field.Forbidden(c.path.Child("env").Index(i).Child("name"),
				"environment variable "+envPythonPath+" is not allowed for security reasons; put the code into the image instead"))
		}
	}
	return out
}

// overLimit refuses what the API server would refuse of the pods, where nobody looks.
func overLimit(c placed) field.ErrorList {
	var out field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
		asked := c.Resources.Requests[name]
		if limit, limited := c.Resources.Limits[name]; limited && asked.Cmp(limit) > 0 {
			out = append(out, field.Invalid(c.path.Child("resources", "requests").Key(string(name)), asked.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, &limit)))
		}
	}
	return out
}

// checkBlocks looks into framework and model blocks.
func (s *service) checkBlocks(p *part) {
	for _, b := range p.blocks() {
		if b.Name != "" {
			s.Refuse(field.Forbidden(b.path.Child("name"), "the 'name' field is not allowed here, because the runtime names the container; "+
				"remove it (spec.predictor.name names the predictor)"))
		}
		if b.name == "model" {
			continue
		}
		s.checkAccelerator(b)
		s.checkONNX(b)
		s.checkStorageKind(b)
	}
}

// checkAccelerator wants the tag of the image to fit the resources. Only blocks
// that stay blocks get here; images of a model follow from its runtime.
func (s *service) checkAccelerator(b block) {
	if b.name != "tensorflow" && b.name != "pytorch" || b.RuntimeVersion == nil {
		return
	}
	asked := false
	for name := range b.Resources.Limits {
		asked = asked || name == gpuNvidia || strings.HasPrefix(string(name), "nvidia.com/mig")
	}
	version := b.path.Child("runtimeVersion")
	switch built := strings.Contains(*b.RuntimeVersion, "-gpu"); {
	case asked && !built:
		s.Refuse(field.Invalid(version, *b.RuntimeVersion, "RuntimeVersion is not GPU enabled but GPU resources are requested; "+
			"use a version that ends with -gpu, or remove the GPU from resources.limits"))
	case built && !asked:
		s.Refuse(field.Invalid(version, *b.RuntimeVersion, "RuntimeVersion is GPU enabled but GPU resources are not requested; "+
			"add the GPU to resources.limits, or use a version without -gpu"))
	}
}

func (s *service) checkONNX(b block) {
	if b.name != "onnx" || b.StorageURI == nil {
		return
	}
	if ext := path.Ext(*b.StorageURI); ext != "" && ext != ".onnx" {
		s.Refuse(field.Invalid(b.path.Child("storageUri"), address.Shown(*b.StorageURI), "must name a folder or a file that ends with .onnx"))
	}
}

// storageKinds are the storages that a storage secret can have keys for.
var storageKinds = []string{"azure", "gcs", "hdfs", "http", "pvc", "s3", "webhdfs"}

// checkStorageKind refuses a storage that nothing could fetch from.
func (s *service) checkStorageKind(b block) {
	if b.Storage == nil {
		return
	}
	if kind, ok := b.Storage.Parameters["type"]; ok && !slices.Contains(storageKinds, kind) {
		s.Refuse(field.NotSupported(b.path.Child("storage", "parameters").Key("type"), kind, storageKinds))
	}
}
