// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/kube"
)

// Stalled is the condition that appears (True) when an object cannot be
// brought forward for reasons that lie outside it, and is absent otherwise.
const Stalled = "Stalled"

// reporter is Report: one status patch, only on a change, and events on
// transitions.
type reporter struct {
	client  client.Client
	events  events.EventRecorder
	clock   clock.PassiveClock
	ready   string
	blocked func(map[string]any, *Problem) // as in Spec; may be nil
	knative bool
	owner   string
	part    part
	// noStatus as in Spec; told is then what was last said of an object.
	noStatus bool
	told     map[types.UID]string
	// readyEvent and notReadyEvent are reasons, as in Spec.
	readyEvent, notReadyEvent string

	rivals *rivals
	live   client.Reader
	kind   schema.GroupVersionKind

	mu sync.Mutex
	// written is our last status write per object, until the cache has it.
	written map[types.UID]writtenStatus
}

// writtenStatus is small, since there is one for every object.
type writtenStatus struct {
	version string
	planned digest // as computed
	asked   digest // planned, without what a contest changes in it
	stored  digest // as the API server answered
	// answer is what it answered, encoded, until the cache was seen to have it.
	answer []byte
}

// digest recognises a status.
type digest [sha256.Size]byte

func digestOf(status map[string]any) (digest, []byte, error) {
	raw, err := json.Marshal(status)
	return sha256.Sum256(raw), raw, err
}

// report writes the status if it changed and says what changed. It returns the
// readiness that now stands.
func (r *reporter) report(ctx context.Context, obj client.Object, plan Plan, problem *Problem, said []Event) (conditions kube.Conditions, err error) {
	for _, e := range said {
		r.say(obj, e)
	}
	if r.noStatus {
		r.sayChanges(obj, plan.Events, problem)
		return nil, nil
	}
	live, version, err := r.current(obj)
	if err != nil {
		return nil, err
	}
	next, err := r.next(obj, live, plan, problem)
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(live, next) || r.futile(obj, live, next) {
		if r.rivals.calm(obj.GetUID(), statusKey) {
			return r.report(ctx, obj, plan, problem, nil) // without a word of it
		}
		return conditionsOf(next), nil
	}
	if r.undone(obj, next) {
		if r.rivals.held(obj.GetUID(), statusKey) {
			return conditionsOf(live), nil
		}
		r.contest(ctx, obj, live, next, plan.Status == nil)
	} else {
		r.rivals.forget(obj.GetUID(), statusKey)
	}
	if err := r.patch(ctx, obj, version, live, next); err != nil {
		return conditionsOf(live), err
	}
	r.transitions(obj, live, next, problem, plan.Events)
	return conditionsOf(next), nil
}

// sayChanges tells in events what would else be in the status, once.
func (r *reporter) sayChanges(obj client.Object, planned []Event, problem *Problem) {
	if problem != nil {
		planned = append([]Event{{Warning: true, Reason: problem.Reason, Message: problem.Message}}, planned...)
	}
	said := fmt.Sprint(planned)
	r.mu.Lock()
	again := r.told[obj.GetUID()] == said
	r.told[obj.GetUID()] = said
	r.mu.Unlock()
	for _, e := range planned {
		if !again {
			r.say(obj, e)
		}
	}
}

// current is the newest status we know: our own last write where the cache
// does not have it yet.
func (r *reporter) current(obj client.Object) (map[string]any, string, error) {
	if r.noStatus {
		return map[string]any{}, "", nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.written[obj.GetUID()]; ok && w.answer != nil {
		if older(obj.GetResourceVersion(), w.version) {
			status := map[string]any{}
			err := utiljson.Unmarshal(w.answer, &status) // numbers as elsewhere
			return status, w.version, err
		}
		w.answer = nil
		r.written[obj.GetUID()] = w
	}
	status, err := statusOf(obj)
	return status, obj.GetResourceVersion(), err
}

// futile tells whether the API server already answered this very status with
// what is there now (it fills in defaults), so that sending it again would
// change nothing.
func (r *reporter) futile(obj client.Object, live, next map[string]any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	part := r.part.on(obj)
	w, ok := r.written[obj.GetUID()]
	if !ok {
		return false
	}
	planned, _, err := digestOf(part.of(next))
	if err != nil || w.planned != planned {
		return false
	}
	stored, _, err := digestOf(part.of(live))
	return err == nil && w.stored == stored
}

// isOwn recognises the echo of our own status write.
func (r *reporter) isOwn(obj client.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.written[obj.GetUID()]
	return ok && w.version == obj.GetResourceVersion()
}

func (r *reporter) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, uid)
	delete(r.told, uid)
}

// next is the complete status that should stand.
func (r *reporter) next(obj client.Object, live map[string]any, plan Plan, problem *Problem) (map[string]any, error) {
	next, err := encodeStatus(plan.Status)
	if err != nil {
		return nil, err
	}
	if next == nil { // nothing was decided: what stands stays
		next = runtime.DeepCopyJSON(live)
		dropCondition(next, Stalled)
		dropCondition(next, Contested)
	}
	part := r.part.on(obj)
	if problem != nil {
		r.put(part, next, problem)
	}
	if p := r.rivals.problem(r.kind.Kind, obj.GetUID()); p != nil {
		setCondition(next, Contested, metav1.ConditionTrue, p)
	}
	next = part.merge(live, next)
	r.stamp(obj, live, next, plan.Status == nil)
	return next, nil
}

// contestShown tells whether a status says of contests what there is to say.
func (r *reporter) contestShown(obj client.Object, live map[string]any) bool {
	if !r.part.on(obj).decides(Contested) {
		return true
	}
	_, shown := conditionsOf(live).Get(Contested)
	return shown == (r.rivals.problem(r.kind.Kind, obj.GetUID()) != nil)
}

// put makes a problem visible in the conditions. What the plan says of
// readiness itself, when it is not True, is more precise and stays.
func (r *reporter) put(part part, status map[string]any, p *Problem) {
	if p.Family == Failed && !p.visible && !part.decides(Stalled) {
		setCondition(status, r.ready, metav1.ConditionUnknown, p) // Stalled is another controller's
		return
	}
	if p.Family == Failed && !p.visible {
		setCondition(status, Stalled, metav1.ConditionTrue, p)
		if _, said := conditionsOf(status).Get(r.ready); !said {
			setCondition(status, r.ready, metav1.ConditionUnknown, p)
		}
		return
	}
	if c, ok := conditionsOf(status).Get(r.ready); ok && c.Status == metav1.ConditionFalse && p.cause == nil {
		return
	}
	setCondition(status, r.ready, metav1.ConditionFalse, p)
	if r.blocked != nil && !p.passing {
		r.blocked(status, p)
	}
}

// stamp keeps the transition time of conditions whose status stands, gives the
// others the present time, and says which generation they speak of where the
// plan does not. Conditions that were only kept still speak of the generation
// they spoke of.
func (r *reporter) stamp(obj client.Object, live, next map[string]any, kept bool) {
	before := map[string]map[string]any{}
	for _, c := range rawConditions(live) {
		if t, ok := c["type"].(string); ok {
			before[t] = c
		}
	}
	part := r.part.on(obj)
	now := r.clock.Now().UTC().Format(time.RFC3339)
	for _, c := range rawConditions(next) {
		t, _ := c["type"].(string)
		if (kept || !part.decides(t)) && reflect.DeepEqual(before[t], c) {
			continue
		}
		if old := before[t]; old != nil && old["status"] == c["status"] && old["lastTransitionTime"] != nil {
			c["lastTransitionTime"] = old["lastTransitionTime"]
		} else {
			c["lastTransitionTime"] = now
		}
		if c["observedGeneration"] == nil && !r.knative {
			c["observedGeneration"] = obj.GetGeneration()
		}
	}
}

func (r *reporter) patch(ctx context.Context, obj client.Object, version string, live, next map[string]any) error {
	body, err := statusPatch(version, live, next)
	if err != nil {
		return err
	}
	answer := obj.DeepCopyObject().(client.Object)
	err = r.client.Status().Patch(ctx, answer, client.RawPatch(types.MergePatchType, body), client.FieldOwner(r.owner))
	if apierrors.IsConflict(err) {
		r.believe(obj.GetUID())
	}
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	stored, err := statusOf(answer)
	if err != nil {
		return err
	}
	part, w := r.part.on(obj), writtenStatus{version: answer.GetResourceVersion()}
	if w.planned, _, err = digestOf(part.of(next)); err != nil {
		return err
	}
	if w.asked, err = askedOf(part.of(next)); err != nil {
		return err
	}
	if w.stored, _, err = digestOf(part.of(stored)); err != nil {
		return err
	}
	if w.answer, err = json.Marshal(stored); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[obj.GetUID()] = w
	return nil
}

// statusPatch is the least that turns one status into the other. It carries the
// resource version: a decision made on an old state must not overwrite a newer one.
func statusPatch(version string, live, next map[string]any) ([]byte, error) {
	a, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	diff, err := jsonpatch.CreateMergePatch(a, b)
	if err != nil {
		return nil, fmt.Errorf("compare the status: %w", err)
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"status":   json.RawMessage(diff),
	})
}

// transitions says in events what a person would want to hear: that the object
// became ready or no longer is, and each new problem.
func (r *reporter) transitions(obj client.Object, live, next map[string]any, problem *Problem, planned []Event) {
	before, after := conditionsOf(live).IsTrue(r.ready), conditionsOf(next).IsTrue(r.ready)
	switch {
	case after && !before:
		c, _ := conditionsOf(next).Get(r.ready)
		r.say(obj, Event{Reason: first(r.readyEvent, "Ready"), Message: first(c.Message, obj.GetName()+" is ready.")})
	case before && !after && r.notReadyEvent != "":
		r.say(obj, Event{Warning: true, Reason: r.notReadyEvent, Message: r.noLonger(obj.GetName(), conditionsOf(next))})
	}
	if problem != nil {
		planned = append([]Event{{Warning: true, Reason: problem.Reason, Message: problem.Message}}, planned...)
	}
	for _, e := range planned {
		if !e.Warning || !said(live, e) {
			r.say(obj, e)
		}
	}
}

// noLonger names the conditions that are False and the first cause: what the
// summary says, or else the first of them.
func (r *reporter) noLonger(name string, conditions kube.Conditions) string {
	summary, _ := conditions.Get(r.ready)
	cause := summary.Message
	var types []string
	for _, c := range conditions {
		if c.Type == r.ready || c.Status != metav1.ConditionFalse || c.Severity != "" {
			continue
		}
		types = append(types, c.Type)
		cause = first(cause, c.Message)
	}
	text := name + " is no longer ready"
	if len(types) > 0 {
		text += " (" + strings.Join(types, ", ") + ")"
	}
	return text + ": " + first(cause, "the reason is not known yet.")
}

// said tells whether a condition already carries the words.
func said(status map[string]any, e Event) bool {
	for _, c := range conditionsOf(status) {
		if c.Reason == e.Reason && c.Message == e.Message {
			return true
		}
	}
	return false
}

func (r *reporter) say(obj client.Object, e Event) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	const most = 1000 // the API's bound for a note is 1 kB
	r.events.Eventf(obj, nil, kind, e.Reason, "Reconcile", "%s", shorten(e.Message, most))
}
