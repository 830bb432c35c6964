// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/defaultruntimes"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

const (
	// examples are of this repository.
	examples = "../../examples/serving"
	// theirs are manifests that users of KServe already have. They are kept beside the repository.
	theirs = "theirs"
)

// handled are the kinds that are looked after now, in the order in which people create them.
var handled = []string{
	"ClusterStorageContainer", "ClusterServingRuntime", "ServingRuntime", "InferenceService", "TrainedModel", "InferenceGraph",
}

// readManifests returns the objects of the handled kinds below a folder.
func readManifests(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	if dir == theirs {
		dir = checkout.Manifests(t, "kserve")
	}
	var all []*unstructured.Unstructured
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, u := range documents(t, string(text)) {
			if slices.Contains(handled, u.GetKind()) {
				all = append(all, u)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		return slices.Index(handled, a.GetKind()) - slices.Index(handled, b.GetKind())
	})
	return all
}

// TestManifestsConverge creates what people start from and what they bring along, in the mode that is our default and in
// the one that is KServe's, and plays the rest of the cluster until everything is ready.
func TestManifestsConverge(t *testing.T) {
	for _, dir := range []string{examples, theirs} {
		for _, mode := range []string{config.ModeStandard, config.ModeKnative} {
			t.Run(filepath.Base(dir)+"/"+mode, func(t *testing.T) {
				manifests := readManifests(t, dir)
				h := install(t, testkit.Start(t))
				h.configure(t, mode)
				h.run(t, h.Manager, h.options(t))
				if dir == examples {
					h.ship(t)
					manifests = append(manifests, h.neighbours(t, manifests)...)
				}
				h.converge(t, manifests)
			})
		}
	}
}

// configure turns on what the manifests ask for.
func (h *house) configure(t *testing.T, mode string) {
	t.Helper()
	for _, api := range products {
		h.Install(t, api)
	}
	h.Configure(t, map[string]string{
		config.KeyDeploy: fmt.Sprintf(`{"defaultDeploymentMode": %q}`, mode),
		config.KeyIngress: `{"enableGatewayApi": true, "kserveIngressGateway": "gateways/shared", "ingressGateway": "a/b",
			"domainTemplate": "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"}`, // names of tests are long
	})
}

// ship lets the manager bring the runtimes that come with a release.
func (h *house) ship(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for _, kind := range []client.Object{&v1alpha1.ClusterServingRuntime{}, &v1alpha1.ClusterStorageContainer{}} {
			if err := h.C.DeleteAllOf(context.Background(), kind); err != nil {
				t.Error(err)
			}
		}
	})
	objects := charttest.Render(t, h.chart())
	i := slices.IndexFunc(objects, func(o chart.Object) bool { return o.GetKind() == "ConfigMap" && o.GetName() == defaultruntimes.Name })
	h.put(t, objects[i].Unstructured)
	listed, _, _ := unstructured.NestedMap(objects[i].Object, "data")
	testkit.Eventually(t, patience, "what comes with the release", func() error {
		servers, fetchers := &v1alpha1.ClusterServingRuntimeList{}, &v1alpha1.ClusterStorageContainerList{}
		if err := errors.Join(h.C.List(t.Context(), servers), h.C.List(t.Context(), fetchers)); err != nil {
			return err
		}
		if n := len(servers.Items) + len(fetchers.Items); n < len(listed) {
			return fmt.Errorf("%d of %d", n, len(listed))
		}
		return nil
	})
}

// neighbours are a secret, and the services that examples only speak of.
func (h *house) neighbours(t *testing.T, examples []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	h.Create(t, &corev1.Secret{ObjectMeta: objectMeta(h.NS, "storage-config"), StringData: map[string]string{
		"team-bucket": `{"type": "s3", "bucket": "team", "access_key_id": "id", "secret_access_key": "key"}`,
	}})
	var out []*unstructured.Unstructured
	for _, name := range []string{"iris", "iris-next", "digits", "language", "sentiment-de", "iris-many"} {
		if slices.ContainsFunc(examples, func(u *unstructured.Unstructured) bool {
			return u.GetKind() == "InferenceService" && u.GetName() == name
		}) {
			continue
		}
		isvc := h.Service(name, "sklearn")
		if name == "iris-many" {
			isvc.Spec.Predictor.Model.StorageURI = nil // it takes models one by one
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(isvc)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("InferenceService"))
		out = append(out, u)
	}
	return out
}

// converge creates manifests and waits for them.
func (h *house) converge(t *testing.T, manifests []*unstructured.Unstructured) {
	t.Helper()
	for _, u := range manifests {
		if u.SetNamespace(h.NS); strings.HasPrefix(u.GetKind(), "Cluster") {
			u.SetNamespace("")
		}
		h.put(t, u)
	}
	for _, u := range manifests {
		if slices.Contains([]string{"InferenceService", "TrainedModel", "InferenceGraph"}, u.GetKind()) {
			t.Run(u.GetKind()+"-"+u.GetName(), func(t *testing.T) { h.converges(t, u) })
		}
	}
	h.startPods(t)
}

// converges waits until an object is ready, or stopped as it should be.
func (h *house) converges(t *testing.T, u *unstructured.Unstructured) {
	want := condition{Type: "Ready", Status: "True"}
	if u.GetAnnotations()[v1beta1.AnnotationStop] == "true" {
		want = condition{Type: "Ready", Status: "False", Reason: "Stopped"}
	}
	testkit.Eventually(t, patience, u.GetName()+" to be ready", func() error {
		if err := h.playAll(t.Context()); err != nil {
			return err
		}
		if err := h.C.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		conditions := conditionsOf(u)
		if !slices.ContainsFunc(conditions, func(c condition) bool { c.Message = ""; return c == want }) {
			return fmt.Errorf("conditions: %+v", conditions)
		}
		return nil
	})
	options := []testkit.LintOption{testkit.KnativeConditions(), testkit.AllowUnready("Stopped")}
	if u.GetKind() == "InferenceGraph" {
		options = append(options, testkit.ForeignMessages("Stopped"))
	}
	testkit.LintConditions(t, u, options...)
}

// startPods plays the controllers that make ReplicaSets and pods of templates. The webhook for pods has its say, and whoever has a model
// to fetch gets a container that fetches it.
func (h *house) startPods(t *testing.T) {
	t.Helper()
	deployments := &appsv1.DeploymentList{}
	if err := h.C.List(t.Context(), deployments, client.InNamespace(h.NS), client.HasLabels{v1beta1.LabelInferenceService}); err != nil {
		t.Fatal(err)
	}
	for i := range deployments.Items {
		template := &deployments.Items[i].Spec.Template
		set := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.NS, GenerateName: deployments.Items[i].Name + "-"},
			Spec:       appsv1.ReplicaSetSpec{Selector: deployments.Items[i].Spec.Selector, Template: *template},
		}
		if err := h.C.Create(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Name, pod.GenerateName = "", set.Name+"-"
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		if err := h.C.Create(t.Context(), pod); err != nil {
			t.Errorf("a pod of Deployment %s: %v", deployments.Items[i].Name, err)
			continue
		}
		uri := template.Annotations[v1beta1.AnnotationStorageSourceURI]
		mounted := uri == "" || strings.HasPrefix(uri, "pvc://") || strings.HasPrefix(uri, "oci://")
		if !mounted && !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "storage-initializer" }) {
			t.Errorf("nobody fetches the model of Deployment %s from %q", deployments.Items[i].Name, uri)
		}
	}
}
