// SPDX-License-Identifier: Apache-2.0

package resolve

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
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/runtimes"
)

// ConfigKeys are the keys of the configuration that the children of a service are
// made of. Others concern pods when they are created, or other kinds.
var ConfigKeys = []string{
	config.KeyExplainers, config.KeyInferenceService, config.KeyMultiNode, config.KeyOpenTelemetryCollector, config.KeyAutoscaler,
	config.KeyStorageInitializer, config.KeyCredentials, config.KeyIngress, config.KeyDeploy, config.KeyService,
}

// MadeOf recognises what the children of a service are made of: what the user wrote, a
// dot, and what the platform added.
func MadeOf(isvc *v1beta1.InferenceService, seen *observed.State) string {
	m := madeOf{isvc, seen}
	return m.own() + "." + m.platform()
}

// MadeByAnother is the same of children that another controller made: what the platform was then, nobody knows.
func MadeByAnother(isvc *v1beta1.InferenceService, seen *observed.State) string {
	return madeOf{isvc, seen}.own() + "."
}

// PlatformChanged tells whether a service would be made of something else than was recorded because the platform has
// changed, and for no other reason.
func PlatformChanged(isvc *v1beta1.InferenceService, seen *observed.State, record string) bool {
	m := madeOf{isvc, seen}
	own, platform, recorded := strings.Cut(record, ".")
	return recorded && (own == m.own() || own == m.formerOwn()) && platform != m.platform()
}

type madeOf struct {
	isvc *v1beta1.InferenceService
	seen *observed.State
}

// own recognises what users wrote. What a model registry calls the service is not theirs.
func (m madeOf) own() string {
	labels := maps.Clone(m.isvc.Labels)
	for _, key := range kube.LabelsRegistryID {
		delete(labels, key)
	}
	return m.ownWith(labels)
}

// formerOwn is the same as earlier releases recorded it.
func (m madeOf) formerOwn() string { return m.ownWith(m.isvc.Labels) }

func (m madeOf) ownWith(labels map[string]string) string {
	annotations := maps.Clone(m.isvc.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	var models []v1alpha1.TrainedModelSpec
	for i := range m.seen.Models {
		models = append(models, m.seen.Models[i].Spec)
	}
	return digest(m.isvc.Spec, labels, annotations, models)
}

// platform recognises what the platform adds: the chosen runtimes and the parts
// of the configuration that children are made of.
func (m madeOf) platform() string {
	var chosen []any
	for _, spec := range Predictors(m.isvc) {
		if spec.Model == nil {
			continue
		}
		rt, failure := runtimes.Select(spec.Model, spec.WorkerSpec != nil, m.seen.Runtimes)
		chosen = append(chosen, rt, failure)
	}
	var containers []any
	if len(m.seen.Secrets) > 0 { // only then are they part of a template
		for i := range m.seen.Containers {
			containers = append(containers, m.seen.Containers[i].Name, m.seen.Containers[i].Spec)
		}
	}
	return digest(sections(m.seen.Config), chosen, containers, m.seen.CABundle)
}

// sections are those of ConfigKeys.
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
