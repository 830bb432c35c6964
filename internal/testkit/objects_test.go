// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var dumped = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
}

// family makes an owner with children that mention their namespace.
func family(t *testing.T, cluster *Cluster, data string) string {
	t.Helper()
	namespace := cluster.Namespace(t)
	owner := deployment(namespace, "owner")
	put := func(obj client.Object) {
		t.Helper()
		if err := cluster.Client().Create(context.Background(), obj); err != nil {
			t.Fatal(err)
		}
	}
	put(owner)
	put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "child", Annotations: map[string]string{"date": "2020-01-01T00:00:00Z"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner.Name, UID: owner.UID}},
		},
		Data: map[string]string{"url": "http://svc." + namespace + ".svc", "data": data},
	})
	put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "svc"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	owner.Status.Conditions = append(owner.Status.Conditions, readyCondition())
	if err := cluster.Client().Status().Update(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	return namespace
}

func TestObjectsOfTwinsAreEqual(t *testing.T) {
	cluster := Start(t)
	a, b, other := family(t, cluster, "same"), family(t, cluster, "same"), family(t, cluster, "different")
	if diff := cmp.Diff(cluster.ObjectsIn(t, a, dumped...), cluster.ObjectsIn(t, b, dumped...)); diff != "" {
		t.Errorf("twins differ:\n%s", diff)
	}
	if cmp.Equal(cluster.ObjectsIn(t, a, dumped...), cluster.ObjectsIn(t, other, dumped...)) {
		t.Error("a difference in the data was not seen")
	}
	objects := cluster.ObjectsIn(t, a, dumped...)
	want := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": "NAMESPACE", "name": "child", "annotations": map[string]any{"date": "2020-01-01T00:00:00Z"},
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "owner"}},
		},
		"data": map[string]any{"url": "http://svc.NAMESPACE.svc", "data": "same"},
	}
	if diff := cmp.Diff(want, objects["ConfigMap NAMESPACE/child"]); diff != "" {
		t.Errorf("the child (-want +got):\n%s", diff)
	}
	if _, ok := objects["Deployment.apps NAMESPACE/owner"]; !ok || len(objects) != 3 {
		t.Errorf("objects = %v", objects)
	}
	if everywhere := cluster.Objects(t, dumped...); len(everywhere) < 9 || everywhere["ConfigMap "+a+"/child"] == nil {
		t.Errorf("%d objects in all namespaces, want the three families among them", len(everywhere))
	}
}

func TestNormalizeKeepsWhatSaysSomething(t *testing.T) {
	headless := map[string]any{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"clusterIP": "None", "clusterIPs": []any{"None"}}}
	if diff := cmp.Diff(headless, Normalize(headless)); diff != "" {
		t.Errorf("a headless Service changed:\n%s", diff)
	}
	timed := map[string]any{"status": map[string]any{
		"startTime": "2020-01-01T00:00:00Z", "startupTime": "soon",
		"conditions": []any{map[string]any{"type": "Ready", "lastTransitionTime": "2020-01-01T00:00:00Z", "observedGeneration": int64(3)}},
	}}
	want := map[string]any{"status": map[string]any{"startupTime": "soon", "conditions": []any{map[string]any{"type": "Ready"}}}}
	if diff := cmp.Diff(want, Normalize(timed)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, kept := timed["status"].(map[string]any)["startTime"]; !kept {
		t.Error("the caller's object was changed")
	}
}

func readyCondition() appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "AllThere",
		LastTransitionTime: metav1.Now(), LastUpdateTime: metav1.Now(),
	}
}
