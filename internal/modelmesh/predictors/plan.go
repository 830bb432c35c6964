// SPDX-License-Identifier: Apache-2.0

package predictors

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/modelmesh/client"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// task is one object, of either kind, and what is to be said and done about it.
type task struct {
	seen    Seen
	model   model.Model
	invalid *model.Invalid
	uid     string
	// registered says that the mesh may know the object.
	registered bool
	// before is what was said last, and wasReady whether requests were answered then.
	before   v1alpha1.PredictorStatus
	wasReady bool
	// fresh says that nothing was said yet.
	fresh bool
	// generation is that of a service, and observed the one that its status speaks of. around is whether it is ready, as
	// somebody says who looks after more of it than its predictor.
	generation, observed int64
	around               *kube.Condition
	// transformed says that a transformer stands before the model, and transformer where it answers, nil until it does.
	transformed bool
	transformer *string

	// now is what is to be said, if anything is.
	now  v1alpha1.PredictorStatus
	said bool
	// fault is why the mesh cannot be asked, in a sentence, with a reason.
	reason, fault string
}

func finalized(obj metav1.Object, name string) bool {
	return slices.Contains(obj.GetFinalizers(), name)
}

func predictorTask(p *v1alpha1.Predictor, seen Seen) *task {
	t := &task{seen: seen, uid: string(p.UID), before: *p.Status.DeepCopy(), registered: finalized(p, engine.FinalizerPrefix+"predictors")}
	t.fresh = len(p.Status.Conditions) == 0
	t.model, t.invalid = model.OfPredictor(p)
	for _, c := range p.Status.Conditions {
		t.wasReady = t.wasReady || c.Type == ConditionReady && answeredThen(string(c.Status), c.Reason)
	}
	return t
}

// answeredThen tells whether a condition said that requests are answered, as far as anybody knew.
func answeredThen(status, reason string) bool {
	return status == string(metav1.ConditionTrue) || status == string(metav1.ConditionUnknown) && reason == reasonUnreachable
}

func serviceTask(isvc *v1beta1.InferenceService, seen Seen) *task {
	t := &task{seen: seen, uid: string(isvc.UID), before: fromService(isvc), registered: finalized(isvc, services{}.finalizer())}
	t.fresh = isvc.Status.ModelStatus == nil
	t.model, t.invalid = model.OfService(isvc)
	t.wasReady = t.before.Available
	t.generation, t.observed = isvc.Generation, isvc.Status.ObservedGeneration
	if isvc.Spec.Transformer != nil || isvc.Spec.Explainer != nil {
		t.around = readyOf(isvc)
	}
	if isvc.Spec.Transformer != nil {
		t.transformed, t.transformer = true, isvc.Status.Components[v1beta1.TransformerComponent].URL
	}
	return t
}

// readyOf is what a service says of itself.
func readyOf(isvc *v1beta1.InferenceService) *kube.Condition {
	out := &kube.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionUnknown, Reason: "NotLookedAfter",
		Message: "The mesh looks after the predictor alone. Enable the domain serving for what is around it."}
	for _, c := range isvc.Status.Conditions {
		if c.Type == v1beta1.ConditionReady {
			out.Status, out.Reason, out.Message, out.Severity = metav1.ConditionStatus(c.Status), c.Reason, c.Message, c.Severity
		}
	}
	return out
}

// Reasons that are no word of the mesh.
const (
	reasonNotEnabled  = "NamespaceNotEnabled"
	reasonUnreachable = "MeshUnreachable"
	reasonLeft        = "LeftInMesh"
)

// deletedStill begins the words about an object that goes although the mesh may know it.
const deletedStill = "It is deleted"

// plan decides what is asked and said next.
func (t *task) plan() engine.Plan {
	s := &t.seen
	t.now = t.before
	if s.Platform.Problem != nil {
		return engine.Plan{Problem: s.Platform.Problem, NoFinalizer: !t.registered}
	}
	if t.invalid != nil {
		return t.refuse()
	}
	switch {
	case !s.Enabled:
		t.stop(reasonNotEnabled, "Namespace "+s.Mesh.Namespace+" has no mesh, because its label modelmesh-enabled is not true. Set the label.")
		return engine.Plan{NoFinalizer: !t.registered, Problem: t.problem(), Calls: t.leaving()}
	case s.Broken != "":
		t.stop(reasonUnreachable, s.Broken)
		return engine.Plan{NoFinalizer: !t.registered, Problem: t.problem()}
	case len(s.Mesh.Addresses) == 0:
		t.withoutPods()
		return engine.Plan{NoFinalizer: !t.registered, Problem: t.problem()}
	}
	calls, again := t.questions()
	if wait := t.moment(); wait > 0 && s.Set.Failures+s.Status.Failures == 0 {
		return engine.Plan{Calls: calls, RequeueAfter: wait}
	}
	t.conclude()
	return engine.Plan{Calls: calls, RequeueAfter: again, Problem: t.problem(), Events: t.events()}
}

// moment is what is left of the time in which most loads end, so that these are told of once.
func (t *task) moment() time.Duration {
	const most = time.Second
	if !t.fresh || !t.seen.Asked || t.seen.Last.ID != t.model.ID || t.seen.Last.Status.GetActiveModelStatus().GetStatus() != wire.ModelStatusInfo_LOADING {
		return 0
	}
	return t.seen.Last.At.Add(most).Sub(t.seen.Now)
}

// leaving ends the connection to a mesh that is no more.
func (t *task) leaving() []engine.Call {
	if !t.seen.Connected {
		return nil
	}
	return []engine.Call{{Name: client.CallLeave, Key: t.uid, Request: client.Question{Mesh: client.Mesh{Namespace: t.seen.Mesh.Namespace}}}}
}

// refuse says what is wrong with the object, and goes on telling how the model is that it had before.
func (t *task) refuse() engine.Plan {
	s := &t.seen
	plan := engine.Plan{NoFinalizer: !t.registered}
	if t.registered && s.Enabled && s.Broken == "" && len(s.Mesh.Addresses) > 0 {
		if !s.Asked || s.View.Revision > s.Last.After && !s.View.Fits(s.Last.Status) {
			question := client.Question{Mesh: s.Mesh, Model: model.Model{Name: t.model.Name, Source: t.model.Source}, After: s.View.Revision, Since: s.Last.Number}
			plan.Calls = []engine.Call{{Name: client.CallStatus, Key: t.uid, Request: question}}
		}
		if s.Asked {
			t.decode(s.Last.Status, false)
		}
	}
	if !t.registered {
		t.now.Available, t.now.ActiveModelState = false, v1beta1.Pending
	}
	t.said = true
	t.now.TransitionStatus = v1alpha1.InvalidSpec
	t.fail(v1alpha1.InvalidPredictorSpec, t.invalid.Message, t.model.ID)
	plan.Problem, plan.Events = t.problem(), t.events()
	return plan
}

// stop says that nothing can be asked.
func (t *task) stop(reason, why string) {
	t.said, t.reason, t.fault = true, reason, why
	t.now.Available = false
	t.now.ActiveModelState, t.now.TransitionStatus = cmp.Or(t.now.ActiveModelState, v1beta1.Pending), transitionOf(t.now.TransitionStatus)
	t.now.HTTPEndpoint, t.now.GrpcEndpoint = "", ""
}

// withoutPods says that nothing runs that could be asked.
func (t *task) withoutPods() {
	t.said = true
	t.now.Available = false
	t.now.TotalCopies, t.now.FailedCopies = 0, 0
	if t.now.ActiveModelState == v1beta1.Loaded || t.now.ActiveModelState == v1beta1.Loading {
		t.now.ActiveModelState = v1beta1.Standby
	}
	t.now.ActiveModelState = cmp.Or(t.now.ActiveModelState, v1beta1.Pending)
	t.now.TransitionStatus = transitionOf(t.now.TransitionStatus)
	t.endpoints()
	t.fail(v1alpha1.RuntimeUnhealthy, "Waiting for a runtime Pod to become available", t.model.ID)
}

// transitionOf leaves what was said before but that the spec is wrong, which it no longer is.
func transitionOf(before v1alpha1.PredictorTransition) v1alpha1.PredictorTransition {
	if before == "" || before == v1alpha1.InvalidSpec {
		return v1alpha1.InProgress
	}
	return before
}

// questions are those that are due, and when the next one is.
func (t *task) questions() ([]engine.Call, time.Duration) {
	s := &t.seen
	question := client.Question{Mesh: s.Mesh, Model: t.model, After: s.Last.After, Since: s.Last.Number}
	set := func() []engine.Call {
		question.Model.Ignored, question.Load = nil, t.loadNow()
		return []engine.Call{{Name: client.CallSet, Key: t.uid, Request: question}}
	}
	homeless := homeless(s.Last.Status)
	switch {
	case !s.Asked, s.Last.ID != t.model.ID: // the records that come of it do not make another question of it
		return set(), 0
	case s.Last.Taken && s.View.Revision > s.Last.After:
		question.After = s.View.Revision
		return set(), 0
	case s.Last.Taken:
		return nil, 0
	case s.View.Revision > s.Last.After && s.View.Owner != t.model.Source,
		(homeless || t.waited()) && s.Last.Pods != s.Mesh.Pods():
		return set(), 0
	case s.View.Revision > s.Last.After && !s.View.Fits(s.Last.Status):
		question.After = s.View.Revision
		return []engine.Call{{Name: client.CallStatus, Key: t.uid, Request: question}}, 0
	}
	if !homeless && !t.behind() && (s.Told && t.onItsWay() || !loading(s.Last.Status)) {
		return nil, 0
	}
	// Nobody will tell when it has changed: the mesh does not write it down, a pod that is missing is none of its own, or the
	// pod that answered had not read yet what is written.
	if wait := s.Last.At.Add(pause(s.Last.Attempt)).Sub(s.Now); wait > 0 {
		return nil, wait
	}
	question.Attempt = s.Last.Attempt + 1
	if homeless {
		return set(), 0
	}
	return []engine.Call{{Name: client.CallStatus, Key: t.uid, Request: question}}, 0
}

// pause before the next question, which grows with those that changed nothing.
func pause(attempts int) time.Duration {
	const shortest, longest = time.Second, time.Minute
	return min(shortest<<min(attempts, steps), longest)
}

// steps is how often the pause before a question grows.
const steps = 6

// behind tells whether the mesh has said something else than its records. The pod that was asked reads them as well, and may be
// later than we are. It has a minute to catch up.
func (t *task) behind() bool {
	s := &t.seen
	return s.View.Revision > 0 && s.View.Owner == t.model.Source && s.Last.Attempt < steps && !s.View.Fits(s.Last.Status)
}

// onItsWay tells whether some pod has written down that it loads the model, and so will write down what comes of it. Without
// one it may have been loaded and had to go before anybody looked, or there was no room for it.
func (t *task) onItsWay() bool {
	return t.seen.View.ActiveCopies.Total > 0 || t.seen.View.TargetCopies.Total > 0
}

// loading tells whether a model is on its way.
func loading(info *wire.VModelStatusInfo) bool {
	return info.GetActiveModelStatus().GetStatus() == wire.ModelStatusInfo_LOADING || info.GetTargetModelStatus().GetStatus() == wire.ModelStatusInfo_LOADING
}

// loadNow says that the model is wanted at once: a new one, one that takes another's place, or one that could not be loaded.
func (t *task) loadNow() bool {
	b := t.before
	active := b.ActiveModelState
	return active == "" || active == v1beta1.Pending || active == v1beta1.FailedToLoad || b.TargetModelState != "" || active == v1beta1.Loading && t.waited()
}

// waited tells whether a pod was missing when the object was last looked at.
func (t *task) waited() bool {
	f := t.before.LastFailureInfo
	return f != nil && f.Reason == v1alpha1.RuntimeUnhealthy
}

// conclude says what is known.
func (t *task) conclude() {
	s := &t.seen
	const attempts = 3 // failures in a row that are told
	for _, a := range []engine.Answer{s.Set, s.Status} {
		if a.Failures >= attempts {
			t.said, t.reason, t.fault = true, reasonUnreachable, a.Err.Error()
		}
	}
	switch {
	case !s.Asked || s.Last.ID != t.model.ID: // what stands stays until the mesh has said something
		return
	case s.Last.Taken:
		t.said = true
		t.now.Available, t.now.TransitionStatus = false, v1alpha1.InvalidSpec
		t.fail(v1alpha1.InvalidPredictorSpec, "The name "+t.model.Name+" belongs to "+other(t.model.Source)+" of this namespace. Delete one of them, or give it another name.", "")
		return
	}
	t.said = true
	t.decode(s.Last.Status, true)
}

func other(source model.Source) string {
	if source == model.FromPredictor {
		return "an InferenceService in ModelMesh mode"
	}
	return "a Predictor"
}

// removal asks that the mesh forgets the object.
func (t *task) removal() []engine.Call {
	mesh := t.seen.Mesh
	if t.seen.Broken != "" {
		mesh.Addresses = nil
	}
	return []engine.Call{{Name: client.CallDelete, Key: t.uid, Request: client.Question{Mesh: mesh, Model: model.Model{Name: t.model.Name, Source: t.model.Source}}}}
}

// end takes the object out of the mesh before it goes. Where there is neither a pod to ask nor records to change, it goes
// all the same, and somebody is told.
func (t *task) end() engine.Ending {
	s := &t.seen
	t.now = t.before
	if s.Platform.Problem != nil {
		return engine.Ending{Plan: engine.Plan{KeepChildren: true, Problem: s.Platform.Problem}}
	}
	const attempts = 3
	hopeless := len(s.Mesh.Addresses) == 0 && s.Mesh.Etcd == nil
	given := !s.Enabled && s.Deleted.Failures >= attempts && !s.Patient
	switch {
	case s.Deleted.Done, t.left():
		return engine.Ending{Finished: true}
	case hopeless, given:
		t.said = true
		message := deletedStill + ", but the mesh could not be told. Its records in etcd may still have the model; remove " + t.model.Name + " there."
		t.fail(v1alpha1.RuntimeUnhealthy, message, t.model.ID)
		t.reason, t.fault = reasonLeft, message
		return engine.Ending{Plan: engine.Plan{Events: []engine.Event{{Warning: true, Reason: reasonLeft, Message: message}}, RequeueAfter: time.Millisecond}}
	case s.Deleted.Failures >= attempts:
		t.said, t.reason, t.fault = true, reasonUnreachable, "It is being deleted, and the mesh has to forget it first. "+s.Deleted.Err.Error()
	}
	return engine.Ending{Plan: engine.Plan{Calls: t.removal(), RequeueAfter: time.Minute}}
}

// left tells whether somebody was told that the mesh may still know the object.
func (t *task) left() bool {
	f := t.before.LastFailureInfo
	return f != nil && strings.HasPrefix(f.Message, deletedStill)
}
