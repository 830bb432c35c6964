// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

// AnnotationKeepPods with the value "false" makes pods anew that another operator left.
const AnnotationKeepPods = "modelplane.dev/keep-pods"

// annotationHeld, on a Deployment, says of which spec the pods were made that another operator left, as a checksum. While
// the spec is that one, the pods stay as they are.
const annotationHeld = "modelplane.dev/held-for"

// HeldMessage is what people are told of pods that are kept.
const HeldMessage = "The pods were made by another operator, and run on as they are. They are made anew with the next change of the spec; " +
	"to have that now, set the annotation " + AnnotationKeepPods + " to \"false\"."

// Workload is a live Deployment.
type Workload struct {
	// Deployment is ours as far as it is not only Whole, without its template.
	Deployment *appsv1.Deployment
	// Whole has the template as well. It may be another operator's.
	Whole *appsv1.Deployment
}

// ReadWorkload reads a Deployment as a child, which is what our own writes are compared with, and as an input, which has the
// pods' template.
func ReadWorkload(ctx context.Context, r engine.Reader, key client.ObjectKey) (Workload, error) {
	child, whole, out := &appsv1.Deployment{}, &appsv1.Deployment{}, Workload{}
	child.Namespace, child.Name = key.Namespace, key.Name
	ours, err := Exists(r.Child(ctx, child))
	if err != nil {
		return out, err
	}
	found, err := Exists(r.Get(ctx, key, whole))
	if ours {
		out.Deployment = child
	}
	if found && (!ours || child.UID == whole.UID) {
		out.Whole = whole
	}
	return out, err
}

// Live is the Deployment, whoever made it; nil if there is none.
func (w Workload) Live() *appsv1.Deployment {
	if w.Deployment != nil {
		return w.Deployment
	}
	return w.Whole
}

// Held is what is kept of a Deployment that another operator left: its pods, which need not be restarted only because
// somebody else looks after them now. The zero value keeps nothing.
type Held struct {
	template *corev1.PodTemplateSpec
	strategy appsv1.DeploymentStrategy
	chosen   map[string]string // how the Deployment finds its pods; nobody may change that
	spec     string
}

// On tells whether pods are kept.
func (h Held) On() bool { return h.template != nil }

// Hold decides whether the pods of a Deployment stay as they are: those that another operator made for the owner, as long as
// what they were made of, as a checksum, is the same.
func Hold(owner client.Object, digest string, w Workload, theirs func(*appsv1.Deployment) bool) Held {
	h := Held{}
	if w.Whole == nil || w.Whole.Spec.Selector == nil {
		return h
	}
	if len(w.Whole.Spec.Selector.MatchExpressions) == 0 {
		h.chosen = w.Whole.Spec.Selector.MatchLabels
	}
	left := w.Deployment == nil && w.Whole.Labels[engine.LabelOwner] == "" && theirs(w.Whole)
	since := w.Deployment != nil && w.Deployment.Annotations[annotationHeld] == digest
	if owner.GetAnnotations()[AnnotationKeepPods] != "false" && (left || since) {
		h.template, h.strategy, h.spec = w.Whole.Spec.Template.DeepCopy(), *w.Whole.Spec.Strategy.DeepCopy(), digest
	}
	return h
}

// Keep puts what is held into the Deployment that was planned.
func (h Held) Keep(d *appsv1.Deployment) {
	if h.chosen != nil {
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: h.chosen}
		maps.Copy(d.Spec.Template.Labels, h.chosen)
	}
	if !h.On() {
		return
	}
	d.Spec.Template, d.Spec.Strategy = *h.template, h.strategy
	d.Annotations = map[string]string{annotationHeld: h.spec}
}

// Selector is how pods are found that were planned with these labels: by those of them that the pods have which are held,
// and as the Deployment finds them.
func (h Held) Selector(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if chosen, ok := h.chosen[key]; ok {
			value = chosen
		}
		if !h.On() || h.template.Labels[key] == value {
			out[key] = value
		}
	}
	if len(out) == 0 { // would find all pods there are
		return h.chosen
	}
	return out
}

// Digest is a checksum of what pods are made of.
func Digest(of any) string {
	raw, err := json.Marshal(of)
	if err != nil {
		return "" // never: it came from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}
