// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/modelplane/modelplane/internal/chart"
)

// etcdOf is what the chart has of etcd, by kind and name.
func etcdOf(t *testing.T, etcd map[string]any) map[string]*unstructured.Unstructured {
	t.Helper()
	values := withoutDefinitions()
	values["modelmesh"] = map[string]any{"etcd": etcd}
	out := map[string]*unstructured.Unstructured{}
	for _, o := range render(t, values) {
		if strings.HasPrefix(o.GetLabels()["app.kubernetes.io/component"], "etcd") || o.GetName() == chart.DefaultRelease {
			out[o.GetKind()+" "+o.GetName()] = o.Unstructured
		}
	}
	return out
}

// TestEtcdIsAskedFor: whoever has an etcd, or no ModelMesh, gets none.
func TestEtcdIsAskedFor(t *testing.T) {
	if found := etcdOf(t, map[string]any{"enabled": false}); found["StatefulSet modelplane-etcd"] != nil || found["Secret model-serving-etcd"] != nil {
		t.Error("there is an etcd that nobody asked for")
	}
	values := withoutDefinitions()
	values["modelmesh"] = map[string]any{"etcd": map[string]any{"enabled": true}}
	values["enable"] = []any{"serving"}
	for _, o := range render(t, values) {
		if o.GetKind() == "StatefulSet" || o.GetName() == "modelmesh-runtimes" {
			t.Errorf("%s %s without ModelMesh", o.GetKind(), o.GetName())
		}
	}
}

// TestEtcd: its pods are nobody else's, members and clients get what the values say, and Secrets are left for etcd to fill.
func TestEtcd(t *testing.T) {
	found := etcdOf(t, map[string]any{"enabled": true, "replicas": 3, "storage": map[string]any{"size": "4Gi", "className": "fast"}})
	set := found["StatefulSet modelplane-etcd"]
	if set == nil {
		t.Fatal("there is no StatefulSet")
	}
	text := oneLine(t, set.Object)
	for _, want := range []string{
		`"replicas":3`, `"--replicas=3"`, `"--quota-bytes=2147483648"`, `"--tls=true"`, `"image":"modelplane-etcd:v0.1.0"`,
		`"storageClassName":"fast"`, `"storage":"4Gi"`, `"name":"GOMEMLIMIT","value":"460MiB"`, `"serviceName":"modelplane-etcd-peers"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
	pod, _, err := unstructured.NestedStringMap(set.Object, "spec", "template", "metadata", "labels")
	if err != nil {
		t.Fatal(err)
	}
	manager, _, err := unstructured.NestedStringMap(found["Deployment modelplane"].Object, "spec", "selector", "matchLabels")
	if err != nil || len(manager) == 0 || labels.SelectorFromSet(manager).Matches(labels.Set(pod)) {
		t.Errorf("the manager's selector %v takes a pod of etcd for one of its own (%v)", manager, err)
	}
	for _, name := range []string{"Service modelplane-etcd", "Service modelplane-etcd-peers"} {
		selector, _, err := unstructured.NestedStringMap(found[name].Object, "spec", "selector")
		if err != nil || !labels.SelectorFromSet(selector).Matches(labels.Set(pod)) {
			t.Errorf("%s does not lead to etcd (%v)", name, err)
		}
	}
	for _, name := range []string{"Secret model-serving-etcd", "Secret modelplane-etcd"} {
		if found[name] == nil || found[name].Object["data"] != nil || found[name].Object["stringData"] != nil {
			t.Errorf("%s has content, which an upgrade would put back", name)
		}
	}
}
