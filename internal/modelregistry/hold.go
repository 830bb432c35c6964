// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// annotationHeld, on a Deployment, says of which spec the pods were made that another operator left, as a checksum. While
// the spec is that one, the pods stay as they are.
const annotationHeld = "modelplane.dev/held-for"

// held is what is kept of a Deployment that another operator left: its pods, which need not be restarted only because
// somebody else looks after them now. The zero value keeps nothing.
type held struct {
	template *corev1.PodTemplateSpec
	strategy appsv1.DeploymentStrategy
	chosen   map[string]string // how the Deployment finds its pods; nobody may change that
	spec     string
}

func (h held) on() bool { return h.template != nil }

// hold decides whether the pods of a Deployment stay as they are.
func (p *planner) hold(w Workload) held {
	h := held{}
	if w.Whole == nil || w.Whole.Spec.Selector == nil {
		return h
	}
	if len(w.Whole.Spec.Selector.MatchExpressions) == 0 {
		h.chosen = w.Whole.Spec.Selector.MatchLabels
	}
	digest := specDigest(p.registry)
	theirs := w.Deployment == nil && w.Whole.Labels[engine.LabelOwner] == "" && metav1.IsControlledBy(w.Whole, p.registry)
	since := w.Deployment != nil && w.Deployment.Annotations[annotationHeld] == digest
	if p.registry.Annotations[AnnotationKeepPods] != "false" && (theirs || since) {
		h.template, h.strategy, h.spec = w.Whole.Spec.Template.DeepCopy(), *w.Whole.Spec.Strategy.DeepCopy(), digest
	}
	return h
}

// keep puts what is held into the Deployment that was planned.
func (h held) keep(d *appsv1.Deployment) {
	if h.chosen != nil {
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: h.chosen}
		maps.Copy(d.Spec.Template.Labels, h.chosen)
	}
	if !h.on() {
		return
	}
	d.Spec.Template, d.Spec.Strategy = *h.template, h.strategy
	d.Annotations = map[string]string{annotationHeld: h.spec}
}

// selector is how pods are found that were planned with these labels: by those of them that the pods have which are held,
// and as the Deployment finds them.
func (h held) selector(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if chosen, ok := h.chosen[key]; ok {
			value = chosen
		}
		if !h.on() || h.template.Labels[key] == value {
			out[key] = value
		}
	}
	if len(out) == 0 { // would find all pods there are
		return h.chosen
	}
	return out
}

// specDigest is of the spec as it is carried out, so that a default which is written down is no change.
func specDigest(m *v1beta1.ModelRegistry) string {
	spec := m.Spec.DeepCopy()
	setDefaults(spec)
	raw, err := json.Marshal(spec)
	if err != nil {
		return "" // never: it came from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}
