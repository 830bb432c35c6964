// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/resolve"
)

// AtZero says which components have no pods because nobody asks for them. It is no reason to be unready: the next request
// brings one.
func (j Judge) AtZero(cs *kube.Conditions) {
	var names []string
	for _, c := range j.Parts.List() {
		if j.atZero(c) {
			names = append(names, string(c.Component))
		}
	}
	if len(names) > 0 {
		cs.True(scaledToZero, "NoRequests", "No request came for a while, so that there is no pod of the "+strings.Join(names, " and the ")+
			" now. The next request starts one and waits for it.")
	}
}

func (j Judge) atZero(c *resolve.Component) bool {
	d := j.Seen.Deployments[c.Name]
	return c.Led && c.Activation.Min == 0 && d != nil && d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}

// waking tells that a component which was ready has gone from no pod to some that are not ready yet, and nothing is wrong
// with them so far: requests wait for them, and nothing failed.
func (j Judge) waking(c *resolve.Component) bool {
	d := j.Seen.Deployments[c.Name]
	before, said := j.Before(ReadyConditions[c.Component])
	if !c.Led || d == nil || !said || before.Status != metav1.ConditionTrue || j.Isvc.Status.ObservedGeneration != j.Isvc.Generation {
		return false
	}
	f, found := cause.Of(d, j.Seen.PodsOf(c.Name))
	return !cause.Late(d) && (!found || !f.Blocking)
}

// wakingModel keeps what was said of a model while its first pod comes.
func (j Judge) wakingModel(c *resolve.Component, s *v1beta1.ModelStatus) {
	before := j.modelBefore(c)
	if s.TransitionStatus == v1beta1.InProgress && before != nil && before.TransitionStatus == v1beta1.UpToDate && (j.atZero(c) || j.waking(c)) {
		s.TransitionStatus = v1beta1.UpToDate
		s.ModelRevisionStates = before.ModelRevisionStates.DeepCopy()
	}
}
