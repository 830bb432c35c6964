// SPDX-License-Identifier: Apache-2.0

// Package status says how an InferenceService is: its conditions, how far its models are, and what is worth an event. It
// is the last step of a plan and judges what was observed; the rooms of the modes say which components they run and
// call it. It makes no child.
package status

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

// Judge says how one service is.
type Judge struct {
	Isvc *v1beta1.InferenceService
	Seen *observed.State
	// Parts are its components, nil where nothing was decided about them.
	Parts *resolve.Components
}

// Conditions of a service.
const (
	PredictorReady   = "PredictorReady"
	TransformerReady = "TransformerReady"
	ExplainerReady   = "ExplainerReady"
	IngressReady     = "IngressReady"
	CanaryReady      = "CanaryPredictorReady"
	// LatestReady is there only while the newest pods of a service have not taken over from older ones; with Knative it
	// is always there, and repeats what that says of its revisions.
	LatestReady      = resolve.LatestReady
	stoppedCondition = "Stopped"
	// settingsIgnored is there only when something that was asked for is not done.
	settingsIgnored = "SettingsIgnored"
	// UpdatesHeld is there only while what runs is not what would be made now.
	UpdatesHeld = "UpdatesHeld"
	// scaledToZero is there only while a component has no pods because nobody asks for it.
	scaledToZero = "ScaledToZero"
)

// Reasons that several conditions share.
const (
	reasonStopped       = "Stopped"
	reasonRunning       = "Running"
	ReasonStarting      = "Starting"
	ReasonInvalidConfig = "InvalidConfiguration"
)

// telling are the conditions that say something also when they are True.
var telling = []string{stoppedCondition, settingsIgnored, UpdatesHeld, CanaryReady, scaledToZero}

// ReadyConditions are those of the components, by component.
var ReadyConditions = map[v1beta1.ComponentType]string{
	v1beta1.PredictorComponent:   PredictorReady,
	v1beta1.TransformerComponent: TransformerReady,
	v1beta1.ExplainerComponent:   ExplainerReady,
}

// notPartOfReady carry a severity, as existing tools expect. Those of
// transformer and explainer count nevertheless.
func severityOf(condition string) string {
	switch condition {
	case v1beta1.ConditionReady, PredictorReady, IngressReady:
		return v1beta1.SeverityError
	}
	return v1beta1.SeverityInfo
}

// New has what every status of a service says.
func (j Judge) New() *v1beta1.InferenceServiceStatus {
	s := &v1beta1.InferenceServiceStatus{DeploymentMode: j.RecordedMode()}
	s.ObservedGeneration = j.Isvc.Generation
	s.Annotations = j.annotations()
	return s
}

// RecordedMode is the mode that the service keeps from now on. A guess is not
// kept.
func (j Judge) RecordedMode() string {
	if j.Seen.ConfigProblem != nil {
		return j.Isvc.Status.DeploymentMode
	}
	return j.Seen.Mode
}

// RecordRuntime says which runtime serves the model; exactly one name is set.
func (j Judge) RecordRuntime(s *v1beta1.InferenceServiceStatus) {
	switch rt := j.Parts.Predictor.Runtime; {
	case rt == nil:
	case rt.Cluster:
		s.ClusterServingRuntimeName = rt.Name
	default:
		s.ServingRuntimeName = rt.Name
	}
}

// Conclude sums up, and renders the conditions in the order of their names.
func (j Judge) Conclude(s *v1beta1.InferenceServiceStatus, cs kube.Conditions) {
	if _, said := cs.Get(stoppedCondition); !said {
		cs.False(stoppedCondition, reasonRunning, "The service is not stopped.")
	}
	parts := []string{PredictorReady}
	for _, part := range []string{TransformerReady, ExplainerReady} {
		if _, ok := cs.Get(part); ok {
			parts = append(parts, part)
		}
	}
	cs.Summarise(v1beta1.ConditionReady, "", append(parts, IngressReady)...)
	j.generation(s, cs)
	j.blocked(s, cs)
	slices.SortFunc(cs, func(a, b kube.Condition) int { return strings.Compare(a.Type, b.Type) })
	s.Conditions = kube.Render(cs, func(c kube.Condition) v1beta1.Condition {
		out := v1beta1.Condition{Type: c.Type, Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			Severity: severityOf(c.Type)}
		if out.Status == corev1.ConditionTrue && !slices.Contains(telling, c.Type) {
			out.Reason, out.Message = "", ""
		}
		return out
	})
}

// Ignored tells what has no effect. It is no reason to be unready.
func Ignored(cs *kube.Conditions, ignored []string) {
	if len(ignored) > 0 {
		cs.True(settingsIgnored, "NoEffect", strings.Join(ignored, " "))
	}
}

// IgnoredMode tells that the service is run in another mode than its annotation asks for. Admission refuses such a change,
// but not everybody asks it.
func (j Judge) IgnoredMode() []string {
	said := j.Isvc.Annotations[v1beta1.AnnotationDeploymentMode]
	if mode, known := config.TranslateMode(said); !known || mode == j.Seen.Mode {
		return nil
	}
	return []string{"Annotation " + v1beta1.AnnotationDeploymentMode + ": " + said + " has no effect, because the service has been run in mode " + j.Seen.Mode +
		" before. To change it, delete the service and create it anew."}
}

// IgnoredSecrets tells which Secrets of service accounts hold nothing that models are fetched with.
func (j Judge) IgnoredSecrets() []string {
	names := map[string]bool{}
	for _, secrets := range j.Seen.Secrets {
		for _, name := range storage.Ignored(secrets, j.Isvc.Annotations, j.Seen.Config) {
			names[name] = true
		}
	}
	for i := range j.Seen.Pods {
		if noted := j.Seen.Pods[i].Annotations[kube.AnnotationIgnoredSecrets]; noted != "" && j.Seen.Pods[i].DeletionTimestamp == nil {
			for name := range strings.SplitSeq(noted, ",") {
				names[name] = true
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, "Secret "+name+" of the service account has none of the keys that credentials are read from, so that models are fetched "+
			"without it. Give it the keys that docs/storage.md lists, or take it off the service account.")
	}
	return out
}

// Before is what the object says now.
func (j Judge) Before(typ string) (kube.Condition, bool) {
	for _, c := range j.Isvc.Status.Conditions {
		if c.Type == typ {
			return kube.Condition{Type: typ, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}, true
		}
	}
	return kube.Condition{}, false
}

// NotReady is the first component that is not ready, nil if all are.
func (j Judge) NotReady(cs kube.Conditions) *resolve.Component {
	for _, c := range j.Parts.List() {
		if !cs.IsTrue(ReadyConditions[c.Component]) {
			return c
		}
	}
	return nil
}

// NotYet says that requests wait for a component.
func NotYet(cs *kube.Conditions, c *resolve.Component) {
	typ := ReadyConditions[c.Component]
	cs.Unknown(IngressReady, strings.TrimSuffix(typ, "Ready")+"NotReady", "Requests are let in when the "+string(c.Component)+" is ready.")
}

// Stopped tells that nothing runs because the user wants it so.
func (j Judge) Stopped() *v1beta1.InferenceServiceStatus {
	const message = "The service is stopped. Remove the annotation " + v1beta1.AnnotationStop + " to start it."
	s := j.New()
	cs := kube.Conditions{}
	cs.False(PredictorReady, reasonStopped, message)
	if j.Isvc.Spec.Transformer != nil {
		cs.False(TransformerReady, reasonStopped, message)
	}
	if j.Isvc.Spec.Explainer != nil {
		cs.False(ExplainerReady, reasonStopped, message)
	}
	if len(j.Isvc.Spec.Canary) > 0 {
		cs.False(CanaryReady, reasonStopped, message)
	}
	cs.False(IngressReady, reasonStopped, message)
	cs.True(stoppedCondition, reasonStopped, "The service is stopped by annotation "+v1beta1.AnnotationStop+".")
	j.Conclude(s, cs)
	return s
}

// Fail is the plan that leaves what runs alone and says what is wrong.
func (j Judge) Fail(f *resolve.Failure) engine.Plan {
	return engine.Plan{KeepChildren: true, Status: j.Failed(f), Problem: f.Problem}
}

// Failed says why a component cannot be made. What the service had
// before is still there and stays in the status.
func (j Judge) Failed(f *resolve.Failure) *v1beta1.InferenceServiceStatus {
	s := j.Isvc.Status.DeepCopy()
	s.ObservedGeneration, s.DeploymentMode = j.Isvc.Generation, j.RecordedMode()
	cs := kube.Conditions{}
	for _, typ := range []string{PredictorReady, TransformerReady, ExplainerReady, IngressReady, CanaryReady} {
		if c, ok := j.Before(typ); ok && j.wants(typ) {
			cs.Set(c)
		}
	}
	for _, typ := range []string{PredictorReady, IngressReady} {
		if _, ok := cs.Get(typ); !ok {
			cs.Unknown(typ, f.Problem.Reason, "Nothing is made before this is solved.")
		}
	}
	typ := ReadyConditions[f.Of]
	if f.Of == "" {
		typ = IngressReady
	}
	cs.False(typ, f.Problem.Reason, f.Problem.Message)
	if f.Of == v1beta1.PredictorComponent && f.Reason != "" {
		s.ModelStatus = invalidModel(s.ModelStatus, f)
	}
	j.Conclude(s, cs)
	return s
}

// wants tells whether the spec still has the part that a condition speaks of.
func (j Judge) wants(typ string) bool {
	switch typ {
	case TransformerReady:
		return j.Isvc.Spec.Transformer != nil
	case ExplainerReady:
		return j.Isvc.Spec.Explainer != nil
	case CanaryReady:
		return len(j.Isvc.Spec.Canary) > 0
	}
	return true
}

// annotationMadeOf, in the status of a service that does not want updates of the
// platform, recognises what its children were made of.
const annotationMadeOf = "modelplane.dev/made-of"

// AutoUpdateDisabled tells whether only the user's own changes may reach the pods.
func AutoUpdateDisabled(isvc *v1beta1.InferenceService) bool {
	return strings.EqualFold(isvc.Annotations[v1beta1.AnnotationDisableAutoUpdate], "true")
}

// MadeOf is what the children of such a service were made of, as its status recorded it.
func MadeOf(isvc *v1beta1.InferenceService) string { return isvc.Status.Annotations[annotationMadeOf] }

// RecordInherited notes that children are as another controller made them.
func RecordInherited(s *v1beta1.InferenceServiceStatus, j Judge) {
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[annotationMadeOf] = resolve.MadeByAnother(j.Isvc, j.Seen)
}

// annotations are those of the status, with what the children are made of
// now where that will be asked for.
func (j Judge) annotations() map[string]string {
	out := maps.Clone(j.Isvc.Status.Annotations)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, annotationMadeOf)
	delete(out, resolve.AnnotationImages)
	if j.Parts != nil && j.Parts.Images != "" {
		out[resolve.AnnotationImages] = j.Parts.Images
	}
	if AutoUpdateDisabled(j.Isvc) && j.Seen.ConfigProblem == nil {
		out[annotationMadeOf] = resolve.MadeOf(j.Isvc, j.Seen)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
