// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	servingv1beta1 "github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestOnAServer puts the webhooks behind a real API server and goes through the
// life of an object: one that was stored before there was a webhook, with a
// field nobody knows, and new ones.
func TestOnAServer(t *testing.T) {
	cluster := testkit.Start(t)
	defs, err := charts.CRDs()
	must(t, err)
	cluster.InstallCRDs(t, defs...)
	namespace, c := cluster.Namespace(t), cluster.Client()
	old := in(namespace, object(t, stored))
	must(t, c.Create(t.Context(), old))
	serve(t, cluster)

	refused, want := in(namespace, object(t, misspelt)), `spec.predictor.containers[0].imagee: unknown field; did you mean "image"?`
	testkit.Eventually(t, 30*time.Second, "the webhook answers", func() error {
		err := c.Create(t.Context(), refused.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("creating it returned: %w", err)
		}
		return nil
	})
	_, stderr, err := cluster.Kubectl(t, misspelt, "apply", "-n", namespace, "-f", "-")
	if err == nil || !strings.Contains(stderr, want) {
		t.Errorf("kubectl says %q, want %q in it", stderr, want)
	}

	good := in(namespace, object(t, strings.Replace(misspelt, "imagee", "image", 1)))
	must(t, c.Create(t.Context(), good))
	if name, _, _ := unstructured.NestedString(good.Object, "metadata", "labels", "defaulted"); name != "yes" {
		t.Errorf("the default was not applied: %v", good.Object["metadata"])
	}

	changed := old.DeepCopy()
	changed.SetAnnotations(map[string]string{"touched": "yes"})
	must(t, c.Update(t.Context(), changed))
	containers, _, _ := unstructured.NestedSlice(changed.Object, "spec", "predictor", "containers")
	if len(containers) != 1 || containers[0].(map[string]any)["imagee"] != "kept" {
		t.Errorf("a field that was there before was dropped in silence: %v", containers)
	}
	must(t, unstructured.SetNestedField(containers[0].(map[string]any), "x", "alsoWrong"))
	must(t, unstructured.SetNestedSlice(changed.Object, containers, "spec", "predictor", "containers"))
	if err := c.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), "containers[0].alsoWrong: unknown field") ||
		strings.Contains(err.Error(), "imagee") {
		t.Errorf("want the new problem alone refused, have %v", err)
	}
	letGo(t, c, old)
}

// letGo deletes an object that has a finalizer and a problem, which must not
// keep it from leaving.
func letGo(t *testing.T, c client.Client, obj *unstructured.Unstructured) {
	t.Helper()
	must(t, c.Delete(t.Context(), obj))
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
	obj.SetFinalizers(nil)
	must(t, c.Update(t.Context(), obj))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("it is still there: %v", err)
	}
}

const misspelt = `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: new}
spec: {predictor: {containers: [{name: a, imagee: b}]}}
`

const stored = `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: old, finalizers: [modelplane.dev/test]}
spec: {predictor: {containers: [{name: a, imagee: kept}]}}
`

func in(namespace string, u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetNamespace(namespace)
	return u
}

// serve runs a webhook server for all serving kinds and tells the API server of it.
func serve(t *testing.T, cluster *testkit.Cluster) {
	t.Helper()
	kinds, err := Kinds(Serving)
	must(t, err)
	for i := range kinds {
		if _, ok := kinds[i].New().(*servingv1beta1.InferenceService); ok {
			kinds[i].Default = func(_ context.Context, obj client.Object) error {
				obj.SetLabels(map[string]string{"defaulted": "yes"})
				return nil
			}
		}
	}
	scheme := runtime.NewScheme()
	must(t, AddToScheme(scheme))
	dir, ca := cluster.ServingCert(t)
	port := testkit.FreePort(t)
	server := webhook.NewServer(webhook.Options{Host: cluster.WebhookHost(), Port: port, CertDir: dir})
	must(t, Register(server, scheme, kinds...))
	cluster.Serve(t, server, port)
	install(t, cluster, port, ca, kinds)
}

func install(t *testing.T, cluster *testkit.Cluster, port int, ca []byte, kinds []Kind) {
	t.Helper()
	validating, mutating, err := Webhooks("modelplane-test", Service{Namespace: "n", Name: "s"}, kinds...)
	must(t, err)
	for i := range validating.Webhooks {
		cluster.PointWebhook(&validating.Webhooks[i].ClientConfig, port, ca)
	}
	for i := range mutating.Webhooks {
		cluster.PointWebhook(&mutating.Webhooks[i].ClientConfig, port, ca)
	}
	// Other tests of this binary share the server: the webhooks are for this one only.
	for _, obj := range []client.Object{validating, mutating} {
		must(t, cluster.Client().Create(t.Context(), obj))
		t.Cleanup(func() {
			if err := cluster.Client().Delete(context.Background(), obj); err != nil {
				t.Errorf("removing the webhooks: %v", err)
			}
		})
	}
}
