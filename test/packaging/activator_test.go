// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
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

// TestActivatorIsAskedFor: whoever does not ask for it gets nothing of it, and who cannot have it is told.
func TestActivatorIsAskedFor(t *testing.T) {
	for _, o := range render(t, withoutDefinitions()) {
		if o.GetLabels()["app.kubernetes.io/component"] == "activator" || o.GetKind() == "ConfigMap" && strings.Contains(oneLine(t, o.Object), `\"activator\"`) {
			t.Errorf("%s %s", o.GetKind(), o.GetName())
		}
	}
	values := withoutDefinitions()
	values["enable"], values["watchNamespaces"] = []any{"serving"}, []any{"team"}
	values["activator"] = map[string]any{"enabled": true}
	if _, err := chart.Render(charttest.Dir(), chart.Release{Values: values}); err == nil || !strings.Contains(err.Error(), "whole cluster") {
		t.Errorf("%v", err)
	}
}
