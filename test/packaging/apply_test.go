// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestApplyUnderRestrictedLevel applies everything with a plain kubectl, into a namespace that enforces the restricted
// level and says so for Deployments too. Neither a refusal nor a warning is right.
func TestApplyUnderRestrictedLevel(t *testing.T) {
	cluster := testkit.Start(t)
	cluster.Install(t, testkit.PrometheusOperator, testkit.CertManager)
	for name, values := range map[string]map[string]any{"default": withoutDefinitions(), "everything": everything()} {
		t.Run(name, func(t *testing.T) {
			namespace := restricted(t, cluster)
			objects := charttest.Render(t, chart.Release{Namespace: namespace, Values: values})
			removeAfter(t, cluster, objects)
			// Client-side, the hardest case: the whole object goes into an annotation.
			stdout, stderr, err := cluster.Kubectl(t, manifest(t, objects), "apply", "-f", "-")
			if err != nil {
				t.Fatalf("kubectl apply: %v\n%s", err, stderr)
			}
			if warnings := ours(stderr); warnings != "" {
				t.Errorf("warnings:\n%s", warnings)
			}
			if got := strings.Count(stdout, "\n"); got != len(objects) {
				t.Errorf("%d objects applied, want %d:\n%s", got, len(objects), stdout)
			}
			createPod(t, cluster, objects)
		})
	}
}

// ours leaves out what kubectl says about definitions that another test installed in another way.
func ours(stderr string) string {
	var out []string
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "missing the kubectl.kubernetes.io/last-applied-configuration annotation") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func restricted(t *testing.T, cluster *testkit.Cluster) string {
	t.Helper()
	namespace := &corev1.Namespace{}
	if err := cluster.Client().Get(context.Background(), client.ObjectKey{Name: cluster.Namespace(t)}, namespace); err != nil {
		t.Fatal(err)
	}
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	namespace.Labels["pod-security.kubernetes.io/warn"] = "restricted"
	if err := cluster.Client().Update(context.Background(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// createPod does the work of the Deployment controller, which is not there.
func createPod(t *testing.T, cluster *testkit.Cluster, objects []chart.Object) {
	t.Helper()
	i := slices.IndexFunc(objects, func(o chart.Object) bool { return o.GetKind() == "Deployment" })
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, deployment); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "manager", Namespace: deployment.Namespace,
			Labels: deployment.Spec.Template.Labels, Annotations: deployment.Spec.Template.Annotations,
		},
		Spec: deployment.Spec.Template.Spec,
	}
	if err := cluster.Client().Create(context.Background(), pod); err != nil {
		t.Errorf("the manager's pod is refused: %v", err)
	}
	if i := slices.IndexFunc(objects, func(o chart.Object) bool { return o.GetKind() == "StatefulSet" }); i >= 0 {
		createMember(t, cluster, objects[i])
	}
	// Proof that the namespace is on its guard.
	pod = pod.DeepCopy()
	pod.Name, pod.ResourceVersion = "careless", ""
	pod.Spec.Containers[0].SecurityContext = nil
	if err := cluster.Client().Create(context.Background(), pod); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a careless pod was not refused: %v", err)
	}
}

// createMember does the same for etcd, with a disk that is not there either.
func createMember(t *testing.T, cluster *testkit.Cluster, object chart.Object) {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: set.Name + "-0", Namespace: set.Namespace, Labels: set.Spec.Template.Labels},
		Spec:       set.Spec.Template.Spec,
	}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name})
	}
	if err := cluster.Client().Create(context.Background(), pod); err != nil {
		t.Errorf("a pod of etcd is refused: %v", err)
	}
}

func manifest(t *testing.T, objects []chart.Object) string {
	t.Helper()
	var out strings.Builder
	for _, o := range objects {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", raw)
	}
	return out.String()
}

// removeAfter takes everything away but the definitions, as Helm would. These stay for the tests that follow, without
// what a manager wrote into them.
func removeAfter(t *testing.T, cluster *testkit.Cluster, objects []chart.Object) {
	t.Helper()
	t.Cleanup(func() {
		for _, o := range objects {
			var err error
			if o.GetKind() == "CustomResourceDefinition" {
				err = restoreConversion(cluster, o.Unstructured)
			} else {
				err = cluster.Client().Delete(context.Background(), &unstructured.Unstructured{Object: o.Object})
			}
			if client.IgnoreNotFound(err) != nil {
				t.Errorf("clearing away %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	})
}

func restoreConversion(cluster *testkit.Cluster, crd *unstructured.Unstructured) error {
	conversion, found, err := unstructured.NestedMap(crd.Object, "spec", "conversion")
	if err != nil || !found {
		return err
	}
	patch, err := json.Marshal([]any{map[string]any{"op": "replace", "path": "/spec/conversion", "value": conversion}})
	if err != nil {
		return err
	}
	return cluster.Client().Patch(context.Background(), &unstructured.Unstructured{Object: crd.Object},
		client.RawPatch(types.JSONPatchType, patch))
}
