// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// kubernetes is a cluster of some version.
type kubernetes string

func (k *kubernetes) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: "v" + string(*k)}, nil
}

// TestPlan decides about manifests in files, without a cluster. What stands
// around them is in testdata/world.yaml. The front matter of a case may say
// "kubernetes: VERSION", the version of the cluster.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		cluster := kubernetes("1.36.0")
		if v := testkit.FrontMatter(in)["kubernetes"]; len(v) > 0 {
			cluster = kubernetes(v[0])
		}
		room := serving.New().WithKubernetes(&cluster)
		return servingtest.Plan(t, servingtest.Planner(t, room, room.Controllers()...), in)
	})
}

// TestLooksKeepNothing: what the engine keeps of a look at a service, a model or a graph is names only.
func TestLooksKeepNothing(t *testing.T) {
	room := serving.New()
	planner := servingtest.Planner(t, room)
	world := &engine.World{Scheme: planner.Scheme, Objects: planner.Around}
	meta := metav1.ObjectMeta{Namespace: "team", Name: "iris"}
	several := &unstructured.Unstructured{Object: map[string]any{ // models of which share its memory
		"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": map[string]any{"namespace": "team", "name": "several"},
		"spec": map[string]any{"predictor": map[string]any{"sklearn": map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}}}},
	}}
	for _, c := range room.Controllers() {
		switch c.Object().(type) {
		case *v1beta1.InferenceService:
			domaintest.KeepsNothing(t, c, world, func() *v1beta1.InferenceService {
				isvc := &v1beta1.InferenceService{ObjectMeta: meta}
				isvc.Spec.Predictor.Model = &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: "sklearn"}}
				return isvc
			})
		case *v1alpha1.TrainedModel:
			domaintest.KeepsNothing(t, c, &engine.World{Scheme: planner.Scheme, Objects: append(planner.Around, several)}, func() *v1alpha1.TrainedModel {
				return &v1alpha1.TrainedModel{ObjectMeta: meta, Spec: v1alpha1.TrainedModelSpec{InferenceService: "several"}}
			})
		case *v1alpha1.InferenceGraph:
			domaintest.KeepsNothing(t, c, world, func() *v1alpha1.InferenceGraph {
				return &v1alpha1.InferenceGraph{ObjectMeta: meta, Spec: v1alpha1.InferenceGraphSpec{Nodes: map[string]v1alpha1.InferenceRouter{"root": {RouterType: "Sequence"}}}}
			})
		}
	}
}
