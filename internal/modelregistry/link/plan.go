// SPDX-License-Identifier: Apache-2.0

package link

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// attempts is how often at least a registry is asked to undeploy a service that is being deleted, and also how many
// failures in a row are told.
const attempts = 3

// Plan implements engine.Kind.
func (s services) Plan(isvc *v1beta1.InferenceService, seen Seen) engine.Plan {
	w := wishOf(isvc)
	if seen.Off || !w.linked() {
		return engine.Plan{NoFinalizer: true, Status: unsaid(isvc)}
	}
	if seen.Problem != nil { // it may come back, and the finalizer stays as it is until then
		return engine.Plan{KeepChildren: true, Status: say(corev1.ConditionFalse, seen.Problem.reason, seen.Problem.message),
			Events: warn(seen.Problem.reason, seen.Problem.message)}
	}
	plan := engine.Plan{Calls: []engine.Call{{Name: callTell, Key: keyOf(isvc, seen.Registry), Request: entryOf(isvc, w, seen.Registry)}}}
	switch told, _ := seen.Told.Value.(Told); {
	case seen.Told.Done:
		message := "The model registry " + seen.Registry.Name + " knows it as inference service " + told.ID + "."
		plan.Status, plan.SetLabels = say(corev1.ConditionTrue, reasonLinked, message), labelled(isvc, w, told.ID, message)
	case seen.Told.Failures >= attempts:
		message := "The model registry " + seen.Registry.Name + " cannot be told of it: " + seen.Told.Err.Error()
		plan.Status, plan.Events = say(corev1.ConditionFalse, reasonFailed, message), warn(reasonFailed, message)
	case condition(isvc) == nil: // what was true before is not in doubt because it is asked again
		plan.Status = say(corev1.ConditionUnknown, reasonLinking, "The model registry "+seen.Registry.Name+" is being told of it. Nothing needs to be done.")
	}
	return plan
}

// keyOf tells the calls for one life of a service and one registry from all others.
func keyOf(isvc *v1beta1.InferenceService, r Registry) string { return string(isvc.UID) + " " + r.URL }

// labelled writes the id on the service when the status first tells of it. Whoever takes the label off later, such as a
// tool that holds the service to what is in Git, is not fought.
func labelled(isvc *v1beta1.InferenceService, w wish, id, message string) map[string]string {
	c := condition(isvc)
	if w.service == id || c != nil && c.Status == corev1.ConditionTrue && c.Message == message {
		return nil
	}
	return map[string]string{w.family.id(): id}
}

// entryOf is what the registry is to know of a service.
func entryOf(isvc *v1beta1.InferenceService, w wish, r Registry) Entry {
	e := Entry{
		Registry: r, Environment: isvc.Namespace, Name: isvc.Name + "/" + string(isvc.UID),
		ID: w.service, Model: w.model, Version: w.version,
	}
	if m := isvc.Spec.Predictor.Model; m != nil && m.Runtime != nil {
		e.Runtime = *m.Runtime
	}
	if isvc.Status.URL != nil {
		e.URL = *isvc.Status.URL
	}
	return e
}

// Teardown implements engine.Teardown: the registry is asked to note the end, a few times and for a while. Then the service goes, whatever
// became of the registry.
func (s services) Teardown(isvc *v1beta1.InferenceService, seen Seen) engine.Ending {
	w := wishOf(isvc)
	if seen.Off || !w.linked() || seen.Ended.Done || left(isvc) {
		return engine.Ending{Finished: true}
	}
	if seen.Problem != nil {
		return giveUp("a model registry may still have it as deployed, and cannot be told: " + seen.Problem.message)
	}
	entry := entryOf(isvc, w, seen.Registry)
	entry.URL, entry.Runtime = "", ""
	calls := []engine.Call{{Name: callEnd, Key: keyOf(isvc, seen.Registry), Request: entry}}
	if seen.Ended.Failures >= attempts && !seen.Patient {
		return giveUp("the model registry " + seen.Registry.Name + " may still have it as deployed: " + seen.Ended.Err.Error())
	}
	stands := &v1beta1.InferenceServiceStatus{Status: v1beta1.Status{Conditions: own(isvc)}}
	return engine.Ending{Plan: engine.Plan{Calls: calls, Status: stands, RequeueAfter: s.patience}}
}

// giveUp tells of it; the next look finds that it was told, and lets the service go.
func giveUp(why string) engine.Ending {
	message := "It is deleted, but " + why + " Set its desiredState there to UNDEPLOYED."
	return engine.Ending{Plan: engine.Plan{
		Status: say(corev1.ConditionFalse, reasonLeft, message), Events: warn(reasonLeft, message), RequeueAfter: time.Millisecond,
	}}
}

// say is a status with our condition. It is no part of Ready, and says so when it is False.
func say(status corev1.ConditionStatus, reason, message string) *v1beta1.InferenceServiceStatus {
	c := v1beta1.Condition{Type: ConditionLinked, Status: status, Severity: v1beta1.SeverityInfo, Reason: reason, Message: message}
	return &v1beta1.InferenceServiceStatus{Status: v1beta1.Status{Conditions: []v1beta1.Condition{c}}}
}

func warn(reason, message string) []engine.Event {
	return []engine.Event{{Warning: true, Reason: reason, Message: message}}
}

// unsaid takes our condition off, if it is there.
func unsaid(isvc *v1beta1.InferenceService) any {
	if condition(isvc) == nil {
		return nil
	}
	return &v1beta1.InferenceServiceStatus{}
}

func condition(isvc *v1beta1.InferenceService) *v1beta1.Condition {
	for i := range isvc.Status.Conditions {
		if isvc.Status.Conditions[i].Type == ConditionLinked {
			return &isvc.Status.Conditions[i]
		}
	}
	return nil
}

// left tells whether the status says that the registry was given up.
func left(isvc *v1beta1.InferenceService) bool {
	c := condition(isvc)
	return c != nil && c.Reason == reasonLeft
}

// own is our condition as it stands.
func own(isvc *v1beta1.InferenceService) []v1beta1.Condition {
	return slices.DeleteFunc(slices.Clone(isvc.Status.Conditions), func(c v1beta1.Condition) bool { return c.Type != ConditionLinked })
}
