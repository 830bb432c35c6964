// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
)

func TestCallOf(t *testing.T) {
	const applyYAML, applyCBOR, merge = "application/apply-patch+yaml", "application/apply-patch+cbor", "application/merge-patch+json"
	tests := []struct {
		method, url, contentType string
		want                     Call
	}{
		{"GET", "/api/v1/namespaces/a/pods/p", "", Call{"get", "", "pods", ""}},
		{"GET", "/api/v1/namespaces/a/pods", "", Call{"list", "", "pods", ""}},
		{"GET", "/api/v1/pods?watch=true&resourceVersion=1", "", Call{"watch", "", "pods", ""}},
		{"GET", "/api/v1/namespaces", "", Call{"list", "", "namespaces", ""}},
		{"GET", "/api/v1/namespaces/a", "", Call{"get", "", "namespaces", ""}},
		{"PUT", "/api/v1/namespaces/a/finalize", "", Call{"update", "", "namespaces", "finalize"}},
		{"PUT", "/api/v1/namespaces/a/status", "", Call{"update", "", "namespaces", "status"}},
		{"POST", "/api/v1/namespaces/a/serviceaccounts/s/token", "", Call{"create", "", "serviceaccounts", "token"}},
		{"POST", "/apis/apps/v1/namespaces/a/deployments", "", Call{"create", "apps", "deployments", ""}},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/d", merge, Call{"patch", "apps", "deployments", ""}},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/d", applyYAML, Call{"apply", "apps", "deployments", ""}},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/d/status", applyCBOR, Call{"apply", "apps", "deployments", "status"}},
		{"DELETE", "/apis/apps/v1/namespaces/a/deployments/d", "", Call{"delete", "apps", "deployments", ""}},
		{"DELETE", "/apis/apps/v1/namespaces/a/deployments", "", Call{"deletecollection", "apps", "deployments", ""}},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view", "", Call{"get", "rbac.authorization.k8s.io", "clusterroles", ""}},
		{"GET", "/apis/serving.kserve.io/v1beta1/inferenceservices?fieldSelector=metadata.name%3Dx", "", Call{"list", "serving.kserve.io", "inferenceservices", ""}},
		{"GET", "/apis", "", Call{"get", "", "/apis", ""}},
		{"GET", "/apis/apps/v1", "", Call{"get", "", "/apis/apps/v1", ""}},
		{"GET", "/readyz?verbose", "", Call{"get", "", "/readyz", ""}},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.url, func(t *testing.T) {
			req, err := http.NewRequest(test.method, "https://server"+test.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", test.contentType)
			if diff := cmp.Diff(test.want, callOf(req)); diff != "" {
				t.Errorf("call (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCounterSeesEveryVerb(t *testing.T) {
	cluster := Start(t)
	namespace, ctx := cluster.Namespace(t), t.Context()
	counter := NewCounter()
	kube := kubernetes.NewForConfigOrDie(counter.Wrap(cluster.Config()))
	configs, deployments := kube.CoreV1().ConfigMaps(namespace), kube.AppsV1().Deployments(namespace)
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	made, err := configs.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
	check(made, err)
	before := counter.Snapshot()
	check(configs.Get(ctx, "c", metav1.GetOptions{}))
	check(configs.List(ctx, metav1.ListOptions{}))
	watch, err := configs.Watch(ctx, metav1.ListOptions{})
	check(watch, err)
	watch.Stop()
	check(configs.Update(ctx, made, metav1.UpdateOptions{}))
	check(configs.Patch(ctx, "c", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}))
	check(configs.Apply(ctx, corev1ac.ConfigMap("c", namespace), metav1.ApplyOptions{FieldManager: "test", Force: true}))
	check(nil, configs.Delete(ctx, "c", metav1.DeleteOptions{}))
	check(nil, configs.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	check(deployments.Create(ctx, deployment(namespace, "d"), metav1.CreateOptions{}))
	check(deployments.ApplyStatus(ctx, appsv1ac.Deployment("d", namespace).
		WithStatus(appsv1ac.DeploymentStatus().WithObservedGeneration(1)), metav1.ApplyOptions{FieldManager: "test", Force: true}))
	check(kube.CoordinationV1().Leases(namespace).Apply(ctx, coordinationv1ac.Lease("l", namespace), metav1.ApplyOptions{FieldManager: "test"}))
	check(kube.CoreV1().ServiceAccounts(namespace).List(ctx, metav1.ListOptions{}))

	got := counter.Since(before)
	want := Counts{
		{"get", "", "configmaps", ""}:                  1,
		{"list", "", "configmaps", ""}:                 1,
		{"watch", "", "configmaps", ""}:                1,
		{"update", "", "configmaps", ""}:               1,
		{"patch", "", "configmaps", ""}:                1,
		{"apply", "", "configmaps", ""}:                1,
		{"delete", "", "configmaps", ""}:               1,
		{"deletecollection", "", "configmaps", ""}:     1,
		{"create", "apps", "deployments", ""}:          1,
		{"apply", "apps", "deployments", "status"}:     1,
		{"apply", "coordination.k8s.io", "leases", ""}: 1,
		{"list", "", "serviceaccounts", ""}:            1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got.Writes() != 7 || got.Leases() != 1 || counter.Writes() != 8 || got.Total() != 12 {
		t.Errorf("writes %d (7), leases %d (1), writes from the start %d (8), total %d (12)",
			got.Writes(), got.Leases(), counter.Writes(), got.Total())
	}
	if n := got.Of("", "configmaps"); n != 8 {
		t.Errorf("requests for configmaps = %d, want 8", n)
	}
	if n := got.Of("apply", ""); n != 3 {
		t.Errorf("applies = %d, want 3", n)
	}
	table := counter.String()
	for _, line := range []string{"apply", "apps/deployments/status", "8 writes, and 1 to leases"} {
		if !strings.Contains(table, line) {
			t.Errorf("the table lacks %q:\n%s", line, table)
		}
	}
}
