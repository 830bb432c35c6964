// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestMerge puts the InferenceService and the runtimes of each case together:
// the service chooses one of them, unless it brings its own containers.
func TestMerge(t *testing.T) {
	testkit.Golden(t, "testdata/merge", func(t *testing.T, in []byte) []byte {
		isvc, candidates := readCase(t, in)
		before, had := isvc.DeepCopy(), Candidates{}
		for _, rt := range candidates.Cluster {
			had.Cluster = append(had.Cluster, *rt.DeepCopy())
		}
		for _, rt := range candidates.Namespaced {
			had.Namespaced = append(had.Namespaced, *rt.DeepCopy())
		}
		merged, failure := together(isvc, candidates)
		if diff := cmp.Diff(before, isvc); diff != "" {
			t.Errorf("the InferenceService was changed:\n%s", diff)
		}
		if diff := cmp.Diff(had, candidates); diff != "" {
			t.Errorf("a runtime was changed:\n%s", diff)
		}
		var result any = merged
		if failure != nil {
			result = failure
		}
		out, err := yaml.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
}

func together(isvc *v1beta1.InferenceService, c Candidates) (*Merged, *Failure) {
	p := &isvc.Spec.Predictor
	if p.Model == nil {
		return Custom(isvc, p)
	}
	rt, failure := Select(p.Model, p.WorkerSpec != nil, c)
	if failure != nil {
		return nil, failure
	}
	return Merge(isvc, p, rt, []string{"example.com/npu"})
}

// readCase reads an InferenceService and runtimes from YAML documents.
func readCase(t testing.TB, in []byte) (*v1beta1.InferenceService, Candidates) {
	t.Helper()
	var isvc v1beta1.InferenceService
	var c Candidates
	for doc := range bytes.SplitSeq(in, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		var err error
		switch kind.Kind {
		case "InferenceService":
			err = yaml.UnmarshalStrict(doc, &isvc)
		case "ServingRuntime":
			var rt v1alpha1.ServingRuntime
			err = yaml.UnmarshalStrict(doc, &rt)
			c.Namespaced = append(c.Namespaced, rt)
		case "ClusterServingRuntime":
			var rt v1alpha1.ClusterServingRuntime
			err = yaml.UnmarshalStrict(doc, &rt)
			c.Cluster = append(c.Cluster, rt)
		default:
			t.Fatalf("a case has no use for a %q", kind.Kind)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &isvc, c
}

func TestMergeFailures(t *testing.T) {
	const (
		service = "metadata: {name: iris, namespace: team, labels: {tier: gold}}\n"
		model   = "spec: {predictor: {model: {modelFormat: {name: sklearn}, runtime: rt"
	)
	server := func(more string) string {
		return "metadata: {name: rt}\nspec: {supportedModelFormats: [{name: sklearn}], containers: [{name: kserve-container, image: a:1}]" + more + "}"
	}
	for _, test := range []struct {
		name, isvc, rt string
		condition      string
		says           []string
	}{{
		name: "no predictor container", isvc: model + "}}}",
		rt:   "metadata: {name: rt}\nspec: {supportedModelFormats: [{name: sklearn}], containers: [{name: main}]}",
		says: []string{"ClusterServingRuntime rt", "no container called kserve-container"},
	}, {
		name: "no workers", isvc: model + "}, workerSpec: {}}}", rt: server(""),
		says: []string{"ClusterServingRuntime rt has no workerSpec", "remove spec.predictor.workerSpec"},
	}, {
		name: "no worker container", isvc: model + "}, workerSpec: {}}}", rt: server(", workerSpec: {containers: [{name: w}]}"),
		says: []string{"no container called worker-container"},
	}, {
		name: "sizes too small", isvc: model + "}, workerSpec: {pipelineParallelSize: 0}}}",
		rt:   server(", workerSpec: {containers: [{name: worker-container}]}"),
		says: []string{"pipelineParallelSize 0", "at least 1"},
	}, {
		name: "sizes too large", isvc: model + "}, workerSpec: {pipelineParallelSize: 4611686018427387904, tensorParallelSize: 4}}}",
		rt:   server(", workerSpec: {containers: [{name: worker-container}]}"),
		says: []string{"4611686018427387904", "at most"},
	}, {
		name: "too few accelerators",
		isvc: model + `, resources: {requests: {nvidia.com/gpu: "1"}}}, workerSpec: {pipelineParallelSize: 4, tensorParallelSize: 2}}}`,
		rt:   server(`, workerSpec: {containers: [{name: worker-container, resources: {requests: {nvidia.com/gpu: "2"}}}]}`),
		says: []string{"needs 8 GPUs", "the head has 1 and each of the 3 workers has 2"}, condition: InvalidGPUAllocation,
	}, {
		name: "debugging containers",
		isvc: model + "}, workerSpec: {ephemeralContainers: [{name: d}]}}}",
		rt:   server(", workerSpec: {containers: [{name: worker-container}]}"),
		says: []string{"spec.predictor.workerSpec.ephemeralContainers"},
	}, {
		name: "accelerator types that are no list",
		isvc: "metadata: {name: iris, annotations: {serving.kserve.io/gpu-resource-types: example.com/npu}}\n" + model + "}, workerSpec: {}}}",
		rt:   server(", workerSpec: {containers: [{name: worker-container}]}"),
		says: []string{"serving.kserve.io/gpu-resource-types", `["nvidia.com/gpu"]`},
	}, {
		name: "a placeholder without a value", isvc: service + model + `, args: ["--x={{.Labels.team}}"]}}}`, rt: server(""),
		says: []string{"args[0] of container kserve-container", "{{.Labels.team}}", "add that label"},
	}, {
		name: "a placeholder in a sidecar without a value", isvc: service + model + "}}}",
		rt:   "metadata: {name: rt}\nspec: {supportedModelFormats: [{name: sklearn}], containers: [{name: kserve-container}, {name: side, env: [{name: A, value: '{{.Labels.team}}'}]}]}",
		says: []string{"env[0].value of container side"},
	}, {
		name: "a placeholder in a worker without a value", isvc: service + model + "}, workerSpec: {}}}",
		rt:   server(", workerSpec: {containers: [{name: worker-container, command: ['{{.Annotations.x}}']}]}"),
		says: []string{"command[0] of container worker-container", "{{.Annotations.x}}"},
	}, {
		name: "a placeholder in the transformer", isvc: service + model + "}, containers: [{name: transformer-container, image: '{{.Title}}'}]}}", rt: server(""),
		says: []string{"image of container transformer-container", "there is no {{.Title}}"},
	}, {
		name: "a list too long to merge", isvc: model + ", env: [" + strings.Repeat("{name: A}, ", maxMerged) + "{name: B}]}}}", rt: server(""),
		says: []string{"env of the runtime and of the predictor", "list fewer"},
	}, {
		name: "volumes too many to merge", isvc: model + "}, volumes: [" + strings.Repeat("{name: a}, ", maxMerged) + "{name: b}]}}", rt: server(", volumes: [{name: c}]"),
		says: []string{"volumes of the runtime"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			isvc, c := readCase(t, fmt.Appendf(nil, "kind: InferenceService\n%s\n---\nkind: ClusterServingRuntime\n%s", test.isvc, test.rt))
			_, failure := together(isvc, c)
			if failure == nil {
				t.Fatal("it was merged")
			}
			checkFailure(t, failure, v1beta1.InvalidPredictorSpec, test.says)
			if failure.Condition != test.condition {
				t.Errorf("condition reason %q, want %q", failure.Condition, test.condition)
			}
		})
	}
}

func TestMergeWithoutModel(t *testing.T) {
	_, failure := Merge(&v1beta1.InferenceService{}, &v1beta1.PredictorSpec{}, &Runtime{Name: "rt"}, nil)
	if failure == nil {
		t.Fatal("nothing was merged with a runtime")
	}
	checkFailure(t, failure, v1beta1.InvalidPredictorSpec, []string{"spec.predictor.model"})
}

func TestCustomFailures(t *testing.T) {
	for _, test := range []struct{ name, predictor, says string }{
		{"nothing", "{}", "neither a model nor containers"},
		{"nobody serves", "{containers: [{name: a}, {name: b}]}", "None of the 2 containers"},
		{"two serve", "{sklearn: {}, containers: [{name: kserve-container}]}", "keep one of them"},
		{"workers", "{containers: [{name: a}], workerSpec: {}}", "spec.predictor.workerSpec needs spec.predictor.model"},
	} {
		var p v1beta1.PredictorSpec
		if err := yaml.UnmarshalStrict([]byte(test.predictor), &p); err != nil {
			t.Fatal(err)
		}
		_, failure := Custom(&v1beta1.InferenceService{}, &p)
		if failure == nil {
			t.Errorf("%s: it was made", test.name)
			continue
		}
		checkFailure(t, failure, v1beta1.InvalidPredictorSpec, []string{test.says})
	}
}

func TestCustomProtocol(t *testing.T) {
	for predictor, want := range map[string]v1beta1.InferenceServiceProtocol{
		"{sklearn: {}}":                        "v1",
		"{xgboost: {}}":                        "v1",
		"{tensorflow: {}}":                     "v1",
		"{pytorch: {}}":                        "v1",
		"{triton: {}}":                         "v2",
		"{onnx: {}}":                           "v1",
		"{huggingface: {}}":                    "v2",
		"{pmml: {}}":                           "v1",
		"{lightgbm: {}}":                       "v1",
		"{paddle: {}}":                         "v1",
		"{triton: {protocolVersion: grpc-v2}}": "grpc-v2",
		"{containers: [{name: a}]}":            "v1",
		"{containers: [{name: a, env: [{name: PROTOCOL, value: v2}]}]}": "v2",
	} {
		var p v1beta1.PredictorSpec
		if err := yaml.UnmarshalStrict([]byte(predictor), &p); err != nil {
			t.Fatal(err)
		}
		merged, failure := Custom(&v1beta1.InferenceService{}, &p)
		if failure != nil {
			t.Fatal(failure)
		}
		if merged.Protocol != want {
			t.Errorf("%s speaks %q, want %q", predictor, merged.Protocol, want)
		}
		if name := merged.Pod.Containers[0].Name; name != mainContainer {
			t.Errorf("%s is served by %q", predictor, name)
		}
	}
}

func TestImageFor(t *testing.T) {
	gpu := corev1.ResourceList{nvidiaGPU: one}
	digest := "repo/a@sha256:0123"
	for _, test := range []struct {
		image, version, server string
		limits                 corev1.ResourceList
		want                   string
	}{
		{image: "a:1", want: "a:1"},
		{image: "a", want: "a"},
		{image: "host:5000/a", version: "2", want: "host:5000/a:2"},
		{image: "host:5000/a:1", version: "2", want: "host:5000/a:2"},
		{image: digest, version: "2", want: digest},
		{image: "a:1@sha256:0123", server: vllm, want: "a:1@sha256:0123"},
		{image: "a:1", server: tensorflow, limits: gpu, want: "a:1-gpu"},
		{image: "a:1", server: torchserve, limits: gpu, want: "a:1-gpu"},
		{image: "a:1", server: huggingface, limits: gpu, want: "a:1-gpu"},
		{image: "a:1-gpu", server: huggingface, limits: gpu, want: "a:1-gpu"},
		{image: "a:1", server: huggingface, want: "a:1"},
		{image: "a:1", server: huggingface, limits: corev1.ResourceList{nvidiaGPU: zero}, want: "a:1"},
		{image: "a:1", server: huggingface, limits: corev1.ResourceList{"amd.com/gpu": one}, want: "a:1"},
		{image: "a:1", server: huggingface, limits: corev1.ResourceList{"nvidia.com/mig-1g.5gb": one}, want: "a:1-gpu"},
		{image: "a:1", server: huggingface, version: "2", limits: gpu, want: "a:2"},
		{image: "a", server: huggingface, limits: gpu, want: "a"},
		{image: "a:1", server: triton, limits: gpu, want: "a:1"},
		{image: "host:5000/a:1", server: vllm, want: "host:5000/a-cpu:1"},
		{image: "a-cpu:1", server: vllm, want: "a-cpu:1"},
		{image: "a:1", server: vllm, limits: gpu, want: "a:1"},
		{image: "a:1", server: vllm, version: "2", want: "a:2"},
		{image: "a", server: vllm, want: "a"},
	} {
		c := &corev1.Container{Image: test.image, Resources: corev1.ResourceRequirements{Limits: test.limits}}
		var version *string
		if test.version != "" {
			version = &test.version
		}
		if got := imageFor(c, version, test.server); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestProtocolOfModel(t *testing.T) {
	for _, test := range []struct {
		name, server, asked string
		speaks              []v1beta1.InferenceServiceProtocol
		want                v1beta1.InferenceServiceProtocol
	}{
		{name: "what the user asks for", asked: "grpc-v2", speaks: ranked, want: "grpc-v2"},
		{name: "the plainest of the runtime", speaks: []v1beta1.InferenceServiceProtocol{"grpc-v2", "v2"}, want: "v2"},
		{name: "the server's own", server: triton, speaks: ranked, want: "v2"},
		{name: "MLServer", server: mlserver, speaks: ranked, want: "v2"},
		{name: "TorchServe", server: torchserve, speaks: []v1beta1.InferenceServiceProtocol{"v2"}, want: "v1"},
		{name: "none known", speaks: []v1beta1.InferenceServiceProtocol{"smoke"}, want: "v1"},
		{name: "none listed", want: "v1"},
	} {
		rt := &Runtime{Annotations: map[string]string{v1beta1.AnnotationServerType: test.server}}
		rt.Spec.ProtocolVersions = test.speaks
		p := &v1beta1.PredictorSpec{Model: modelOf("sklearn", test.asked, "")}
		if got := defaultsFor(&v1beta1.InferenceService{}, p, rt).protocol; got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestServerType(t *testing.T) {
	for _, test := range []struct{ name, annotation, want string }{
		{"kserve-mlserver", "", mlserver},
		{"kserve-torchserve", "", torchserve},
		{"kserve-tritonserver", "", triton},
		{"kserve-tensorflow-serving", "", tensorflow},
		{"kserve-huggingfaceserver", "", huggingface},
		{"kserve-vllmserver", "", vllm},
		{"kserve-sklearnserver", "", ""},
		{"mine", triton, triton},
		{"kserve-mlserver", triton, triton},
	} {
		rt := &Runtime{Name: test.name, Annotations: map[string]string{v1beta1.AnnotationServerType: test.annotation}}
		if got := serverType(rt); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

func BenchmarkMerge(b *testing.B) {
	for _, name := range []string{"plain", "container", "multi-node"} {
		raw, err := os.ReadFile("testdata/merge/" + name + "/in.yaml")
		if err != nil {
			b.Fatal(err)
		}
		isvc, c := readCase(b, raw)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, failure := together(isvc, c); failure != nil {
					b.Fatal(failure)
				}
			}
		})
	}
}

// TestMergeStaysQuick merges lists of the greatest length that is accepted.
func TestMergeStaysQuick(t *testing.T) {
	base, overlay := &corev1.Container{Name: mainContainer}, &corev1.Container{}
	for i := range maxMerged / 2 {
		base.Env = append(base.Env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i), Value: "1"})
		overlay.Env = append(overlay.Env, corev1.EnvVar{Name: fmt.Sprintf("B%d", i), Value: "1"})
		base.VolumeMounts = append(base.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: fmt.Sprintf("/a%d", i)})
		overlay.VolumeMounts = append(overlay.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: fmt.Sprintf("/a%d", i)})
	}
	begin := time.Now()
	merged, err := mergeContainer(base, overlay)
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Env) != maxMerged || len(merged.VolumeMounts) != maxMerged/2 {
		t.Errorf("%d variables and %d mounts", len(merged.Env), len(merged.VolumeMounts))
	}
	if took := time.Since(begin); took > 10*time.Second { // a tenth of a second, unless the machine is very busy
		t.Errorf("it took %s", took)
	}
	t.Logf("it took %s", time.Since(begin))
}
