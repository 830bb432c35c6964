// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/resolve"
)

// ModelStatus tells how far the model of a predictor is. What was recorded of a
// failure stays word by word while the failure lasts, although pods come and
// go, and is cleared when it is over.
func (j Judge) ModelStatus(c *resolve.Component) *v1beta1.ModelStatus {
	if c.Failed != nil {
		return invalidModel(j.modelBefore(c), c.Failed)
	}
	pods, d := j.Seen.PodsOf(c.Name), j.Seen.Deployments[c.Name]
	if d == nil {
		return j.ModelStatusOf(j.modelBefore(c), pods, false, func() (cause.Finding, bool) { return cause.Finding{}, false })
	}
	s := j.ModelStatusOf(j.modelBefore(c), pods, j.loaded(c), func() (cause.Finding, bool) { return cause.Of(d, pods) })
	// Pods that are about to give way are one copy too many for a moment.
	s.ModelCopies.TotalCopies = min(s.ModelCopies.TotalCopies, int(ptr.Deref(d.Spec.Replicas, 1)))
	j.wakingModel(c, s)
	return s
}

// loaded tells whether every pod has the model that the spec asks for. While a
// Deployment's own status lags behind, what was said before stands, unless the
// spec has changed since.
func (j Judge) loaded(c *resolve.Component) bool {
	names := []string{c.Name}
	if w := c.Part.Worker; w != nil {
		names = append(names, w.Name)
	}
	before := j.modelBefore(c)
	was := before != nil && before.TransitionStatus == v1beta1.UpToDate && j.Isvc.Status.ObservedGeneration == j.Isvc.Generation
	for _, name := range names {
		d := j.Seen.Deployments[name]
		if d == nil || cause.Observed(d) && !kube.RolledOut(d) || !cause.Observed(d) && !was {
			return false
		}
	}
	return true
}

// ModelStatusOf tells how far a model is, given its pods, whether all of them have it, and why not.
func (j Judge) ModelStatusOf(before *v1beta1.ModelStatus, pods []corev1.Pod, ready bool, why func() (cause.Finding, bool)) *v1beta1.ModelStatus {
	s := &v1beta1.ModelStatus{
		TransitionStatus:    v1beta1.InProgress,
		ModelRevisionStates: &v1beta1.ModelRevisionStates{ActiveModelState: activeBefore(before, pods), TargetModelState: v1beta1.Pending},
		ModelCopies:         &v1beta1.ModelCopies{TotalCopies: countReady(pods)},
	}
	if ready {
		s.TransitionStatus = v1beta1.UpToDate
		s.ModelRevisionStates.ActiveModelState, s.ModelRevisionStates.TargetModelState = v1beta1.Loaded, v1beta1.Loaded
		return s
	}
	finding, found := why()
	switch {
	case found && finding.Blocking:
		s.TransitionStatus = v1beta1.BlockedByFailedLoad
		s.ModelRevisionStates.TargetModelState = v1beta1.FailedToLoad
		s.ModelCopies.FailedCopies = countFailed(pods)
		s.LastFailureInfo = failureInfo(before, v1beta1.ModelLoadFailed, finding.Message, finding)
	case fetching(pods):
		s.ModelRevisionStates.TargetModelState = v1beta1.Loading
	}
	return s
}

// modelBefore is what was last said of the model of a predictor or canary.
func (j Judge) modelBefore(c *resolve.Component) *v1beta1.ModelStatus {
	if c.Canary == "" {
		return j.Isvc.Status.ModelStatus
	}
	for i := range j.Isvc.Status.CanaryStatuses {
		if s := &j.Isvc.Status.CanaryStatuses[i]; s.Name == c.Canary {
			return s.ModelStatus
		}
	}
	return nil
}

// activeBefore: a model that was loaded goes on answering while pods of it are
// left, whatever becomes of its successor. As long as none was ever loaded nothing
// is said, by which dashboards tell a service that is new.
func activeBefore(before *v1beta1.ModelStatus, pods []corev1.Pod) v1beta1.ModelState {
	if before != nil && before.ModelRevisionStates != nil && before.ModelRevisionStates.ActiveModelState == v1beta1.Loaded && countReady(pods) > 0 {
		return v1beta1.Loaded
	}
	if before == nil || before.ModelRevisionStates == nil || before.ModelRevisionStates.ActiveModelState == "" {
		return ""
	}
	return v1beta1.Pending
}

// failureInfo keeps time and place of a failure that is already recorded.
func failureInfo(before *v1beta1.ModelStatus, reason v1beta1.FailureReason, message string, f cause.Finding) *v1beta1.FailureInfo {
	info := &v1beta1.FailureInfo{Location: f.Pod, Reason: reason, Message: message, ExitCode: f.ExitCode}
	if !f.Time.IsZero() {
		info.Time = &f.Time
	}
	if before != nil && before.LastFailureInfo != nil {
		last := before.LastFailureInfo
		if last.Reason == info.Reason && last.Message == info.Message && last.ExitCode == info.ExitCode {
			return last.DeepCopy()
		}
	}
	return info
}

// invalidModel tells that the predictor cannot be made.
func invalidModel(before *v1beta1.ModelStatus, f *resolve.Failure) *v1beta1.ModelStatus {
	s := &v1beta1.ModelStatus{}
	if before != nil {
		s = before.DeepCopy()
	}
	if s.ModelRevisionStates == nil {
		s.ModelRevisionStates = &v1beta1.ModelRevisionStates{}
	}
	s.TransitionStatus = v1beta1.InvalidSpec
	s.ModelRevisionStates.TargetModelState = v1beta1.FailedToLoad
	s.LastFailureInfo = &v1beta1.FailureInfo{Reason: f.Reason, Message: f.Problem.Message}
	return s
}

// blocked makes every failure that waiting will not mend visible where GitOps tools look: they call a service degraded by
// its transition, and take a condition that is False for one on its way. What is said of the model itself stays.
func (j Judge) blocked(s *v1beta1.InferenceServiceStatus, cs kube.Conditions) {
	if j.Seen.Mode == config.ModeModelMesh { // whose model it is not ours to judge
		return
	}
	for _, typ := range []string{PredictorReady, TransformerReady, ExplainerReady, LatestReady, CanaryReady, IngressReady} {
		c, said := cs.Get(typ)
		if !said || c.Status != metav1.ConditionFalse || c.Reason == reasonStopped {
			continue
		}
		if s.ModelStatus == nil {
			s.ModelStatus = &v1beta1.ModelStatus{}
		}
		if t := s.ModelStatus.TransitionStatus; t != v1beta1.BlockedByFailedLoad && t != v1beta1.InvalidSpec {
			s.ModelStatus.TransitionStatus = v1beta1.BlockedByFailedLoad
			s.ModelStatus.LastFailureInfo = failureInfo(j.Isvc.Status.ModelStatus, v1beta1.RuntimeUnhealthy, c.Message, j.behind(c.Message))
		}
		return
	}
}

// behind is what was found in a pod and is the cause of a condition with this message; nothing if it is another one.
func (j Judge) behind(message string) cause.Finding {
	if j.Parts == nil {
		return cause.Finding{}
	}
	for _, c := range append(j.Parts.List(), j.Parts.Canaries...) {
		d := j.Seen.Deployments[c.Name]
		if d == nil {
			continue
		}
		if f, found := cause.Of(d, j.Seen.PodsOf(c.Name)); found && strings.HasSuffix(message, f.Message) {
			return f
		}
	}
	return cause.Finding{}
}

// Blocked does the same for a problem that only the engine knows of, say a child that the API server refused.
func Blocked(status map[string]any, p *engine.Problem) {
	if status["deploymentMode"] == config.ModeModelMesh {
		return
	}
	model, _ := status["modelStatus"].(map[string]any)
	if model == nil {
		model = map[string]any{"transitionStatus": ""}
		status["modelStatus"] = model
	}
	if t := model["transitionStatus"]; t == string(v1beta1.BlockedByFailedLoad) || t == string(v1beta1.InvalidSpec) {
		return
	}
	model["transitionStatus"] = string(v1beta1.BlockedByFailedLoad)
	model["lastFailureInfo"] = map[string]any{"reason": string(v1beta1.RuntimeUnhealthy), "message": p.Message}
}

func countReady(pods []corev1.Pod) int {
	n := 0
	for i := range pods {
		if cause.Ready(&pods[i]) && pods[i].DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

func countFailed(pods []corev1.Pod) int {
	n := 0
	for i := range pods {
		if f, found := cause.Pod(&pods[i]); found && f.Blocking {
			n++
		}
	}
	return n
}

// fetching tells whether some pod is downloading its model.
func fetching(pods []corev1.Pod) bool {
	for i := range pods {
		for _, c := range pods[i].Status.InitContainerStatuses {
			if c.Name == storageInitializer && c.State.Running != nil {
				return true
			}
		}
	}
	return false
}

const storageInitializer = "storage-initializer"
