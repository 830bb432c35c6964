// SPDX-License-Identifier: Apache-2.0

package trainedmodels

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
)

// Conditions of a model.
const (
	serviceReady    = "InferenceServiceReady"
	memoryAvailable = "MemoryResourceAvailable"
	multiModel      = "IsMMSPredictor"
)

// Reasons.
const (
	reasonMissing   = "InferenceServiceMissing"
	reasonNotReady  = "InferenceServiceNotReady"
	reasonNoMemory  = "MemoryResourceNotAvailable"
	reasonOneModel  = "IsNotMMSPredictor"
	reasonGone      = "InferenceServiceDeleted"
	reasonUndecided = "NotLookedAt"
)

// Plan implements engine.Kind.
func (trained) Plan(tm *v1alpha1.TrainedModel, seen Seen) engine.Plan {
	if seen.Service == nil {
		return orphan(tm)
	}
	cs := kube.Conditions{}
	problem := judge(&cs, tm, &seen)
	status := newStatus(tm, cs)
	if cs.IsTrue(multiModel) && cs.IsTrue(memoryAvailable) {
		address(status, tm, &seen)
	}
	return engine.Plan{Status: status, Problem: problem}
}

// orphan: a model goes with the service that it was added to. One that comes
// before its service waits for it.
func orphan(tm *v1alpha1.TrainedModel) engine.Plan {
	if sawService(tm) {
		return engine.Plan{DeleteSelf: &engine.Event{Reason: reasonGone,
			Message: fmt.Sprintf("InferenceService %s is gone, and the model with it.", tm.Spec.InferenceService)}}
	}
	missing := engine.WaitFor(reasonMissing, "InferenceService %s does not exist. Create it, or name another one in spec.inferenceService.", tm.Spec.InferenceService)
	const later = "It is told when the InferenceService exists."
	cs := kube.Conditions{}
	cs.False(serviceReady, reasonMissing, missing.Message)
	cs.Unknown(multiModel, reasonUndecided, later)
	cs.Unknown(memoryAvailable, reasonUndecided, later)
	return engine.Plan{Status: newStatus(tm, cs), Problem: missing}
}

// sawService tells from the status whether the service that the model names
// existed once.
func sawService(tm *v1alpha1.TrainedModel) bool {
	c := conditionOf(&tm.Status.Status, serviceReady)
	return c != nil && c.Reason != reasonMissing && speaksOfPresent(tm)
}

// judge says what keeps the server from serving the model.
func judge(cs *kube.Conditions, tm *v1alpha1.TrainedModel, seen *Seen) *engine.Problem {
	isvc := seen.Service
	readiness(cs, isvc)
	var problem *engine.Problem
	if MultiModel(&isvc.Spec.Predictor) {
		cs.True(multiModel, "", "")
	} else {
		problem = engine.MustChange(reasonOneModel, "InferenceService %s has a model of its own and takes no other. Leave out the storage of its predictor "+
			"(or, if it runs a container of yours, set %s=true there), or name another service in spec.inferenceService.", isvc.Name, envMultiModel)
		cs.False(multiModel, problem.Reason, problem.Message)
	}
	if seen.fits(tm.Name) {
		cs.True(memoryAvailable, "", "")
		return problem
	}
	full := engine.WaitFor(reasonNoMemory, "The model needs %s, which InferenceService %s has not left: its models share a memory limit of %s. "+
		"Raise the limit of its predictor, or delete other models.", tm.Spec.Model.Memory.String(), isvc.Name, MemoryLimit(isvc).String())
	cs.False(memoryAvailable, full.Reason, full.Message)
	if problem != nil {
		return problem
	}
	return full
}

// readiness repeats what the service says of itself.
func readiness(cs *kube.Conditions, isvc *v1beta1.InferenceService) {
	said := conditionOf(&isvc.Status.Status, v1beta1.ConditionReady)
	if said != nil && said.Status == corev1.ConditionTrue {
		cs.True(serviceReady, "", "")
		return
	}
	why := "It has not said why yet; look at its conditions."
	if said != nil && said.Message != "" {
		why = strings.TrimSuffix(said.Message, ".") + "."
	}
	message := fmt.Sprintf("InferenceService %s is not ready: %s", isvc.Name, why)
	if said != nil && said.Status == corev1.ConditionFalse {
		cs.False(serviceReady, reasonNotReady, message)
		return
	}
	cs.Unknown(serviceReady, reasonNotReady, message)
}

// newStatus sums up. What the user must change comes before what passes.
func newStatus(tm *v1alpha1.TrainedModel, cs kube.Conditions) *v1alpha1.TrainedModelStatus {
	cs.Summarise(v1beta1.ConditionReady, "", multiModel, memoryAvailable, serviceReady)
	slices.SortFunc(cs, func(a, b kube.Condition) int { return strings.Compare(a.Type, b.Type) })
	s := &v1alpha1.TrainedModelStatus{}
	s.ObservedGeneration = tm.Generation
	s.Annotations = tm.Status.Annotations
	s.Conditions = kube.Render(cs, func(c kube.Condition) v1beta1.Condition {
		out := v1beta1.Condition{Type: c.Type, Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}
		if c.Status == metav1.ConditionTrue {
			out.Reason, out.Message = "", ""
		}
		return out
	})
	return s
}

// address is where the server answers for the model: below where the service
// is reached, which the service itself keeps while it is away for a moment.
func address(s *v1alpha1.TrainedModelStatus, tm *v1alpha1.TrainedModel, seen *Seen) {
	spec := &seen.Service.Spec.Predictor
	if RuntimeAsked(spec) != "" && seen.Runtime == nil {
		s.URL, s.Address = tm.Status.URL, tm.Status.Address // the protocol is not known now
		return
	}
	path := Path(tm.Name, Protocol(spec, seen.Runtime))
	s.URL = below(seen.Service.Status.URL, path)
	if a := seen.Service.Status.Address; a != nil && below(a.URL, path) != nil {
		s.Address = &v1beta1.Addressable{URL: below(a.URL, path)}
	}
}

func below(url *string, path string) *string {
	if url == nil || *url == "" {
		return nil
	}
	whole := strings.TrimSuffix(*url, "/") + path
	return &whole
}
