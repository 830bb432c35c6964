// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/testkit"
)

// confined are the values of an installation for some namespaces.
func confined(namespaces ...string) map[string]any {
	list := []any{}
	for _, n := range namespaces {
		list = append(list, n)
	}
	return map[string]any{"enable": []any{"serving"}, "watchNamespaces": list}
}

// TestConfinedInstallation: what an installation for some namespaces may do in others is nothing, of what holds for all it
// may read a little, and webhooks are asked for these namespaces only.
func TestConfinedInstallation(t *testing.T) {
	values := confined("team-a", "team-b")
	values["crds"] = map[string]any{"install": false}
	roles := map[string]int{}
	for _, o := range render(t, values) {
		switch o.GetKind() {
		case "ClusterRole":
			if o.Template == "rbac.yaml" {
				onlyClusterKinds(t, o.Unstructured)
			}
		case "Role", "RoleBinding":
			roles[o.GetNamespace()+" "+o.GetKind()]++
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
			for _, h := range hooks {
				selector := oneLine(t, h.(map[string]any)["namespaceSelector"])
				if !strings.Contains(selector, `{"key":"kubernetes.io/metadata.name","operator":"In","values":["team-a","team-b"]}`) {
					t.Errorf("a webhook of %s is asked for %s", o.GetKind(), selector)
				}
			}
		case "ConfigMap":
			if data, _, _ := unstructured.NestedMap(o.Object, "data"); o.GetName() == "modelplane-shipped" && len(data) > 0 {
				t.Errorf("it brings %d objects for the whole cluster", len(data))
			}
		}
	}
	for _, n := range []string{"team-a", "team-b", chart.DefaultNamespace} {
		if roles[n+" Role"] != 1 || roles[n+" RoleBinding"] != 1 {
			t.Errorf("%s has %d Roles and %d RoleBindings", n, roles[n+" Role"], roles[n+" RoleBinding"])
		}
	}
	values["enable"] = []any{"serving", "mlflow"}
	_, err := chart.Render(charttest.Dir(), chart.Release{Values: values})
	if err == nil || !strings.Contains(err.Error(), "the objects of mlflow have no namespace") {
		t.Errorf("with mlflow: %v", err)
	}
}

// onlyClusterKinds looks for permissions that reach into namespaces, and for those to change what holds for all.
func onlyClusterKinds(t *testing.T, role *unstructured.Unstructured) {
	t.Helper()
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	for _, r := range rules {
		text := oneLine(t, r)
		for _, resource := range []string{"secrets", "configmaps", "serviceaccounts", "pods", "deployments", "inferenceservices", "events"} {
			if strings.Contains(text, `"`+resource+`"`) {
				t.Errorf("in every namespace: %s", text)
			}
		}
		if strings.Contains(text, "serving.kserve.io\"]") && (strings.Contains(text, `"create"`) || strings.Contains(text, `"delete"`)) {
			t.Errorf("what holds for all is changed: %s", text)
		}
	}
}

// TestManagerInItsNamespaces runs the real binary with the roles of an installation for one namespace: a service there gets
// what it needs, one elsewhere is left alone, and nothing is ever asked for that is not permitted.
func TestManagerInItsNamespaces(t *testing.T) {
	cluster, program := testkit.Start(t), build(t)
	namespace, tenant, other := restricted(t, cluster), cluster.Namespace(t), cluster.Namespace(t)
	values := confined(tenant)
	values["activator"] = map[string]any{"enabled": true}
	objects := charttest.Render(t, chart.Release{Namespace: namespace, Values: values})
	removeAfter(t, cluster, objects)
	if _, stderr, err := cluster.Kubectl(t, manifest(t, objects), "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, stderr)
	}
	w := listen(t, cluster.ServiceAccountConfig(t, namespace, chart.DefaultRelease))
	managers := slices.DeleteFunc(slices.Clone(objects), func(o chart.Object) bool { return o.GetLabels()["app.kubernetes.io/component"] == "activator" })
	start := func(config *rest.Config) *running {
		m := newManager(t, program, namespace, container(t, managers))
		m.add("--kubeconfig="+cluster.KubeconfigFor(t, config), "--webhook-url=https://"+m.webhook)
		m.start(t)
		m.waitReady(t)
		return m
	}
	m := start(w.config)
	untouched := service(t, cluster, other, "elsewhere")
	for _, name := range []string{"first", "second"} { // what comes after the second was not missed, but left alone
		service(t, cluster, tenant, name)
		predictor := client.ObjectKey{Namespace: tenant, Name: name + "-predictor"}
		testkit.Eventually(t, time.Minute, "the Deployment and the Service of "+name, func() error {
			return firstError(cluster.Client().Get(t.Context(), predictor, &appsv1.Deployment{}), cluster.Client().Get(t.Context(), predictor, &corev1.Service{}))
		})
	}
	testkit.Eventually(t, time.Minute, "the status of a service", func() error {
		isvc := untouched.DeepCopy()
		if err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "first"}, isvc); err != nil {
			return err
		}
		if conditions, _, _ := unstructured.NestedSlice(isvc.Object, "status", "conditions"); len(conditions) == 0 {
			return fmt.Errorf("it has no conditions")
		}
		return nil
	})
	activates(t, cluster, namespace, tenant)
	deployments := &appsv1.DeploymentList{}
	if err := cluster.Client().List(t.Context(), deployments, client.InNamespace(other)); err != nil || len(deployments.Items) > 0 {
		t.Errorf("elsewhere there are %d Deployments: %v", len(deployments.Items), err)
	}
	if err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(untouched), untouched); err != nil || untouched.Object["status"] != nil {
		t.Errorf("the service elsewhere has status %v: %v", untouched.Object["status"], err)
	}
	m.stop(t)
	refused, _ := w.seen()
	for _, r := range refused {
		t.Errorf("refused with %s", r)
	}
}

// activates expects the manager to see the activator in its own namespace, and to put it before a service that may sleep.
func activates(t *testing.T, cluster *testkit.Cluster, namespace, tenant string) {
	t.Helper()
	const address = "10.9.9.9"
	replicas := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "activators", Labels: map[string]string{
		discoveryv1.LabelServiceName: "modelplane-activator", activation.LabelActivator: activation.ValueActivator}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To(activation.PortName), Port: ptr.To[int32](8080)}}}
	if err := cluster.Client().Create(t.Context(), replicas); err != nil {
		t.Fatal(err)
	}
	isvc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": map[string]any{"namespace": tenant, "name": "sleeper"},
		"spec": map[string]any{"predictor": map[string]any{"minReplicas": int64(0), "containers": []any{map[string]any{"name": "kserve-container", "image": "server:1"}}}},
	}}
	if err := cluster.Client().Create(t.Context(), isvc); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the activator before the service", func() error {
		slice := &discoveryv1.EndpointSlice{}
		if err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "sleeper-predictor-activator"}, slice); err != nil {
			return err
		}
		if len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != address {
			return fmt.Errorf("it leads to %v", slice.Endpoints)
		}
		return nil
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// service creates an InferenceService with a container of its own. Webhooks may take a moment to be asked.
func service(t *testing.T, cluster *testkit.Cluster, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	isvc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{"predictor": map[string]any{"containers": []any{
			map[string]any{"name": "kserve-container", "image": "server:1"},
		}}},
	}}
	testkit.Eventually(t, time.Minute, "an InferenceService in "+namespace, func() error {
		return client.IgnoreAlreadyExists(cluster.Client().Create(t.Context(), isvc.DeepCopy()))
	})
	return isvc
}
