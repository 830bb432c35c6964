// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube"
)

// TestGrace: a pod of our router may take as long to end as the router does.
func TestGrace(t *testing.T) {
	for write, want := range map[int64]int64{1: 16, 60: 75, 500: 515, 595: 605, 3600: 605, 0: 605, -1: 605} {
		if got := grace(&v1alpha1.InferenceGraphSpec{RouterTimeouts: &v1alpha1.GraphRouterTimeouts{ServerWrite: ptr.To(write)}}); got != want {
			t.Errorf("with requests of %d seconds it is %d, want %d", write, got, want)
		}
	}
	if got := grace(&v1alpha1.InferenceGraphSpec{}); got != 75 {
		t.Errorf("it is %d", got)
	}
}

// TestTooLong: a graph that no program could be started with is told of, and not tried.
func TestTooLong(t *testing.T) {
	p := &planner{graph: &v1alpha1.InferenceGraph{}, seen: &Seen{Config: config.Default()}}
	spec := &v1alpha1.InferenceGraphSpec{Nodes: map[string]v1alpha1.InferenceRouter{"root": {Steps: []v1alpha1.InferenceStep{{Condition: strings.Repeat("a", 128<<10)}}}}}
	if _, err := p.pod(spec); err == nil || !strings.Contains(err.Error(), "at most 131071 as an argument") {
		t.Error(err)
	}
}

// TestProgramIsSeen: what memory keeps of a router's Deployment tells which program it runs.
func TestProgramIsSeen(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta1.LabelInferenceGraph: "g"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "g", Image: "r:5000/modelplane-pod:1", Command: ownRouter, Args: []string{"--graph-json", "{}"}}}
	kube.TrimDeployment(d)
	got := (&planner{seen: &Seen{Deployment: d}}).program()
	if got == nil || got.Image != "r:5000/modelplane-pod:1" || len(got.Command) != 2 || got.Args != nil {
		t.Errorf("%+v", got)
	}
	d.Labels = nil
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kserve-container"}}
	if kube.TrimDeployment(d); d.Spec.Template.Spec.Containers != nil {
		t.Error("more is kept of others than anybody needs")
	}
}
