// SPDX-License-Identifier: Apache-2.0

package predictors

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
)

func millis(at uint64) time.Time { return time.UnixMilli(int64(at)) } //nolint:gosec // a time

// predictorStatus is what a Predictor says.
func (t *task) predictorStatus() *v1alpha1.PredictorStatus {
	out := t.now
	out.TransitionStatus, out.ActiveModelState = cmp.Or(out.TransitionStatus, v1alpha1.InProgress), cmp.Or(out.ActiveModelState, v1beta1.Pending)
	cs := kube.Conditions{}
	ready := t.ready()
	cs.Set(ready)
	cs.Set(t.latest(ready))
	if len(t.model.Ignored) > 0 {
		cs.True(ConditionIgnored, "NoEffect", strings.Join(t.model.Ignored, " "))
	}
	out.Conditions = cs.Standard()
	return &out
}

// fromService is what an InferenceService says, in the words of Predictors.
func fromService(isvc *v1beta1.InferenceService) v1alpha1.PredictorStatus {
	out := v1alpha1.PredictorStatus{ActiveModelState: v1beta1.Pending}
	for _, c := range isvc.Status.Conditions {
		out.Available = out.Available || c.Type == conditionPredictor && answeredThen(string(c.Status), c.Reason)
	}
	m := isvc.Status.ModelStatus
	if m == nil {
		return out
	}
	out.TransitionStatus = v1alpha1.PredictorTransition(m.TransitionStatus)
	if s := m.ModelRevisionStates; s != nil {
		out.TargetModelState = s.TargetModelState
		if s.ActiveModelState != "" {
			out.ActiveModelState = s.ActiveModelState
		}
	}
	if c := m.ModelCopies; c != nil {
		out.TotalCopies, out.FailedCopies = c.TotalCopies, c.FailedCopies
	}
	if f := m.LastFailureInfo; f != nil {
		out.LastFailureInfo = &v1alpha1.PredictorFailure{
			Location: f.Location, Reason: v1alpha1.PredictorFailureReason(f.Reason), Message: f.Message, ModelID: f.ModelRevisionName, Time: f.Time,
		}
	}
	return out
}

// serviceStatus is our part of what an InferenceService says.
func (t *task) serviceStatus() *v1beta1.InferenceServiceStatus {
	ready := t.ready()
	answers := t.now.Available || ready.Status == metav1.ConditionTrue
	if answers { // the status of a service does not keep them for us, and the mesh need not be asked for them
		t.endpoints()
	}
	n, out := t.now, &v1beta1.InferenceServiceStatus{}
	out.ObservedGeneration = t.generation
	out.ModelStatus = &v1beta1.ModelStatus{
		TransitionStatus:    v1beta1.TransitionStatus(cmp.Or(n.TransitionStatus, v1alpha1.InProgress)),
		ModelRevisionStates: &v1beta1.ModelRevisionStates{ActiveModelState: n.ActiveModelState, TargetModelState: n.TargetModelState},
		ModelCopies:         &v1beta1.ModelCopies{FailedCopies: n.FailedCopies, TotalCopies: n.TotalCopies},
	}
	if f := n.LastFailureInfo; f != nil {
		out.ModelStatus.LastFailureInfo = &v1beta1.FailureInfo{
			Location: f.Location, Reason: v1beta1.FailureReason(f.Reason), Message: f.Message, ModelRevisionName: f.ModelID, Time: f.Time,
		}
	}
	if answers {
		of := v1beta1.ComponentStatusSpec{URL: &n.GrpcEndpoint, GrpcURL: &n.GrpcEndpoint}
		if n.HTTPEndpoint != "" {
			of.RestURL = &n.HTTPEndpoint
		}
		out.URL = &n.GrpcEndpoint
		if t.transformed { // whoever goes by the URL must not go past it
			out.URL = t.transformer
		}
		out.Components = map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{v1beta1.PredictorComponent: of}
	}
	latest := t.latest(ready)
	ready.Type, latest.Type, latest.Severity = conditionPredictor, conditionDeployment, v1beta1.SeverityInfo
	ingress := kube.Condition{Type: conditionIngress, Status: ready.Status, Reason: ready.Reason, Message: ready.Message}
	all := []kube.Condition{ingress, ready, t.summary(ready)}
	if latest.Status != ready.Status { // it is there only while something else answers than was asked for
		all = append(all, latest)
	}
	if latest.Status != metav1.ConditionTrue && ready.Status == metav1.ConditionTrue {
		// Whoever waits for a generation to be ready waits until it is the one that answers.
		out.ObservedGeneration = t.observed
	}
	for _, c := range all {
		out.Conditions = append(out.Conditions, v1beta1.Condition{
			Type: c.Type, Status: corev1.ConditionStatus(c.Status), Severity: c.Severity, Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}

// summary is whether the service is ready, where nobody but the mesh tells: its predictor is all of it. What somebody else
// says of a service that has more than a predictor stays.
func (t *task) summary(predictor kube.Condition) kube.Condition {
	if t.around == nil {
		return kube.Condition{Type: v1beta1.ConditionReady, Status: predictor.Status, Reason: predictor.Reason, Message: predictor.Message}
	}
	return *t.around
}
