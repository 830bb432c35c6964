// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/mlflow/render"
)

// values are the chart's own with what it needs.
func values(t testing.TB, c *render.Chart) map[string]any {
	t.Helper()
	v, err := c.Values()
	if err != nil {
		t.Fatal(err)
	}
	v["image"].(map[string]any)["name"] = "mlflow:test"
	v["mlflow"].(map[string]any)["backendStoreUri"] = "postgresql://db/mlflow"
	return v
}

// TestOneParse: a thousand plans of one spec cost one parse and one run of the templates; other values cost a run.
func TestOneParse(t *testing.T) {
	c := render.New()
	v := values(t, c)
	for range 1000 {
		if _, err := c.Objects("models", v); err != nil {
			t.Fatal(err)
		}
	}
	if c.Parsed() != 1 || c.Rendered() != 1 {
		t.Errorf("parsed %d times and rendered %d times, want once", c.Parsed(), c.Rendered())
	}
	const others = 50
	for i := range others {
		v["replicaCount"] = i + 2
		if _, err := c.Objects("models", v); err != nil {
			t.Fatal(err)
		}
	}
	if c.Parsed() != 1 || c.Rendered() != 1+others {
		t.Errorf("parsed %d times and rendered %d times, want 1 and %d", c.Parsed(), c.Rendered(), 1+others)
	}
}

// TestResultsAreTheCallers: who changes an object does not change what the next one gets.
func TestResultsAreTheCallers(t *testing.T) {
	c := render.New()
	v := values(t, c)
	first, err := c.Objects("models", v)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range first {
		o.SetName("changed")
	}
	second, err := c.Objects("models", v)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range second {
		if o.GetName() == "changed" {
			t.Errorf("%s was changed for the next", o.GetKind())
		}
	}
	other, err := c.Objects("elsewhere", v)
	if err != nil || other[0].GetNamespace() != "elsewhere" {
		t.Errorf("the namespace is not part of the question: %v", err)
	}
}

// TestSameAsHelm: the objects are those that Helm itself makes of the chart with the same values, in every corner of it.
func TestSameAsHelm(t *testing.T) {
	everything := map[string]any{
		"image": map[string]any{"name": "mlflow:test", "imagePullPolicy": "Always"}, "resourceSuffix": "-two",
		"mlflow": map[string]any{
			"backendStoreUriFrom": map[string]any{"secretKeyRef": map[string]any{"name": "db", "key": "uri"}}, "staticPrefix": "/mlflow",
			"readReplicaBackendStoreUri": "postgresql://replica/x", "allowedHosts": []any{"*"}, "workspaceLabelSelector": "a=b",
		},
		"tls":               map[string]any{"ca": map[string]any{"secretName": "mlflow-tls"}},
		"garbageCollection": map[string]any{"enabled": true, "olderThan": "30d"},
		"traceArchival":     map[string]any{"enabled": true, "location": "file:///mlflow/traces", "retention": "30d", "longRetentionAllowlist": []any{"1"}},
		"caBundle":          map[string]any{"configMaps": []any{map[string]any{"name": "ca", "mountPath": "/etc/ca"}}, "pgSSLMode": "verify-full"},
		"httpRoute":         map[string]any{"enabled": true},
		"consoleLink":       map[string]any{"enabled": true, "href": "https://models.example.com/mlflow"},
		"nodeSelector":      map[string]any{"disk": "fast"}, "affinity": map[string]any{"nodeAffinity": map[string]any{}},
	}
	for name, set := range map[string]map[string]any{
		"plain":      {"image": map[string]any{"name": "mlflow:test"}, "mlflow": map[string]any{"backendStoreUri": "postgresql://db/mlflow"}},
		"everything": everything,
	} {
		t.Run(name, func(t *testing.T) {
			helm, err := chart.Render("../../../charts/mlflow", chart.Release{Name: "mlflow", Namespace: "models", Values: set})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]map[string]any{}
			for _, o := range helm {
				want[key(o.Unstructured)] = o.Object
			}
			c := render.New()
			v, err := c.Values()
			if err != nil {
				t.Fatal(err)
			}
			have := map[string]map[string]any{}
			objects, err := c.Objects("models", merge(v, set))
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				have[key(o)] = o.Object
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("differs (-Helm +ours):\n%s", diff)
			}
		})
	}
}

func key(o *unstructured.Unstructured) string { return o.GetKind() + " " + o.GetName() }

// merge lays values over others, as Helm does.
func merge(under, over map[string]any) map[string]any {
	for k, v := range over {
		below, isMap := under[k].(map[string]any)
		if above, ok := v.(map[string]any); ok && isMap {
			under[k] = merge(below, above)
			continue
		}
		under[k] = v
	}
	return under
}

func TestHelmRefuses(t *testing.T) {
	image := map[string]any{"name": "mlflow:test"}
	for want, set := range map[string]map[string]any{
		"image.name is needed":                    {"mlflow": map[string]any{"backendStoreUri": "postgresql://db/mlflow"}},
		"mlflow.backendStoreUri or":               {"image": image},
		"additional properties 'backendStoreURL'": {"image": image, "mlflow": map[string]any{"backendStoreURL": "x"}},
		"missing property 'name'":                 {"image": image, "mlflow": map[string]any{"backendStoreUriFrom": map[string]any{"secretKeyRef": map[string]any{"key": "x"}}}},
		"traceArchival.location is a file":        {"image": image, "mlflow": map[string]any{"backendStoreUri": "mysql://db/x"}, "storage": map[string]any{"enabled": false}, "traceArchival": map[string]any{"enabled": true, "location": "file:///x", "retention": "1d"}},
		"consoleLink.href is needed":              {"image": image, "mlflow": map[string]any{"backendStoreUri": "mysql://db/x"}, "consoleLink": map[string]any{"enabled": true}},
	} {
		_, err := chart.Render("../../../charts/mlflow", chart.Release{Values: set})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not refused with %q: %v", want, err)
		}
	}
}

// TestCertificateOfTheChart: with Helm alone the chart can make the Secret.
func TestCertificateOfTheChart(t *testing.T) {
	objects, err := chart.Render("../../../charts/mlflow", chart.Release{Values: map[string]any{
		"image": map[string]any{"name": "mlflow:test"}, "mlflow": map[string]any{"backendStoreUri": "mysql://db/x"}, "tls": map[string]any{"create": true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if data, _, _ := unstructured.NestedStringMap(o.Object, "data"); o.GetKind() == "Secret" && len(data) == 3 {
			return
		}
	}
	t.Error("there is no Secret with three keys")
}

func BenchmarkObjects(b *testing.B) {
	for _, c := range []struct {
		name  string
		fresh bool
	}{{"same values", false}, {"other values", true}} {
		b.Run(c.name, func(b *testing.B) {
			chart := render.New()
			v := values(b, chart)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if c.fresh {
					v["resourceSuffix"] = fmt.Sprintf("-%d", n)
				}
				if _, err := chart.Objects("models", v); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(chart.Parsed()), "parses")
			b.ReportMetric(float64(chart.Rendered())/float64(b.N), "runs/op")
		})
	}
}
