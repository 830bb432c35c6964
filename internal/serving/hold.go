// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/modelmesh"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/serverless"
	"github.com/modelplane/modelplane/internal/serving/status"
)

const reasonAutoUpdateDisabled = "AutoUpdateDisabled"

// heldByConfig is the plan while a part of the configuration is not known: it was
// wrong already when we started, so that its default is no more than a guess.
// What runs goes on as it is, and says so; what is new or was changed waits.
func heldByConfig(judge status.Judge, begun engine.Plan) engine.Plan {
	isvc, seen := judge.Isvc, judge.Seen
	message := seen.ConfigProblem.Fault + " Correct it; until then nothing is made or changed."
	before, _ := judge.Before(status.PredictorReady)
	told := before.Reason == status.ReasonInvalidConfig // of a change that waits, or of a new service
	if seen.Mode == config.ModeModelMesh {
		plan := modelmesh.Plan(isvc, seen, begun)
		plan.KeepChildren = true
		return plan
	}
	if !seen.Runs() || resolve.Changed(isvc) || told {
		return judge.Fail(&resolve.Failure{Of: v1beta1.PredictorComponent, Problem: engine.WaitFor(status.ReasonInvalidConfig, "%s", message)})
	}
	return engine.Plan{
		KeepChildren: true,
		Status:       held(judge, status.ReasonInvalidConfig, message),
		Events:       []engine.Event{{Warning: true, Reason: status.ReasonInvalidConfig, Message: message}},
	}
}

// unwanted tells whether the plan would differ from what runs because the
// platform has changed, and for no other reason, and the user does not want
// that while the service is ready.
func unwanted(isvc *v1beta1.InferenceService, seen *observed.State) bool {
	ready, _ := status.Judge{Isvc: isvc}.Before(v1beta1.ConditionReady)
	if !status.AutoUpdateDisabled(isvc) || ready.Status != metav1.ConditionTrue {
		return false
	}
	record := status.MadeOf(isvc)
	if inherited(isvc, seen) {
		return record == "" || resolve.PlatformChanged(isvc, seen, record)
	}
	return !strings.HasSuffix(record, ".") && resolve.PlatformChanged(isvc, seen, record)
}

// inherited tells whether a service runs on what another controller made and we have not taken over yet. Such children are
// not among those that we see, but their pods are.
func inherited(isvc *v1beta1.InferenceService, seen *observed.State) bool {
	if record := status.MadeOf(isvc); seen.Runs() || record != "" && !strings.HasSuffix(record, ".") {
		return false
	}
	for _, c := range resolve.Names(isvc, seen).List() {
		if !seen.Answers(c.Component) {
			return false
		}
	}
	return true
}

// keep is the plan while the platform's changes are not wanted. What children
// were made of is gone, so that nothing can be repaired either.
func keep(judge status.Judge) engine.Plan {
	if inherited(judge.Isvc, judge.Seen) {
		s := held(judge, reasonAutoUpdateDisabled, "What runs was made by another controller, and annotation "+v1beta1.AnnotationDisableAutoUpdate+
			" keeps it as it is. It is taken over with the next change of the service; remove the annotation to have that now.")
		status.RecordInherited(s, judge)
		return engine.Plan{KeepChildren: true, Status: s}
	}
	return engine.Plan{KeepChildren: true, Status: held(judge, reasonAutoUpdateDisabled,
		"The runtime or the platform's configuration has changed since the service was made, and annotation "+v1beta1.AnnotationDisableAutoUpdate+
			" keeps the change back. It comes with the next change of the service; remove the annotation to have it now.")}
}

// held says how the pods are and leaves the rest as it was said before.
func held(judge status.Judge, reason, message string) *v1beta1.InferenceServiceStatus {
	s := judge.Isvc.Status.DeepCopy()
	s.ObservedGeneration = judge.Isvc.Generation
	cs, theirs := kube.Conditions{}, inherited(judge.Isvc, judge.Seen)
	for _, c := range s.Conditions {
		if c.Type != engine.Stalled && c.Type != v1beta1.ConditionReady && (c.Type != status.LatestReady || theirs) {
			before, _ := judge.Before(c.Type)
			cs.Set(before)
		}
	}
	judge.Parts = resolve.Names(judge.Isvc, judge.Seen)
	switch {
	case theirs: // what it runs on is not seen
	case judge.Seen.Mode == config.ModeKnative:
		serverless.Judge(judge, &cs, s)
	default:
		for _, c := range judge.Parts.List() {
			cs.Set(judge.Standing(c))
		}
		judge.Latest(&cs, judge.Parts.List()...)
		s.ModelStatus = judge.ModelStatus(judge.Parts.Predictor)
	}
	cs.True(status.UpdatesHeld, reason, message)
	judge.Conclude(s, cs)
	return s
}
