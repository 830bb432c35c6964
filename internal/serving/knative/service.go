// SPDX-License-Identifier: Apache-2.0

package knative

import (
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// The names that revisions can be addressed by.
const (
	tagLatest   = "latest"
	tagPrevious = "prev"
)

// aboutService are the annotations that Knative reads on the Service itself. They must not reach the template, where
// a change of them would make a new revision.
var aboutService = []string{v1beta1.AnnotationRolloutDuration, v1beta1.AnnotationEnablePassthrough}

// Service is the Knative Service of a component. The status tells which revision shares the traffic with a canary.
func Service(p Part, status v1beta1.ComponentStatusSpec, cfg *config.Config) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": APIVersion, "kind": Kind}}
	u.SetName(p.Name)
	u.SetNamespace(p.Namespace)
	set(u.SetLabels, maps.Clone(p.Labels))
	own := map[string]string{}
	for _, key := range aboutService {
		if value, ok := p.Annotations[key]; ok {
			own[key] = value
		}
	}
	set(u.SetAnnotations, own)
	u.Object["spec"] = map[string]any{
		"template": map[string]any{
			"metadata": templateMeta(p, cfg),
			"spec":     revisionSpec(p),
		},
		"traffic": traffic(p, status),
	}
	return u
}

// set leaves out what is empty: an empty map would be sent and owned for nothing.
func set(into func(map[string]string), m map[string]string) {
	if len(m) > 0 {
		into(m)
	}
}

func templateMeta(p Part, cfg *config.Config) map[string]any {
	out := map[string]any{"annotations": values(templateAnnotations(p))}
	if labels := cfg.FilterLabels(p.Labels); len(labels) > 0 {
		out["labels"] = values(labels)
	}
	return out
}

// templateAnnotations adds how the component is scaled. The number of pods is the spec's to say, whatever an
// annotation says; the autoscaler may be chosen by annotation.
func templateAnnotations(p Part) map[string]string {
	out := make(map[string]string, len(p.Annotations)+5)
	maps.Copy(out, p.Annotations)
	for _, key := range aboutService {
		delete(out, key)
	}
	if _, ok := out[annotationClass]; !ok {
		out[annotationClass] = classKPA
	}
	out[annotationMinScale] = decimal(ptr.Deref(p.Scale.MinReplicas, 1))
	if p.Scale.MaxReplicas != 0 {
		out[annotationMaxScale] = decimal(p.Scale.MaxReplicas)
	}
	if p.Scale.ScaleTarget != nil {
		out[annotationTarget] = decimal(*p.Scale.ScaleTarget)
	}
	if p.Scale.ScaleMetric != nil {
		out[annotationMetric] = string(*p.Scale.ScaleMetric)
	}
	return out
}

// revisionSpec is the pod with Knative's own fields beside it. Who allows a request some time allows it to begin its
// answer as late: a model may think for all of it.
func revisionSpec(p Part) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.Pod.DeepCopy())
	if err != nil {
		panic(fmt.Sprintf("the pod of %s/%s cannot be encoded: %v", p.Namespace, p.Name, err)) // it was decoded from JSON
	}
	dropUnset(out)
	if p.Scale.TimeoutSeconds != nil {
		out["timeoutSeconds"] = *p.Scale.TimeoutSeconds
		out["responseStartTimeoutSeconds"] = *p.Scale.TimeoutSeconds
	}
	if p.Scale.ContainerConcurrency != nil {
		out["containerConcurrency"] = *p.Scale.ContainerConcurrency
	}
	return out
}

// dropUnset removes what a pod encodes although nobody set it.
func dropUnset(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			if dropUnset(v); len(v) == 0 && k == "resources" {
				delete(m, k)
			}
		case []any:
			for _, e := range v {
				if e, ok := e.(map[string]any); ok {
					dropUnset(e)
				}
			}
		}
	}
}

// traffic gives the latest revision its share, and the rest to the one that had all of it last. Before the first
// revision had all of it there is nobody to share with.
func traffic(p Part, status v1beta1.ComponentStatusSpec) []any {
	percent := ptr.Deref(p.Scale.CanaryTrafficPercent, 100)
	if status.LatestRolledoutRevision == "" {
		percent = 100
	}
	latest := map[string]any{"latestRevision": true, "percent": percent}
	if p.Annotations[v1beta1.AnnotationEnableTagRouting] == "true" {
		latest["tag"] = tagLatest
	}
	if percent >= 100 {
		return []any{latest}
	}
	return []any{latest, map[string]any{
		"latestRevision": false,
		"revisionName":   status.LatestRolledoutRevision,
		"percent":        100 - percent,
		"tag":            tagPrevious,
	}}
}

func values(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func decimal(n int32) string { return strconv.Itoa(int(n)) }
