// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// TestActivator: its pods are nobody else's, they get what the values say, their permissions are few, and the configuration
// of services names it.
func TestActivator(t *testing.T) {
	found := map[string]*unstructured.Unstructured{}
	values := withoutDefinitions()
	values["activator"] = map[string]any{"enabled": true, "replicas": 3, "idle": "10m", "from": []any{map[string]any{"namespaceSelector": map[string]any{}}}}
	for _, o := range render(t, values) {
		found[o.GetKind()+" "+o.GetName()] = o.Unstructured
	}
	const name = "modelplane-activator"
	for what, wants := range map[string][]string{
		"Deployment " + name:                {`"replicas":3`, `"--idle=10m"`, `"--service=modelplane-activator"`, `"name":"GOMEMLIMIT","value":"460MiB"`, `"status.podIP"`},
		"Service " + name:                   {`"modelplane.dev/activator":"true"`, `"name":"http"`, `"name":"peers"`},
		"PodDisruptionBudget " + name:       {`"maxUnavailable":1`},
		"NetworkPolicy " + name:             {`"port":"peers"`, `"namespaceSelector"`},
		"ConfigMap inferenceservice-config": {`\"activator\": \"modelplane-activator\"`},
		"ClusterRole " + name:               {`{"apiGroups":["apps"],"resources":["deployments/scale"],"verbs":["get","update"]}`},
		"Role " + name:                      {`{"apiGroups":[""],"resourceNames":["modelplane-activator"],"resources":["secrets"],"verbs":["get","update"]}`},
		"Secret " + name:                    {`"kind":"Secret"`},
	} {
		if found[what] == nil {
			t.Errorf("there is no %s", what)
			continue
		}
		text := oneLine(t, found[what].Object)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s is missing in %s", what, want, text)
			}
		}
	}
	if t.Failed() {
		return
	}
	if role := oneLine(t, found["ClusterRole "+name].Object); strings.Contains(role, "secrets") || strings.Contains(role, `"*"`) || strings.Contains(role, "patch") {
		t.Errorf("it may do more than it needs: %s", role)
	}
	pod, _, err := unstructured.NestedStringMap(found["Deployment "+name].Object, "spec", "template", "metadata", "labels")
	manager, _, _ := unstructured.NestedStringMap(found["Deployment modelplane"].Object, "spec", "selector", "matchLabels")
	if err != nil || len(manager) == 0 || labels.SelectorFromSet(manager).Matches(labels.Set(pod)) {
		t.Errorf("the manager's selector %v takes a pod of the activator for one of its own (%v)", manager, err)
	}
}

// TestActivatorIsAskedFor: whoever does not ask for it gets nothing of it.
func TestActivatorIsAskedFor(t *testing.T) {
	for _, o := range render(t, withoutDefinitions()) {
		if o.GetLabels()["app.kubernetes.io/component"] == "activator" || o.GetKind() == "ConfigMap" && strings.Contains(oneLine(t, o.Object), `\"activator\"`) {
			t.Errorf("%s %s", o.GetKind(), o.GetName())
		}
	}
}

// TestConfinedActivator: the activator of an installation for some namespaces may do nothing in others, and looks at none.
// A single replica has no budget, which would keep its node from being emptied.
func TestConfinedActivator(t *testing.T) {
	values := confined("team-a", "team-b")
	values["crds"] = map[string]any{"install": false}
	values["activator"] = map[string]any{"enabled": true, "replicas": 1}
	var got []string
	for _, o := range render(t, values) {
		if o.GetLabels()["app.kubernetes.io/component"] != "activator" {
			continue
		}
		switch o.GetKind() {
		case "Deployment":
			if text := oneLine(t, o.Object); !strings.Contains(text, `"--watch-namespace=team-a","--watch-namespace=team-b"`) {
				t.Error(text)
			}
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PodDisruptionBudget":
			got = append(got, o.GetKind()+" "+o.GetNamespace()+" "+o.GetName())
		}
	}
	slices.Sort(got)
	want := []string{"Role modelplane-system modelplane-activator", "Role team-a modelplane-activator-watched", "Role team-b modelplane-activator-watched",
		"RoleBinding modelplane-system modelplane-activator", "RoleBinding team-a modelplane-activator-watched", "RoleBinding team-b modelplane-activator-watched"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
