// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/serving/defaultruntimes"
	"github.com/modelplane/modelplane/internal/serving/runtimes"
	"github.com/modelplane/modelplane/internal/testkit"
)

// configMap finds one in a release; nil if it is not there.
func configMap(t *testing.T, name string, values map[string]any) *corev1.ConfigMap {
	t.Helper()
	all := withoutDefinitions()
	maps.Copy(all, values)
	for _, o := range render(t, all) {
		if o.GetKind() != "ConfigMap" || o.GetName() != name {
			continue
		}
		cm := &corev1.ConfigMap{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, cm); err != nil {
			t.Fatal(err)
		}
		return cm
	}
	return nil
}

// valuesOf reads values as a person writes them.
func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// TestPlanKnowsWhatIsShipped: `modelplane plan` has the runtimes and the configuration of a release without values.
func TestPlanKnowsWhatIsShipped(t *testing.T) {
	objects, err := charts.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, object := range objects {
		got = append(got, (&unstructured.Unstructured{Object: object}).GetName())
	}
	runtimes, containers := bring(t, nil)
	want = slices.AppendSeq(slices.Collect(maps.Keys(runtimes)), maps.Keys(containers))
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runtimes and storage containers (-chart +plan):\n%s", diff)
	}
	data, err := charts.ServingConfig()
	if err != nil {
		t.Fatal(err)
	}
	parsed := func(text string) (out map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		delete(out, "image") // which has another name in each release
		return out
	}
	cm := configMap(t, config.Name, nil)
	for key, text := range cm.Data {
		planned, _ := data[key].(string)
		if diff := cmp.Diff(parsed(text), parsed(planned)); diff != "" {
			t.Errorf("%s (-chart +plan):\n%s", key, diff)
		}
	}
	if len(data) != len(cm.Data) {
		t.Errorf("%d keys, and %d in the chart", len(data), len(cm.Data))
	}
}

// TestConfiguration proves that the manager finds nothing wrong with what the chart writes.
func TestConfiguration(t *testing.T) {
	parse := func(values string) *config.Config {
		t.Helper()
		cm := configMap(t, config.Name, valuesOf(t, values))
		if cm == nil {
			t.Fatal("there is no configuration")
		}
		cfg, problems := config.Parse(cm.Data, nil)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Key, p.Message)
		}
		return cfg
	}
	standard := parse("{}")
	if standard.Deploy.DefaultDeploymentMode != config.ModeStandard {
		t.Errorf("services run in mode %s", standard.Deploy.DefaultDeploymentMode)
	}
	if !standard.Security.AutoMountServiceAccountToken || !standard.StorageInitializer.EnableModelcar {
		t.Error("the chart's own settings did not arrive")
	}
	if r := standard.Router; r.Image != "modelplane-pod:v"+appVersion(t) || strings.Join(r.Command, " ") != "/modelplane-pod router" {
		t.Errorf("graphs run on %s %q", r.Image, r.Command)
	}
	if r := parse(`{serving: {config: {router: {image: "kserve/router:v0.20.0"}}}}`).Router; r.Image != "kserve/router:v0.20.0" || r.Command != nil {
		t.Errorf("another router is started as %s %q", r.Image, r.Command)
	}
	// What is not an image, a name of a key or a setting of the chart is what holds without a ConfigMap.
	plain := config.Default()
	if diff := cmp.Diff(plain.Ingress, standard.Ingress); diff != "" {
		t.Errorf("ingress (-without +with the ConfigMap):\n%s", diff)
	}
	own := parse(`{serving: {config: {deploy: {defaultDeploymentMode: Knative}, ingress: {ingressDomain: models.example}, multiNode: {customGPUResourceTypeList: [a.com/b]}}}}`)
	if own.Deploy.DefaultDeploymentMode != config.ModeKnative || own.Ingress.IngressDomain != "models.example" ||
		own.Ingress.URLScheme != plain.Ingress.URLScheme || !slices.Equal(own.MultiNode.CustomGPUResourceTypeList, []string{"a.com/b"}) {
		t.Errorf("the user's settings did not arrive: %+v", own)
	}
	for _, values := range []string{"{serving: {createConfig: false}}", "{enable: [mlflow]}"} {
		if configMap(t, config.Name, valuesOf(t, values)) != nil {
			t.Errorf("%s: there is a configuration", values)
		}
	}
}

// TestAgentImage: the agent is our own unless somebody names another, which starts by itself.
func TestAgentImage(t *testing.T) {
	pod, own := "modelplane-pod:v"+appVersion(t), []string{"/modelplane-pod", "agent"}
	for values, want := range map[string]config.Agent{
		"{}": {Image: pod, Command: own},
		`{image: {repository: r.example/m, tag: "1"}}`:                                       {Image: "r.example/m-pod:1", Command: own},
		`{serving: {config: {agent: {image: "kserve/agent:v0.20.0"}}}}`:                      {Image: "kserve/agent:v0.20.0"},
		`{serving: {config: {agent: {image: "mine:1", command: [/modelplane-pod, agent]}}}}`: {Image: "mine:1", Command: own},
	} {
		cfg, problems := config.Parse(configMap(t, config.Name, valuesOf(t, values)).Data, nil)
		if len(problems) > 0 {
			t.Errorf("%s: %v", values, problems)
		}
		if got := cfg.Agent; got.Image != want.Image || !slices.Equal(got.Command, want.Command) || cfg.Logger.Image != want.Image || cfg.Batcher.Image != want.Image {
			t.Errorf("%s: %+v, and %s and %s, want %+v", values, got, cfg.Logger.Image, cfg.Batcher.Image, want)
		}
	}
}

// TestConfigurationKeys keeps the schema of the values and the manager's keys together.
func TestConfigurationKeys(t *testing.T) {
	var schema struct {
		Properties struct {
			Serving struct {
				Properties struct {
					Config struct{ Properties map[string]any }
				}
			}
		}
	}
	read(t, "values.schema.json", &schema)
	data := map[string]string{}
	for key := range schema.Properties.Serving.Properties.Config.Properties {
		data[key] = "{}"
	}
	if len(data) != 19 {
		t.Errorf("%d keys, want 19", len(data))
	}
	_, problems := config.Parse(data, nil)
	for _, p := range problems {
		if p.Warning {
			t.Errorf("%s is no key that the manager knows: %s", p.Key, p.Message)
		}
	}
}

// bring reads what the manager would create.
func bring(t *testing.T, values map[string]any) (map[string]v1alpha1.ClusterServingRuntime, map[string]v1alpha1.ClusterStorageContainer) {
	t.Helper()
	cm := configMap(t, defaultruntimes.Name, values)
	if cm == nil {
		t.Fatal("there is no list")
	}
	runtimes, containers := map[string]v1alpha1.ClusterServingRuntime{}, map[string]v1alpha1.ClusterStorageContainer{}
	for key, text := range cm.Data {
		var rt v1alpha1.ClusterServingRuntime
		var container v1alpha1.ClusterStorageContainer
		var err error
		if strings.HasPrefix(key, "storagecontainer-") {
			err = yaml.UnmarshalStrict([]byte(text), &container)
			containers[container.Name] = container
		} else {
			err = yaml.UnmarshalStrict([]byte(text), &rt)
			runtimes[rt.Name] = rt
		}
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	return runtimes, containers
}

// appVersion is the chart's; images of our own are tagged by it.
func appVersion(t *testing.T) string {
	t.Helper()
	var meta struct{ AppVersion string }
	read(t, "Chart.yaml", &meta)
	return meta.AppVersion
}

func TestShippedValues(t *testing.T) {
	const pod = "/modelplane-pod storage-initializer"
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, test := range []struct {
		name, values string
		count        int
		images       map[string]string
		download     string
		command      string
	}{{
		name: "default", values: "{}", count: 16, download: "modelplane-pod:v" + appVersion(t), command: pod,
		images: map[string]string{
			"kserve-sklearnserver": "kserve/sklearnserver:v0.20.0", "kserve-tritonserver": "nvcr.io/nvidia/tritonserver:25.02-py3",
			"kserve-huggingfaceserver-multinode": "kserve/huggingfaceserver:v0.20.0-gpu", "kserve-openvino": "",
			"modelplane-onnx": "modelplane-onnx:v" + appVersion(t), "modelplane-onnx-mesh": "modelplane-onnx:v" + appVersion(t), "triton-2.x": "",
		},
	}, {
		name: "a registry", values: "{runtimes: {registry: registry.example/mirror/}}", count: 16, download: "modelplane-pod:v" + appVersion(t), command: pod,
		images: map[string]string{
			"kserve-sklearnserver": "registry.example/mirror/kserve/sklearnserver:v0.20.0",
			"kserve-tritonserver":  "registry.example/mirror/nvidia/tritonserver:25.02-py3",
		},
	}, {
		name: "single ones", count: 16, download: "own:1",
		values: `{runtimes: {registry: r.example, servers: {kserve-openvino: {enabled: true}, kserve-vllmserver: {enabled: false}, kserve-xgbserver: {image: {tag: "2"}},
			kserve-lgbserver: {image: {repository: "own.example:5000/lgb"}}, kserve-pmmlserver: {image: {digest: "` + digest + `"}},
			kserve-huggingfaceserver-multinode: {image: {tag: "2"}}}},
			serving: {config: {storageInitializer: {image: "own:1"}}}}`,
		images: map[string]string{
			"kserve-openvino": "r.example/openvino/model_server:2026.1", "kserve-vllmserver": "", "kserve-xgbserver": "r.example/kserve/xgbserver:2",
			"kserve-lgbserver": "own.example:5000/lgb:v0.20.0", "kserve-pmmlserver": "r.example/kserve/pmmlserver@" + digest,
			"kserve-huggingfaceserver-multinode": "r.example/kserve/huggingfaceserver:2",
		},
	}, {
		name: "no mesh", values: "{enable: [serving]}", count: 15, download: "modelplane-pod:v" + appVersion(t), command: pod,
		images: map[string]string{"modelplane-onnx-mesh": ""},
	}, {
		name: "all of the mesh", count: 20, download: "modelplane-pod:v" + appVersion(t), command: pod,
		values: "{runtimes: {registry: r.example, servers: {mlserver-1.x: {enabled: true}, ovms-1.x: {enabled: true}, torchserve-0.x: {enabled: true}, triton-2.x: {enabled: true}}}}",
		images: map[string]string{"modelplane-onnx-mesh": "r.example/modelplane-onnx:v" + appVersion(t), "mlserver-1.x": "r.example/seldonio/mlserver:1.3.2"},
	}, {
		name: "no runtimes", values: "{runtimes: {enabled: false}}", count: 0, download: "modelplane-pod:v" + appVersion(t), command: pod,
	}, {
		name: "the manager's image by name", count: 16, download: "m:1", command: "/modelplane storage-initializer",
		values: `{image: {repository: m, tag: "1"}, serving: {config: {storageInitializer: {image: "m:1"}}}}`,
	}, {
		name: "beside the manager's", count: 16, download: "r.example/m-pod:1", command: pod, values: `{image: {repository: r.example/m, tag: "1"}}`,
	}, {
		name: "its own image", count: 16, download: "own/pod@" + digest, command: pod,
		values: `{image: {repository: m, tag: "1"}, podImage: {repository: own/pod, digest: "` + digest + `"}}`,
	}, {
		name: "its own tag", count: 16, download: "modelplane-pod:2", command: pod,
		values: `{image: {digest: "` + digest + `"}, podImage: {tag: "2"}}`,
	}, {
		name: "no storage container", values: "{storageContainers: {enabled: false}}", count: 16,
	}} {
		t.Run(test.name, func(t *testing.T) {
			got, containers := bring(t, valuesOf(t, test.values))
			if len(got) != test.count {
				t.Errorf("%d runtimes, want %d", len(got), test.count)
			}
			for name, want := range test.images {
				all := got[name].Spec.Containers
				if w := got[name].Spec.WorkerSpec; w != nil {
					all = slices.Concat(all, w.Containers)
				}
				for _, c := range all {
					if c.Image != want {
						t.Errorf("%s has image %s, want %s", name, c.Image, want)
					}
				}
				if want == "" && all != nil {
					t.Errorf("%s is there", name)
				}
			}
			if image := containers["default"].Spec.Container.Image; image != test.download {
				t.Errorf("models are downloaded by %q, want %q", image, test.download)
			}
			if command := strings.Join(containers["default"].Spec.Container.Command, " "); command != test.command {
				t.Errorf("downloads are started with %q, want %q", command, test.command)
			}
		})
	}
	if configMap(t, defaultruntimes.Name, valuesOf(t, "{enable: [mlflow]}")) != nil {
		t.Error("runtimes without the domain")
	}
	for values, want := range map[string]string{
		"{runtimes: {servers: {sklearn: {}}}}":                               "runtimes.servers.sklearn: there is no such runtime",
		"{runtimes: {servers: {kserve-sklearnserver: {tag: a}}}}":            "'tag' not allowed",
		"{serving: {config: {ingres: {}}}}":                                  "'ingres' not allowed",
		"{runtimes: {servers: {kserve-sklearnserver: {image: {tag: a b}}}}}": "/image/tag",
	} {
		_, err := chart.Render(charttest.Dir(), chart.Release{Values: valuesOf(t, values)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
}

// TestShippedRuntimesUnderRestrictedLevel lets the manager's part create everything against the definitions, and then
// makes the pods that a service would have in a namespace that enforces the restricted level.
func TestShippedRuntimesUnderRestrictedLevel(t *testing.T) {
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Spec.Names.Kind == "ClusterServingRuntime" || crd.Spec.Names.Kind == "ClusterStorageContainer" {
			cluster.InstallCRDs(t, crd)
		}
	}
	namespace := restricted(t, cluster)
	cm := configMap(t, defaultruntimes.Name, valuesOf(t, "{runtimes: {servers: {kserve-openvino: {enabled: true}}}}"))
	cm.Namespace = namespace
	if err := cluster.Client().Create(context.Background(), cm); err != nil {
		t.Fatal(err)
	}
	keep(t, cluster, namespace)
	want, _ := bring(t, valuesOf(t, "{runtimes: {servers: {kserve-openvino: {enabled: true}}}}"))
	live := unstructured.UnstructuredList{}
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ClusterServingRuntimeList"))
	testkit.Eventually(t, time.Minute, "all runtimes to be created", func() error {
		if err := cluster.Client().List(context.Background(), &live); err != nil {
			return err
		}
		if len(live.Items) != len(want) {
			return fmt.Errorf("%d of %d", len(live.Items), len(want))
		}
		return nil
	})
	for _, item := range live.Items {
		var rt v1alpha1.ClusterServingRuntime
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &rt); err != nil {
			t.Fatal(err)
		}
		if ptr.Deref(rt.Spec.MultiModel, false) {
			continue // its pods are the mesh's
		}
		rt.Spec.Disabled = nil // one that somebody enables must pass as well
		tryPods(t, cluster, namespace, rt)
	}
}

// keep runs the manager's part until the end of the test, and removes what it made.
func keep(t *testing.T, cluster *testkit.Cluster, namespace string) {
	t.Helper()
	scheme, err := domains.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	stop := testkit.Manage(t, func(ctx context.Context) error {
		return domaintest.RunIn(ctx, cluster.Config(), scheme, engine.Scope{Home: namespace}, nil, defaultruntimes.Controller())
	})
	t.Cleanup(func() {
		stop()
		for _, kind := range []string{"ClusterServingRuntime", "ClusterStorageContainer"} {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
			if err := cluster.Client().DeleteAllOf(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
	})
}

// tryPods asks the API server whether it would take the pods of a service with the runtime.
func tryPods(t *testing.T, cluster *testkit.Cluster, namespace string, rt v1alpha1.ClusterServingRuntime) {
	t.Helper()
	isvc := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Name: "iris", Namespace: namespace}}
	p := &isvc.Spec.Predictor
	p.Model = &v1beta1.ModelSpec{
		ModelFormat: v1beta1.ModelFormat{Name: rt.Spec.SupportedModelFormats[0].Name},
		Runtime:     &rt.Name,
	}
	if rt.Spec.WorkerSpec != nil {
		p.WorkerSpec = &v1beta1.WorkerSpec{}
	}
	chosen, failure := runtimes.Select(p.Model, p.WorkerSpec != nil, runtimes.Candidates{Cluster: []v1alpha1.ClusterServingRuntime{rt}})
	if failure != nil {
		t.Errorf("%s: %v", rt.Name, failure)
		return
	}
	merged, failure := runtimes.Merge(isvc, p, chosen, nil)
	if failure != nil {
		t.Errorf("%s: %v", rt.Name, failure)
		return
	}
	specs := []corev1.PodSpec{merged.Pod}
	if merged.Worker != nil {
		specs = append(specs, merged.Worker.Pod)
	}
	for i, spec := range specs {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", rt.Name, i), Namespace: namespace}, Spec: spec}
		if err := cluster.Client().Create(context.Background(), pod, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", rt.Name, err)
		}
	}
}
