// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/runtimes"
)

// annotationMadeOf, in the status of a service that does not want updates of the
// platform, recognises what its children were made of: what the user wrote, a
// dot, and what the platform added.
const annotationMadeOf = "modelplane.dev/made-of"

const reasonAutoUpdateDisabled = "AutoUpdateDisabled"

// frozen tells whether only the user's own changes may reach the pods.
func frozen(isvc *v1beta1.InferenceService) bool {
	return strings.EqualFold(isvc.Annotations[v1beta1.AnnotationDisableAutoUpdate], "true")
}

// unwanted tells whether the plan would differ from what runs because the
// platform has changed, and for no other reason, and the user does not want
// that while the service is ready.
func (p *planner) unwanted() bool {
	if !frozen(p.isvc) || !isTrue(p.isvc, v1beta1.ConditionReady) {
		return false
	}
	own, platform, recorded := strings.Cut(p.isvc.Status.Annotations[annotationMadeOf], ".")
	return recorded && own == p.own() && platform != p.platform()
}

// keep is the plan while the platform's changes are not wanted. What children
// were made of is gone, so that nothing can be repaired either.
func (p *planner) keep() engine.Plan {
	return engine.Plan{Hold: true, Status: p.heldStatus(reasonAutoUpdateDisabled,
		"The runtime or the platform's configuration has changed since the service was made, and annotation "+v1beta1.AnnotationDisableAutoUpdate+
			" keeps the change back. It comes with the next change of the service; remove the annotation to have it now.")}
}

// statusAnnotations are those of the status, with what the children are made of
// now where that will be asked for.
func (p *planner) statusAnnotations() map[string]string {
	out := maps.Clone(p.isvc.Status.Annotations)
	delete(out, annotationMadeOf)
	delete(out, annotationImages)
	if out == nil {
		out = map[string]string{}
	}
	if p.images != "" {
		out[annotationImages] = p.images
	}
	if frozen(p.isvc) && p.seen.Doubt == nil {
		out[annotationMadeOf] = p.own() + "." + p.platform()
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// own recognises what users wrote.
func (p *planner) own() string {
	annotations := maps.Clone(p.isvc.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	var models []v1alpha1.TrainedModelSpec
	for i := range p.seen.Models {
		models = append(models, p.seen.Models[i].Spec)
	}
	return digest(p.isvc.Spec, p.isvc.Labels, annotations, models)
}

// platform recognises what the platform adds: the chosen runtimes and the parts
// of the configuration that children are made of.
func (p *planner) platform() string {
	var chosen []any
	for _, spec := range predictors(p.isvc) {
		if spec.Model == nil {
			continue
		}
		rt, failure := runtimes.Select(spec.Model, spec.WorkerSpec != nil, p.seen.Runtimes)
		chosen = append(chosen, rt, failure)
	}
	var containers []any
	if len(p.seen.Secrets) > 0 { // only then are they part of a template
		for i := range p.seen.Containers {
			containers = append(containers, p.seen.Containers[i].Name, p.seen.Containers[i].Spec)
		}
	}
	return digest(sections(p.cfg), chosen, containers, p.seen.CABundle)
}

// sections are those of madeOf.
func sections(c *config.Config) []any {
	return []any{
		c.Explainers, c.InferenceService, c.MultiNode, c.OpenTelemetryCollector, c.Autoscaler,
		c.StorageInitializer, c.Credentials, c.Ingress, c.Deploy, c.Service,
	}
}

func digest(parts ...any) string {
	raw, err := json.Marshal(parts)
	if err != nil {
		return "" // everything in it came from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
