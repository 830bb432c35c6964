// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestLint(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": nil, "everything": everything()} {
		t.Run(name, func(t *testing.T) {
			for _, m := range lint.RunAll(charttest.Dir(), values, "models").Messages {
				// An icon is for shops; the chart has none.
				if !strings.Contains(m.Error(), "icon is recommended") {
					t.Error(m)
				}
			}
		})
	}
}

// TestObjects compares the list of objects with a golden file for each set of values.
func TestObjects(t *testing.T) {
	testkit.Golden(t, "testdata/chart", func(t *testing.T, in []byte) []byte {
		var values map[string]any
		if err := yaml.UnmarshalStrict(in, &values); err != nil {
			t.Fatal(err)
		}
		if values["everything"] == true {
			values = everything()
		}
		var lines []string
		for _, o := range render(t, values) {
			line := "- " + o.GetKind() + " "
			if o.GetNamespace() != "" {
				line += o.GetNamespace() + "/"
			}
			lines = append(lines, line+o.GetName())
		}
		return []byte(strings.Join(lines, "\n") + "\n")
	})
}

func TestRefusedValues(t *testing.T) {
	for _, c := range []struct{ name, values, want string }{
		{"misspelt", `replica: 2`, `'replica' not allowed`},
		{"misspelt further down", `{image: {repo: x}}`, `'repo' not allowed`},
		{"wrong type", `replicas: "2"`, `at '/replicas': got string, want integer`},
		{"number for a string", `{image: {tag: 1.0}}`, `at '/image/tag': got number, want string`},
		{"not in the list", `{log: {level: loud}}`, `at '/log/level': value must be one of`},
		{"no such domain", `enable: [serving, trains]`, `at '/enable/1': value must be one of`},
		{"no domain", `enable: []`, `at '/enable'`},
		{"half a digest", `{image: {digest: "sha256:12"}}`, `at '/image/digest'`},
		{"an argument that is not a flag", `extraArgs: [manager]`, `at '/extraArgs/0'`},
		{"a Secret without a name", `{webhook: {certificates: {source: secret}}}`, `webhook.certificates.secretName is needed`},
		{"two members of etcd", `{modelmesh: {etcd: {replicas: 2}}}`, `at '/modelmesh/etcd/replicas'`},
		{"an account without a name", `{serviceAccount: {create: false}}`, `serviceAccount.name is needed`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var values map[string]any
			if err := yaml.UnmarshalStrict([]byte(c.values), &values); err != nil {
				t.Fatal(err)
			}
			_, err := chart.Render(charttest.Dir(), chart.Release{Values: values})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestDefinitions proves that templating leaves the definitions as they are, and that they, and nothing else, outlive
// the release.
func TestDefinitions(t *testing.T) {
	want, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*unstructured.Unstructured{}
	for _, o := range charttest.Render(t, chart.Release{Name: "models", Namespace: "elsewhere"}) {
		kept := o.GetAnnotations()["helm.sh/resource-policy"] == "keep"
		if isCRD := o.GetKind() == "CustomResourceDefinition"; kept != isCRD {
			t.Errorf("%s %s: kept when the release goes: %t", o.GetKind(), o.GetName(), kept)
		}
		got[o.GetName()] = o.Unstructured
	}
	for _, crd := range want {
		raw, err := os.ReadFile(filepath.Join(charttest.Dir(), "files", "crds", crd.Spec.Group+"_"+crd.Spec.Names.Plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		file := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &file.Object); err != nil {
			t.Fatal(err)
		}
		o := got[crd.Name]
		if o == nil {
			t.Errorf("%s is not in the chart", crd.Name)
			continue
		}
		if o.GetLabels()["app.kubernetes.io/part-of"] != "modelplane" {
			t.Errorf("%s: the manager would not find it", crd.Name)
		}
		if crd.Spec.Conversion != nil {
			service := []string{"spec", "conversion", "webhook", "clientConfig", "service"}
			checkString(t, o, "models-modelplane-webhook", append(service, "name")...)
			checkString(t, o, "elsewhere", append(service, "namespace")...)
			unstructured.RemoveNestedField(o.Object, service...)
			unstructured.RemoveNestedField(file.Object, service...)
		}
		if diff := cmp.Diff(asJSON(t, file.Object["spec"]), asJSON(t, o.Object["spec"])); diff != "" {
			t.Errorf("%s was changed by the template:\n%s", crd.Name, diff)
		}
	}
}

// TestDomains proves that the schema, the defaults and the manager speak of the same domains, and that each domain brings
// its own definitions and webhooks.
func TestDomains(t *testing.T) {
	var schema struct {
		Properties struct {
			Enable struct {
				Items struct{ Enum []string }
			}
		}
	}
	var values struct{ Enable []string }
	read(t, "values.schema.json", &schema)
	read(t, "values.yaml", &values)
	all := domains.Names()
	for where, got := range map[string][]string{"schema": schema.Properties.Enable.Items.Enum, "defaults": values.Enable} {
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("domains (-manager +%s):\n%s", where, diff)
		}
	}
	brought := map[string]string{}
	shared := regexp.MustCompile(`(^| )(cluster)?(servingruntimes?|inferenceservices?)\.`) // needed by both
	for _, domain := range all {
		for _, name := range asked(t, []any{domain}) {
			both := domain == "modelmesh" && brought[name] == "serving" && shared.MatchString(name)
			if other := brought[name]; other != "" && !both {
				t.Errorf("%s comes with %s and with %s", name, other, domain)
			}
			brought[name] = domain
		}
	}
	if everything := asked(t, nil); len(brought) != len(everything) || len(everything) < 60 {
		t.Errorf("the domains bring %d definitions and webhooks one by one, and %d together", len(brought), len(everything))
	}
}

// asked lists the definitions and webhooks that come with domains; nil stands for the default.
func asked(t *testing.T, enable []any) []string {
	t.Helper()
	values := map[string]any{}
	if enable != nil {
		values["enable"] = enable
	}
	var out []string
	for _, o := range render(t, values) {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			out = append(out, o.GetName())
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range webhooks {
				out = append(out, o.GetKind()+" "+w.(map[string]any)["name"].(string))
			}
		}
	}
	return out
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(charttest.Dir(), name))
	if err == nil {
		err = yaml.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func checkString(t *testing.T, o *unstructured.Unstructured, want string, path ...string) {
	t.Helper()
	if got, _, err := unstructured.NestedString(o.Object, path...); err != nil || got != want {
		t.Errorf("%s: %s is %q (%v), want %q", o.GetName(), strings.Join(path, "."), got, err, want)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestWebhooksHaveNoBundle keeps the chart from undoing what the manager injects.
func TestWebhooksHaveNoBundle(t *testing.T) {
	for _, o := range render(t, nil) {
		if strings.Contains(asJSON(t, o.Object), "caBundle:") && o.GetKind() != "CustomResourceDefinition" {
			t.Errorf("%s %s has a caBundle", o.GetKind(), o.GetName())
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle"); found {
			t.Errorf("%s has a caBundle", o.GetName())
		}
	}
}

// TestMemoryLimit follows the container's limit into Go's.
// oneLine is JSON without the line breaks that a person likes.
func oneLine(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestMetricsOfModelsAreReached: whoever scrapes reaches the mesh, the puller and the REST proxy in pods of models.
func TestMetricsOfModelsAreReached(t *testing.T) {
	values := withoutDefinitions()
	values["enable"] = []any{"modelmesh"}
	for _, o := range render(t, values) {
		if o.GetName() != "modelmesh-runtimes" {
			continue
		}
		rules, _, err := unstructured.NestedSlice(o.Object, "spec", "ingress")
		if err != nil || len(rules) != 2 {
			t.Fatalf("%d rules, %v", len(rules), err)
		}
		open := oneLine(t, rules[1])
		for _, port := range []string{"2112", "11881", "11882"} {
			if !strings.Contains(open, `"port":`+port+`,`) {
				t.Errorf("port %s is closed: %s", port, open)
			}
		}
		return
	}
	t.Error("there is no policy for pods of models")
}

// TestNetworkPolicy: by default others reach the ports that they need and no more; whoever knows the API server's addresses
// can limit who calls webhooks.
func TestNetworkPolicy(t *testing.T) {
	ingress := func(values map[string]any) string {
		for _, o := range render(t, values) {
			if o.GetKind() == "NetworkPolicy" && o.GetName() == chart.DefaultRelease {
				return oneLine(t, o.Object["spec"].(map[string]any)["ingress"])
			}
		}
		return "none"
	}
	values := withoutDefinitions()
	want := `[{"ports":[{"port":"webhook","protocol":"TCP"}]},{"ports":[{"port":"metrics","protocol":"TCP"}]}]`
	if got := ingress(values); got != want {
		t.Errorf("by default %s, want %s", got, want)
	}
	values["networkPolicy"] = map[string]any{"webhookFrom": []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/28"}}}}
	want = `{"from":[{"ipBlock":{"cidr":"10.0.0.0/28"}}],"ports":[{"port":"webhook","protocol":"TCP"}]}`
	if got := ingress(values); !strings.Contains(got, want) {
		t.Errorf("with addresses %s, want %s in it", got, want)
	}
	values["networkPolicy"] = map[string]any{"enabled": false}
	if got := ingress(values); got != "none" {
		t.Errorf("without: %s", got)
	}
}

// TestClientAuthority: the manager is told of the authorities that it sees.
func TestClientAuthority(t *testing.T) {
	values := withoutDefinitions()
	values["webhook"] = map[string]any{"clientCA": map[string]any{"configMap": "authorities", "key": "bundle.pem", "names": []any{"a", "b"}}}
	for _, o := range render(t, values) {
		if o.GetKind() != "Deployment" {
			continue
		}
		text := oneLine(t, o.Object)
		for _, want := range []string{
			`"--webhook-client-ca=/etc/modelplane/clients/ca.crt"`, `"--webhook-client-names=a,b"`, `"mountPath":"/etc/modelplane/clients"`,
			`"configMap":{"items":[{"key":"bundle.pem","path":"ca.crt"}],"name":"authorities"}`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is missing in %s", want, text)
			}
		}
	}
}

// TestWebhookAliases: configurations of an earlier installation reach the webhooks by the names that they call, with a certificate
// that is good for these.
func TestWebhookAliases(t *testing.T) {
	const alias = "maas-controller-webhook-service"
	values := withoutDefinitions()
	values["webhook"] = map[string]any{"aliases": []any{alias, "modelplane-webhook"}, "certificates": map[string]any{"source": "cert-manager"}}
	services := map[string]string{}
	for _, o := range render(t, values) {
		text := oneLine(t, o.Object)
		switch o.GetKind() {
		case "Service":
			services[o.GetName()] += oneLine(t, o.Object["spec"])
		case "Deployment":
			if want := `"--webhook-alias=` + alias + `,modelplane-webhook"`; !strings.Contains(text, want) {
				t.Errorf("%s is missing in %s", want, text)
			}
		case "Certificate":
			if want := `"` + alias + `.` + o.GetNamespace() + `.svc"`; !strings.Contains(text, want) {
				t.Errorf("%s is missing in %s", want, text)
			}
		}
	}
	if services[alias] == "" || services[alias] != services["modelplane-webhook"] {
		t.Errorf("the Services are %v", services)
	}
}

func TestMemoryLimit(t *testing.T) {
	for limit, want := range map[string]string{"512Mi": "460MiB", "2Gi": "1843MiB", "1G": "", "": ""} {
		values := withoutDefinitions()
		values["resources"] = map[string]any{"limits": map[string]any{"memory": limit}}
		got := ""
		for _, e := range container(t, render(t, values))["env"].([]any) {
			if env := e.(map[string]any); env["name"] == "GOMEMLIMIT" {
				got = fmt.Sprint(env["value"])
			}
		}
		if got != want {
			t.Errorf("limit %q: GOMEMLIMIT %q, want %q", limit, got, want)
		}
	}
}

// container is the manager's, of the Deployment.
func container(t *testing.T, objects []chart.Object) map[string]any {
	t.Helper()
	i := slices.IndexFunc(objects, func(o chart.Object) bool { return o.GetKind() == "Deployment" })
	if i < 0 {
		t.Fatal("the chart has no Deployment")
	}
	found, _, err := unstructured.NestedSlice(objects[i].Object, "spec", "template", "spec", "containers")
	if err != nil || len(found) != 1 {
		t.Fatalf("%d containers (%v), want 1", len(found), err)
	}
	return found[0].(map[string]any)
}

func TestImageReference(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct {
		image map[string]any
		want  string
	}{
		{nil, "modelplane:v0.1.0"},
		{map[string]any{"repository": "registry.example/team/modelplane", "tag": "v2"}, "registry.example/team/modelplane:v2"},
		{map[string]any{"tag": "v2", "digest": digest}, "modelplane@" + digest},
	} {
		values := withoutDefinitions()
		if c.image != nil {
			values["image"] = c.image
		}
		if got := container(t, render(t, values))["image"]; got != c.want {
			t.Errorf("image %q, want %q", got, c.want)
		}
	}
}

func TestNotes(t *testing.T) {
	notes, err := chart.Notes(charttest.Dir(), chart.Release{Values: map[string]any{
		"crds": map[string]any{"install": false}, "podDisruptionBudget": map[string]any{"enabled": true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kubectl -n modelplane-system rollout status deployment/modelplane",
		"pod-security.kubernetes.io/enforce=restricted",
		"crds.install is false", "set replicas=2",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes do not say %q:\n%s", want, notes)
		}
	}
}
