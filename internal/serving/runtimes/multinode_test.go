// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

var one, zero = resource.MustParse("1"), resource.MustParse("0")

func TestCluster(t *testing.T) {
	for _, test := range []struct {
		name             string
		pipeline, tensor *int // of the user
		mp               bool
		head, worker     int64
		want             cluster
	}{
		{"nothing is said", nil, nil, false, 0, 0, cluster{3, 2, 6, 1, 1}},
		{"the user's sizes", new(2), new(1), false, 0, 0, cluster{2, 1, 2, 1, 1}},
		{"one size of the user", new(1), nil, false, 0, 0, cluster{1, 2, 2, 1, 1}},
		{"workers fit exactly", nil, nil, false, 0, 2, cluster{3, 2, 3, 2, 2}},
		{"the head takes the rest", nil, nil, false, 0, 4, cluster{3, 2, 2, 2, 4}},
		{"the head says its own", nil, nil, false, 4, 4, cluster{3, 2, 2, 4, 4}},
		{"the head is enough", nil, nil, false, 8, 4, cluster{3, 2, 1, 6, 0}},
		{"a worker is enough", nil, nil, false, 0, 8, cluster{3, 2, 1, 6, 0}},
		{"only the head", nil, nil, false, 2, 0, cluster{3, 2, 5, 2, 1}},
		{"only the head, and it is enough", nil, nil, false, 6, 0, cluster{3, 2, 1, 6, 1}},
		{"processes instead of Ray", nil, nil, true, 7, 7, cluster{3, 2, 3, 2, 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt := &Runtime{}
			rt.Spec.WorkerSpec = &v1alpha1.WorkerSpec{PipelineParallelSize: new(3), TensorParallelSize: new(2)}
			if test.mp {
				rt.Spec.Annotations = map[string]string{v1beta1.AnnotationExecutorBackend: "mp"}
			}
			own := &v1beta1.WorkerSpec{PipelineParallelSize: test.pipeline, TensorParallelSize: test.tensor}
			got, failure := clusterFor(own, rt, test.head, test.worker)
			if failure != nil {
				t.Fatal(failure)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(cluster{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAccelerators(t *testing.T) {
	isvc := &v1beta1.InferenceService{}
	isvc.Annotations = map[string]string{v1beta1.AnnotationGPUResourceTypes: `["annotated.com/npu"]`}
	types, failure := gpuTypesOf(isvc, []string{"configured.com/npu"})
	if failure != nil {
		t.Fatal(failure)
	}
	three := resource.MustParse("3")
	for _, test := range []struct {
		name             string
		requests, limits corev1.ResourceList
		count            int64
		kind             corev1.ResourceName
	}{
		{"none", nil, nil, 0, nvidiaGPU},
		{"a request", corev1.ResourceList{nvidiaGPU: three}, nil, 3, nvidiaGPU},
		{"a limit is a request", nil, corev1.ResourceList{"amd.com/gpu": three}, 3, "amd.com/gpu"},
		{"a request before a limit", corev1.ResourceList{"intel.com/gpu": one}, corev1.ResourceList{"intel.com/gpu": three}, 1, "intel.com/gpu"},
		{"Gaudi", corev1.ResourceList{"habana.ai/gaudi": one}, nil, 1, "habana.ai/gaudi"},
		{"none of one kind, one of another", corev1.ResourceList{nvidiaGPU: zero, "amd.com/gpu": one}, nil, 1, "amd.com/gpu"},
		{"from the configuration", corev1.ResourceList{"configured.com/npu": one}, nil, 1, "configured.com/npu"},
		{"from the annotation", corev1.ResourceList{"annotated.com/npu": one}, nil, 1, "annotated.com/npu"},
		{"something else", corev1.ResourceList{"example.com/disk": one}, nil, 0, nvidiaGPU},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &corev1.Container{Resources: corev1.ResourceRequirements{Requests: test.requests, Limits: test.limits}}
			if got := gpusOf(c, types); got != test.count {
				t.Errorf("%d accelerators, want %d", got, test.count)
			}
			kind, other := gpuKinds(c, &corev1.Container{}, types)
			if other != kind {
				t.Errorf("the other one gets %s", other)
			}
			setGPUs(c, kind, 5)
			for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
				if q := list[test.kind]; q.Value() != 5 {
					t.Errorf("%v, want 5 of %s", list, test.kind)
				}
			}
		})
	}
	if len(accelerators) != 4 {
		t.Errorf("what is configured for one service holds for others: %v", accelerators)
	}
}
