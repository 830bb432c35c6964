// SPDX-License-Identifier: Apache-2.0

package knative

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
)

// serviceStatus is what we read of a Knative Service.
type serviceStatus struct {
	ObservedGeneration        int64                   `json:"observedGeneration"`
	Conditions                []v1beta1.Condition     `json:"conditions"`
	LatestReadyRevisionName   string                  `json:"latestReadyRevisionName"`
	LatestCreatedRevisionName string                  `json:"latestCreatedRevisionName"`
	URL                       *string                 `json:"url"`
	Address                   *v1beta1.Addressable    `json:"address"`
	Traffic                   []v1beta1.TrafficTarget `json:"traffic"`
}

// Status tells how far a component is: its revisions, its traffic and where it is reached, with the conditions that
// Knative reports. before is what was known last; canary is the share that the latest revision is to have. Without a
// live Knative Service nothing holds any more: its revisions went with it.
func Status(live *unstructured.Unstructured, before v1beta1.ComponentStatusSpec, canary *int64) (v1beta1.ComponentStatusSpec, kube.Conditions) {
	if live == nil {
		return v1beta1.ComponentStatusSpec{}, nil
	}
	now, err := statusOf(live)
	if err != nil {
		return before, unknown("Unreadable", fmt.Sprintf("The status of the Knative Service %s cannot be read: %v.", name(live), err))
	}
	conditions := now.reported()
	if now.outdated(live) {
		conditions = unknown("OutOfDate", fmt.Sprintf("Knative has not acted on the latest change of Service %s yet.", name(live)))
	}
	out := remembered(live, before)
	out.LatestCreatedRevision = now.LatestCreatedRevisionName
	out.LatestReadyRevision = now.LatestReadyRevisionName
	out.Traffic = now.Traffic
	if !now.outdated(live) {
		now.rollOut(&out, canary, conditions)
	}
	if conditions.IsTrue(ConditionReady) {
		if now.URL != nil {
			out.URL = now.URL
		}
		if now.Address != nil {
			out.Address = now.Address
		}
	}
	return out, conditions
}

func statusOf(live *unstructured.Unstructured) (serviceStatus, error) {
	out := serviceStatus{}
	raw, found, err := unstructured.NestedMap(live.Object, "status") // a copy: what is read must not be shared
	if err != nil || !found {
		return out, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &out)
	return out, err
}

// outdated tells that the status speaks of an earlier spec. A status that does not say of which is believed.
func (s serviceStatus) outdated(live *unstructured.Unstructured) bool {
	return s.ObservedGeneration != 0 && s.ObservedGeneration < live.GetGeneration()
}

func (s serviceStatus) reported() kube.Conditions {
	var out kube.Conditions
	for _, typ := range []string{ConditionReady, ConditionRoutesReady, ConditionConfigurationsReady} {
		for _, c := range s.Conditions {
			if c.Type == typ {
				out.Set(kube.Condition{Type: typ, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, Severity: c.Severity})
			}
		}
	}
	return out
}

func unknown(reason, message string) kube.Conditions {
	var out kube.Conditions
	for _, typ := range []string{ConditionReady, ConditionRoutesReady, ConditionConfigurationsReady} {
		out.Unknown(typ, reason, message)
	}
	return out
}

// rollOut remembers the last two revisions that had all the traffic. When a canary is asked for after the latest
// revision already got everything, the traffic is split between that revision and itself; then the one before it is
// what the user wants to go back to.
func (s serviceStatus) rollOut(out *v1beta1.ComponentStatusSpec, canary *int64, conditions kube.Conditions) {
	latest := s.LatestReadyRevisionName
	share, all := s.shares(latest)
	switch {
	case latest == "" || share == nil:
	case latest != out.LatestRolledoutRevision:
		if *share == 100 {
			out.PreviousRolledoutRevision, out.LatestRolledoutRevision = out.LatestRolledoutRevision, latest
		}
	case canary == nil || *canary >= 100 || *share == 100 || all != 100 || out.PreviousRolledoutRevision == "":
	case latest == s.LatestCreatedRevisionName && settled(conditions):
		out.LatestRolledoutRevision = out.PreviousRolledoutRevision
	}
}

// remembered is what was known last, with what the Service itself tells of it: which revision shares the traffic is
// written there first, and in the status only after that was seen. Without it the next decision would undo the last.
func remembered(live *unstructured.Unstructured, before v1beta1.ComponentStatusSpec) v1beta1.ComponentStatusSpec {
	targets, _, _ := unstructured.NestedSlice(live.Object, "spec", "traffic")
	for _, target := range targets {
		m, _ := target.(map[string]any)
		shared, _ := m["revisionName"].(string)
		if latest, _ := m["latestRevision"].(bool); latest || shared == "" || shared == before.LatestRolledoutRevision {
			continue
		}
		if shared != before.PreviousRolledoutRevision { // otherwise it went back to it
			before.PreviousRolledoutRevision = before.LatestRolledoutRevision
		}
		before.LatestRolledoutRevision = shared
	}
	return before
}

// shares are what a revision gets for being the latest, nil if nothing is said of that, and what it gets in all.
func (s serviceStatus) shares(revision string) (latest *int64, all int64) {
	for _, t := range s.Traffic {
		if t.RevisionName != revision || t.Percent == nil {
			continue
		}
		all += *t.Percent
		if t.LatestRevision != nil && *t.LatestRevision {
			latest = t.Percent
		}
	}
	return latest, all
}

// settled tells that no newer revision is on its way, for which the traffic is split already.
func settled(conditions kube.Conditions) bool {
	c, reported := conditions.Get(ConditionConfigurationsReady)
	return !reported || c.Status == metav1.ConditionTrue
}

func name(live *unstructured.Unstructured) string { return live.GetNamespace() + "/" + live.GetName() }
