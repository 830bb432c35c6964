// SPDX-License-Identifier: Apache-2.0

// Package packaging proves that what people install is right: the Helm chart, the kustomize bases, the permissions, the
// dashboard. It looks at the packaged product from outside, as Helm, kubectl and the API server see it.
package packaging

import (
	"testing"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// everything turns every toggle on.
func everything() map[string]any {
	on := func() map[string]any { return map[string]any{"enabled": true} } // Helm fills in what is given to it
	return map[string]any{
		"replicas":         2,
		"imagePullSecrets": []any{map[string]any{"name": "pull"}},
		"podLabels":        map[string]any{"team": "models"},
		"podAnnotations":   map[string]any{"example.com/note": "text"},
		"nodeSelector":     map[string]any{"kubernetes.io/os": "linux"},
		"tolerations":      []any{map[string]any{"key": "control-plane", "operator": "Exists"}},
		"affinity":         map[string]any{"podAntiAffinity": map[string]any{}},
		"extraArgs":        []any{"--shutdown-delay=1s"},
		"extraEnv":         []any{map[string]any{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}},
		"webhook": map[string]any{
			"certificates": map[string]any{"source": "cert-manager"},
			"aliases":      []any{"maas-controller-webhook-service"},
			"clientCA":     map[string]any{"configMap": "authorities", "names": []any{"kube-apiserver"}},
		},
		"networkPolicy": map[string]any{
			"enabled": true, "egress": []any{map[string]any{}}, "metricsFrom": []any{map[string]any{"namespaceSelector": map[string]any{}}},
			"webhookFrom": []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/28"}}},
		},
		"modelmesh": map[string]any{
			"config":        map[string]any{"podsPerRuntime": 3},
			"etcd":          map[string]any{"enabled": true, "replicas": 3, "storage": map[string]any{"className": "fast"}},
			"networkPolicy": map[string]any{"namespaces": []any{"default"}},
		},
		"activator":           on(),
		"podDisruptionBudget": on(),
		"serviceMonitor":      on(),
		"prometheusRule":      on(),
		"dashboard":           on(),
	}
}

// withoutDefinitions is the default otherwise, for tests that do not look at definitions, which take a while.
func withoutDefinitions() map[string]any {
	return map[string]any{"crds": map[string]any{"install": false}}
}

func render(t *testing.T, values map[string]any) []chart.Object {
	t.Helper()
	return charttest.Render(t, chart.Release{Values: values})
}
