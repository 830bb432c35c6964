// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// maxWarnings are shown, the newest first.
const maxWarnings = 5

var eventKind = corev1.SchemeGroupVersion.WithKind("Event")

// warnings are the newest events that tell of trouble with the object, its
// children, their ReplicaSets or their pods. Events of the same words are one,
// and what the cause says of the object itself is not said twice.
func (x *exploration) warnings(ctx context.Context, said *Cause) []Warning {
	var out []Warning
	for _, u := range x.list(ctx, eventKind, query{
		namespace: x.eventNamespace(), fields: fields.OneTermEqualSelector("type", corev1.EventTypeWarning),
		keep: x.concerned(),
	}) {
		e := as[corev1.Event](&u)
		if e == nil || said != nil && e.InvolvedObject.UID == x.obj.GetUID() && e.Reason == said.Reason {
			continue
		}
		out = add(out, e)
	}
	slices.SortStableFunc(out, func(a, b Warning) int {
		if d := b.Last.Compare(a.Last.Time); d != 0 {
			return d
		}
		return strings.Compare(a.Kind+a.Name+a.Reason, b.Kind+b.Name+b.Reason)
	})
	return out[:min(len(out), maxWarnings)]
}

// eventNamespace is where events of the object are.
func (x *exploration) eventNamespace() string {
	if ns := x.obj.GetNamespace(); ns != "" {
		return ns
	}
	return metav1.NamespaceDefault
}

// concerned tells events of ours from those of others.
func (x *exploration) concerned() func(*unstructured.Unstructured) bool {
	ours := map[types.UID]bool{x.obj.GetUID(): true}
	for i := range x.children {
		ours[x.children[i].GetUID()] = true
	}
	var sets []string
	for _, w := range x.workloads {
		if w.deployment != nil {
			sets = append(sets, w.deployment.Name+"-")
		}
		for i := range w.pods {
			ours[w.pods[i].UID] = true
		}
	}
	return func(u *unstructured.Unstructured) bool {
		uid, _, _ := unstructured.NestedString(u.Object, "involvedObject", "uid")
		if ours[types.UID(uid)] {
			return true
		}
		kind, _, _ := unstructured.NestedString(u.Object, "involvedObject", "kind")
		name, _, _ := unstructured.NestedString(u.Object, "involvedObject", "name")
		return kind == "ReplicaSet" && slices.ContainsFunc(sets, func(prefix string) bool {
			hash, ok := strings.CutPrefix(name, prefix)
			return ok && !strings.Contains(hash, "-")
		})
	}
}

// add counts an event with those that say the same of the same kind of object.
func add(all []Warning, e *corev1.Event) []Warning {
	w := Warning{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, Reason: e.Reason, Message: clip(e.Message, 300),
		Count: max(1, int(e.Count)), Last: lastSeen(e)}
	if e.Series != nil {
		w.Count = max(w.Count, int(e.Series.Count))
	}
	for i := range all {
		have := &all[i]
		if have.Kind != w.Kind || have.Reason != w.Reason || have.Message != w.Message {
			continue
		}
		have.Count += w.Count
		if have.Last.Before(&w.Last) {
			have.Last, have.Name = w.Last, w.Name
		}
		return all
	}
	return append(all, w)
}

// lastSeen takes the newest of the times that an event may carry.
func lastSeen(e *corev1.Event) metav1.Time {
	last := e.CreationTimestamp
	for _, t := range []metav1.Time{e.FirstTimestamp, e.LastTimestamp, {Time: e.EventTime.Time}} {
		if last.Before(&t) {
			last = t
		}
	}
	if e.Series != nil && last.Time.Before(e.Series.LastObservedTime.Time) {
		last = metav1.Time{Time: e.Series.LastObservedTime.Time}
	}
	return last
}
