// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// optional are those that come with the chart but are not installed by default.
var optional = []string{"kserve-openvino"}

// shipped reads the runtimes of the chart.
func shipped(t testing.TB, but ...string) Candidates {
	t.Helper()
	files, err := filepath.Glob("../../../charts/modelplane/files/runtimes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart has no runtimes: %v", err)
	}
	var c Candidates
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rt v1alpha1.ClusterServingRuntime
		if err := yaml.UnmarshalStrict(raw, &rt); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".yaml"); rt.Name != want || rt.Kind != "ClusterServingRuntime" {
			t.Errorf("%s holds %s %s", file, rt.Kind, rt.Name)
		}
		if !slices.Contains(but, rt.Name) {
			c.Cluster = append(c.Cluster, rt)
		}
	}
	return c
}

// TestShippedRuntimes chooses for every format what the documentation promises.
func TestShippedRuntimes(t *testing.T) {
	byDefault, all := shipped(t, optional...), shipped(t)
	if len(all.Cluster) != 16 || len(byDefault.Cluster) != 15 {
		t.Fatalf("%d runtimes, %d of them by default", len(all.Cluster), len(byDefault.Cluster))
	}
	for _, test := range []struct {
		format, protocol string
		multiNode        bool
		from             Candidates
		want             string // none if empty
	}{
		{format: "sklearn", want: "kserve-sklearnserver"},
		{format: "sklearn/1", want: "kserve-sklearnserver"},
		{format: "sklearn", protocol: "v2", want: "kserve-mlserver"},
		{format: "sklearn/0", protocol: "v2", want: "kserve-mlserver"},
		{format: "sklearn/0"},
		{format: "xgboost", want: "kserve-xgbserver"},
		{format: "xgboost/2", want: "kserve-xgbserver"},
		{format: "xgboost/1"},
		{format: "xgboost/1", protocol: "v2", want: "kserve-mlserver"},
		{format: "lightgbm", want: "kserve-lgbserver"},
		{format: "lightgbm/3", protocol: "v2", want: "kserve-mlserver"},
		{format: "lightgbm/4", protocol: "v2", want: "kserve-mlserver"},
		{format: "mlflow", protocol: "v2", want: "kserve-mlserver"},
		{format: "mlflow/2", protocol: "v2", want: "kserve-mlserver"},
		{format: "mlflow"},
		{format: "tensorflow", want: "kserve-tensorflow-serving"},
		{format: "tensorflow/1", want: "kserve-tensorflow-serving"},
		{format: "tensorflow/2", protocol: "grpc-v1", want: "kserve-tensorflow-serving"},
		{format: "tensorflow", protocol: "v2", want: "kserve-tritonserver"},
		{format: "tensorflow/2", protocol: "grpc-v2", want: "kserve-tritonserver"},
		{format: "onnx", want: "modelplane-onnx"},
		{format: "onnx/1", protocol: "v2", want: "modelplane-onnx"},
		{format: "onnx", protocol: "grpc-v2", want: "modelplane-onnx"},
		{format: "tensorrt/8", protocol: "grpc-v2", want: "kserve-tritonserver"},
		{format: "triton/2", protocol: "v2", want: "kserve-tritonserver"},
		{format: "pytorch"}, // TorchServe is archived, and disabled here
		{format: "pytorch/1", protocol: "grpc-v2"},
		{format: "pmml/3", want: "kserve-pmmlserver"},
		{format: "pmml", protocol: "v2", want: "kserve-pmmlserver"},
		{format: "paddle/2", want: "kserve-paddleserver"},
		{format: "autogluon", want: "kserve-autogluonserver"},
		{format: "huggingface", protocol: "v2", want: "kserve-huggingfaceserver"},
		{format: "huggingface/1", want: "kserve-huggingfaceserver"},
		{format: "huggingface", protocol: "v2", multiNode: true, want: "kserve-huggingfaceserver-multinode"},
		{format: "vLLM", protocol: "v2", want: "kserve-vllmserver"},
		{format: "vLLM/1", want: "kserve-vllmserver"},
		{format: "openvino"},

		{format: "openvino/10", from: all, want: "kserve-openvino"},
		{format: "onnx", protocol: "v2", from: all, want: "modelplane-onnx"},
		{format: "tensorflow", from: all, want: "kserve-openvino"},
		{format: "tensorflow/2", from: all, want: "kserve-tensorflow-serving"},
		{format: "huggingface", protocol: "v2", from: all, want: "kserve-huggingfaceserver"},
		{format: "huggingface", protocol: "grpc-v2", from: all, want: "kserve-openvino"},
	} {
		from := test.from
		if from.Cluster == nil {
			from = byDefault
		}
		got, failure := Select(modelOf(test.format, test.protocol, ""), test.multiNode, from)
		name := ""
		if failure == nil {
			name = got.Name
		}
		if name != test.want {
			t.Errorf("%s over %q: %q, want %q (%v)", test.format, test.protocol, name, test.want, failure)
		}
	}
}

// TestShippedRuntimesMerge makes the pods of a service for every format of every
// runtime, and looks for what all of them must have.
func TestShippedRuntimesMerge(t *testing.T) {
	for _, rt := range shipped(t).Cluster {
		rt.Spec.Disabled = nil // one that somebody enables must work as well
		for _, f := range rt.Spec.SupportedModelFormats {
			isvc := &v1beta1.InferenceService{}
			isvc.Name, isvc.Namespace = "iris", "team"
			isvc.Spec.Predictor.Model = modelOf(f.Name, "", rt.Name)
			isvc.Spec.Predictor.Model.StorageURI = new("pvc://claim/model")
			if rt.Spec.WorkerSpec != nil {
				isvc.Spec.Predictor.WorkerSpec = &v1beta1.WorkerSpec{PipelineParallelSize: new(2)}
			}
			merged, failure := together(isvc, Candidates{Cluster: []v1alpha1.ClusterServingRuntime{rt}})
			if failure != nil {
				t.Errorf("%s with %s: %v", rt.Name, f.Name, failure)
				continue
			}
			checkShipped(t, rt.Name, merged)
		}
	}
}

func checkShipped(t *testing.T, name string, merged *Merged) {
	t.Helper()
	pods := []corev1.PodSpec{merged.Pod}
	if merged.Worker != nil {
		pods = append(pods, merged.Worker.Pod)
		if merged.Worker.Replicas != 1 {
			t.Errorf("%s: %d workers", name, merged.Worker.Replicas)
		}
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			raw, err := yaml.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(raw), "{{") {
				t.Errorf("%s keeps a placeholder:\n%s", name, raw)
			}
			if s := c.SecurityContext; s == nil || !isTrue(s.RunAsNonRoot) || s.SeccompProfile == nil {
				t.Errorf("%s: container %s asks for more than the restricted level grants", name, c.Name)
			}
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("%s: container %s has no bounds", name, c.Name)
			}
		}
	}
}

// TestShippedRuntimesAgree compares with the runtimes that a cluster may have
// already: the same models must get the same server, started in the same way.
func TestShippedRuntimesAgree(t *testing.T) {
	others := checkout.Manifests(t, "kserve", "runtimes")
	for _, rt := range shipped(t, "modelplane-onnx").Cluster {
		raw, err := os.ReadFile(filepath.Join(others, rt.Name+".yaml"))
		if err != nil {
			t.Error(err)
			continue
		}
		var theirs v1alpha1.ClusterServingRuntime
		if err := yaml.UnmarshalStrict(raw, &theirs); err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(visible(theirs, theirs), visible(rt, theirs), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-theirs +ours):\n%s", rt.Name, diff)
		}
	}
}

// visible is what services notice of a runtime. Of variables and security
// settings only those count that the other has too: we add some.
func visible(rt, other v1alpha1.ClusterServingRuntime) map[string]any {
	out := map[string]any{
		"server": rt.Annotations[v1beta1.AnnotationServerType], "formats": rt.Spec.SupportedModelFormats,
		"protocols": rt.Spec.ProtocolVersions, "annotations": rt.Spec.Annotations, "labels": rt.Spec.Labels,
		"volumes": rt.Spec.Volumes, "hostIPC": rt.Spec.HostIPC,
	}
	containers, others := rt.Spec.Containers, other.Spec.Containers
	if w := rt.Spec.WorkerSpec; w != nil {
		out["sizes"], out["worker's volumes"] = []*int{w.PipelineParallelSize, w.TensorParallelSize}, w.Volumes
		containers = slices.Concat(containers, w.Containers)
		others = slices.Concat(others, other.Spec.WorkerSpec.Containers)
	}
	for i, c := range containers {
		var env []corev1.EnvVar
		for _, e := range c.Env {
			if slices.ContainsFunc(others[i].Env, func(o corev1.EnvVar) bool { return o.Name == e.Name }) {
				env = append(env, e)
			}
		}
		out[c.Name] = map[string]any{
			"args": c.Args, "env": env, "mounts": c.VolumeMounts, "ports": c.Ports, "cpu": c.Resources.Limits.Cpu().String(),
			"memory": c.Resources.Limits.Memory().String(), "command": slices.Clone(c.Command)[:min(len(c.Command), 2)],
			"probes": []bool{c.ReadinessProbe != nil, c.LivenessProbe != nil, c.StartupProbe != nil},
		}
	}
	return out
}
