// SPDX-License-Identifier: Apache-2.0

package trainedmodels

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Names that users and model servers know.
const (
	mainContainer = "kserve-container"
	envMultiModel = "MULTI_MODEL_SERVER"
)

// Block is the framework block or model that the user filled in, nil for
// custom containers.
func Block(spec *v1beta1.PredictorSpec) *v1beta1.PredictorExtensionSpec {
	if spec.Model != nil {
		return &spec.Model.PredictorExtensionSpec
	}
	for _, ext := range []*v1beta1.PredictorExtensionSpec{
		spec.SKLearn, spec.XGBoost, spec.Tensorflow, spec.PyTorch, spec.Triton,
		spec.ONNX, spec.HuggingFace, spec.PMML, spec.LightGBM, spec.Paddle,
	} {
		if ext != nil {
			return ext
		}
	}
	return nil
}

// MultiModel tells whether the server takes its models from TrainedModels: it
// has no model of its own. Hugging Face servers may name theirs in arguments.
func MultiModel(spec *v1beta1.PredictorSpec) bool {
	ext := Block(spec)
	if ext == nil {
		c := container(spec.Containers, mainContainer)
		return c != nil && valueOf(c.Env, envMultiModel) == "true"
	}
	hub := spec.HuggingFace != nil || spec.Model != nil && spec.Model.ModelFormat.Name == "huggingface"
	return ext.StorageURI == nil && ext.Storage == nil && len(spec.StorageUris) == 0 && !hub
}

// MemoryLimit is how much all models of a service may take together: what its
// server may. Nil means that nobody set a limit.
func MemoryLimit(isvc *v1beta1.InferenceService) *resource.Quantity {
	spec := &isvc.Spec.Predictor
	var limits corev1.ResourceList
	if ext := Block(spec); ext != nil {
		limits = ext.Resources.Limits
	} else if c := container(spec.Containers, mainContainer); c != nil {
		limits = c.Resources.Limits
	}
	limit, ok := limits[corev1.ResourceMemory]
	if !ok || limit.IsZero() {
		return nil
	}
	return &limit
}

// Fit shares out the memory of a server. A model that has its place, as its
// status says, keeps it, so that none is thrown out while it serves; then the
// oldest come first. One that is too large waits and does not keep smaller ones
// out. Models that are being deleted are in neither list. Without a limit
// everything fits.
func Fit(models []v1alpha1.TrainedModel, limit *resource.Quantity) (fits, left []v1alpha1.TrainedModel) {
	queue := slices.DeleteFunc(slices.Clone(models), func(tm v1alpha1.TrainedModel) bool { return tm.DeletionTimestamp != nil })
	slices.SortFunc(queue, precedence)
	if limit == nil || limit.IsZero() {
		return queue, nil
	}
	free := limit.DeepCopy()
	for _, tm := range queue {
		if tm.Spec.Model.Memory.Cmp(free) > 0 {
			left = append(left, tm)
			continue
		}
		free.Sub(tm.Spec.Model.Memory)
		fits = append(fits, tm)
	}
	return fits, left
}

func precedence(a, b v1alpha1.TrainedModel) int {
	if placedA, placedB := placed(&a), placed(&b); placedA != placedB {
		if placedA {
			return -1
		}
		return 1
	}
	if c := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// placed tells whether a model was given its place in the service that it names
// now.
func placed(tm *v1alpha1.TrainedModel) bool {
	c := conditionOf(&tm.Status.Status, memoryAvailable)
	return c != nil && c.Status == corev1.ConditionTrue && speaksOfPresent(tm)
}

// speaksOfPresent tells whether the status is about the present spec. Earlier
// controllers did not say which generation they looked at; they are believed.
func speaksOfPresent(tm *v1alpha1.TrainedModel) bool {
	return tm.Status.ObservedGeneration == 0 || tm.Status.ObservedGeneration == tm.Generation
}

func conditionOf(s *v1beta1.Status, typ string) *v1beta1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == typ {
			return &s.Conditions[i]
		}
	}
	return nil
}

func container(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func valueOf(env []corev1.EnvVar, name string) string {
	if i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == name }); i >= 0 {
		return env[i].Value
	}
	return ""
}
