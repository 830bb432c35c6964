// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func read(texts ...string) (*Settings, []string, []string) {
	var layers []Layer
	for i, text := range texts {
		layers = append(layers, Layer{Name: []string{DefaultsName, Name}[i], Key: []string{DefaultsKey, Key}[i], Text: text})
	}
	return Parse("registry:5000/modelplane-pod:v1", layers...)
}

func TestDefaults(t *testing.T) {
	s, unknown, faults := read()
	if len(unknown)+len(faults) > 0 {
		t.Fatal(unknown, faults)
	}
	got := []any{
		s.ModelMeshImage.String(), s.ModelMeshImage.Command, s.StorageHelperImage.Command, s.RESTProxy.Image.Command, s.InferenceServiceName, s.InferenceServicePort,
		s.PodsPerRuntime, s.StorageSecretName, s.HeadlessService, s.GRPCMaxMessageSizeBytes, s.Metrics, s.ScaleToZero, s.BuiltInServerTypes, s.RESTProxy.Port,
	}
	want := []any{
		"registry:5000/modelplane-pod:v1", []string{"/modelplane-pod", "mesh"}, []string{"/modelplane-pod", "mesh-puller"}, []string{"/modelplane-pod", "mesh-rest"},
		"modelmesh-serving", int32(8033), int32(2), "storage-config", true, int64(16777216), Metrics{Enabled: true, Port: 2112, Scheme: "https"},
		ScaleToZero{Enabled: true, GracePeriodSeconds: 60}, []string{"mlserver", "triton", "ovms", "torchserve"}, int32(8008),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEveryKey: each key, in whatever case, moves its field and no other.
func TestEveryKey(t *testing.T) {
	values := map[string]string{
		"inferenceServiceName": "mesh", "inferenceServicePort": "9033", "podsPerRuntime": "7", "storageSecretName": "stores", "etcdSecretName": "e", "modelMeshEndpoint": "x:1",
		"allowAnyPVC": "true", "tls": "{secretName: s, clientAuth: required}", "headlessService": "'false'", "grpcMaxMessageSizeBytes": "'5'",
		"modelMeshImage": "{name: a, tag: b}", "modelMeshResources": "{limits: {cpu: 5}}", "restProxy": "{skipVerify: true}", "storageHelperImage": "{tag: c}",
		"storageHelperResources": "{requests: {memory: 1Mi}}", "adapterImage": "{tag: d}", "serviceAccountName": "sa", "enableAccessLogging": "true", "metrics": "{scheme: http}",
		"scaleToZero": "{enabled: false}", "builtInServerTypes": "[a]", "payloadProcessors": "['http://x']", "runtimePodLabels": "{A: b}", "runtimePodAnnotations": "{A: b}",
		"imagePullSecrets": "[{name: p}]", "internalModelMeshEnvVars": "[{name: V, value: 1}]",
	}
	fields := reflect.TypeFor[Settings]()
	for i := range fields.NumField() {
		key := fields.Field(i).Tag.Get("json")
		value, known := values[key]
		if !known {
			t.Errorf("nobody tries %s", key)
			continue
		}
		for _, spelt := range []string{key, strings.ToUpper(key), strings.ToLower(key)} {
			got, unknown, faults := read(spelt + ": " + value)
			if len(unknown)+len(faults) > 0 {
				t.Errorf("%s: unknown %q, faults %q", spelt, unknown, faults)
			}
			before := Default("registry:5000/modelplane-pod:v1")
			for j := range fields.NumField() {
				same := cmp.Equal(reflect.ValueOf(*got).Field(j).Interface(), reflect.ValueOf(*before).Field(j).Interface())
				if same == (i == j) {
					t.Errorf("%s: %s is the same: %v", spelt, fields.Field(j).Name, same)
				}
			}
		}
	}
}

func TestWrong(t *testing.T) {
	for text, said := range map[string]string{
		"podsPerRuntime: many":                          "podsPerRuntime: \"many\" is no whole number",
		"podsPerRuntime: 0":                             "out of range",
		"podsPerRuntime: 1.5":                           "is no whole number",
		"headlessService: perhaps":                      "neither true nor false",
		"inferenceServiceName: Not_A_Name":              "cannot be a name here",
		"restProxy: {port: 8033}":                       "is taken by inferenceServicePort",
		"metrics: {port: 8089}":                         "is taken by the mesh's probes",
		"metrics: {scheme: gopher}":                     "write http or https",
		"tls: {secretName: s, clientAuth: maybe}":       "write required or optional",
		"tls: {clientAuth: required}":                   "no effect without tls.secretName",
		"tls: yes":                                      "is no map of keys",
		"payloadProcessors: ['http://a b']":             "has white space",
		"payloadProcessors: http://a":                   "is no list",
		"modelMeshResources: {limits: {memory: lots}}":  "is no amount",
		"modelMeshResources: {requests: {memory: 1Gi}}": "is more than the limit",
		"modelMeshImage: {name: 'a b'}":                 "is no image",
		"internalModelMeshEnvVars: [{name: 'a b'}]":     "internalModelMeshEnvVars[0].name",
		"runtimePodLabels: {a: 'b c'}":                  "is no value of a label",
		"podsPerRuntime: 1\nPODSPERRUNTIME: 2":          "is the same key as",
		"{":                                             "is no YAML",
		"imagePullSecrets: [{name: [a]}]":               "is no single value",
		"scaleToZero: {gracePeriodSeconds: -1}":         "out of range",
	} {
		_, _, faults := read("", text)
		if len(faults) == 0 || !strings.Contains(strings.Join(faults, "\n"), said) {
			t.Errorf("%s: %q, want %q", text, faults, said)
		}
	}
	if _, unknown, faults := read("adapterImage: {command: [x]}"); len(faults) > 0 || len(unknown) != 1 || !strings.HasPrefix(unknown[0], "adapterImage.command in ") {
		t.Errorf("unknown keys: %q, faults %q", unknown, faults)
	}
	if _, unknown, faults := read("a: 1", "metrics: {prot: 1}"); len(faults) > 0 ||
		!cmp.Equal(unknown, []string{"a in config-defaults.yaml of ConfigMap " + DefaultsName, "metrics.prot in config.yaml of ConfigMap " + Name}) {
		t.Errorf("unknown keys: %q, faults %q", unknown, faults)
	}
}

// TestImages: how an image is started depends on whose it is, and a tag of somebody else's is not ours.
func TestImages(t *testing.T) {
	for _, c := range []struct{ below, above, mesh, command, helper, adapter string }{
		{"", "modelMeshImage: {name: kserve/modelmesh}", "kserve/modelmesh", "", "mesh-puller", adapterImage},
		{"", "modelMeshImage: {tag: v2}", "registry:5000/modelplane-pod:v2", "mesh", "mesh-puller", adapterImage},
		{"modelMeshImage: {name: a, tag: b, digest: 'sha256:1'}", "", "a@sha256:1", "", "mesh-puller", adapterImage},
		{"modelMeshImage: {name: a, tag: b, digest: 'sha256:1'}", "modelMeshImage: {tag: c}", "a:c", "", "mesh-puller", adapterImage},
		{"modelMeshImage: {name: a, command: [x]}", "modelMeshImage: {tag: c}", "a:c", "x", "mesh-puller", adapterImage},
		{"", "storageHelperImage: {name: h, tag: t}", "registry:5000/modelplane-pod:v1", "mesh", "/opt/app/puller", "h:t"},
		{"", "storageHelperImage: {name: h, tag: t}\nadapterImage: {name: a, tag: t}", "registry:5000/modelplane-pod:v1", "mesh", "/opt/app/puller", "a:t"},
	} {
		s, _, faults := read(c.below, c.above)
		if len(faults) > 0 {
			t.Errorf("%s, %s: %q", c.below, c.above, faults)
			continue
		}
		last := func(command []string) string {
			if len(command) == 0 {
				return ""
			}
			return command[len(command)-1]
		}
		got := []string{s.ModelMeshImage.String(), last(s.ModelMeshImage.Command), last(s.StorageHelperImage.Command), s.AdapterImage.String()}
		if diff := cmp.Diff([]string{c.mesh, c.command, c.helper, c.adapter}, got); diff != "" {
			t.Errorf("%s, %s:\n%s", c.below, c.above, diff)
		}
	}
}

// TestLastGood: a text that cannot be used leaves what held before; without one before, nothing is sure.
func TestLastGood(t *testing.T) {
	text := func(s string) []Layer { return []Layer{{Name, Key, s}} }
	s := NewSource()
	if got := s.take(text("podsPerRuntime: x")); !got.InDoubt || got.Problem() == nil || len(got.Faults) != 1 {
		t.Errorf("a bad text at the start: %+v", got)
	}
	if got := s.take(text("podsPerRuntime: 5")); got.InDoubt || got.PodsPerRuntime != 5 || got.Problem() != nil {
		t.Errorf("then a good one: %+v", got)
	}
	if got := s.take(text("podsPerRuntime: x")); got.InDoubt || got.PodsPerRuntime != 5 || len(got.Faults) != 1 {
		t.Errorf("then a bad one: %+v", got)
	}
	if got := s.take(nil); got.PodsPerRuntime != 2 || len(got.Faults) > 0 {
		t.Errorf("then none: %+v", got)
	}
	plan := kind{s}.Plan(nil, s.take(text("podsPerRuntime: x\nother: 1")))
	if plan.Problem == nil || !strings.Contains(plan.Problem.Message, "stays in force") || len(plan.Events) != 1 || !strings.Contains(plan.Events[0].Message, "other in config.yaml") {
		t.Errorf("what people are told: %+v", plan)
	}
}

func TestEnabled(t *testing.T) {
	ns := func(name, label string) *corev1.Namespace {
		out := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "" {
			out.Labels = map[string]string{LabelEnabled: label}
		}
		return out
	}
	going := ns("a", "true")
	going.DeletionTimestamp = &metav1.Time{}
	whole, some := Platform{Namespace: "home"}, Platform{Namespace: "home", Watched: []string{"a", "home"}}
	for _, c := range []struct {
		platform Platform
		ns       *corev1.Namespace
		want     bool
	}{
		{whole, ns("a", ""), false}, {whole, ns("a", "true"), true}, {whole, ns("a", "yes"), false}, {whole, going, false},
		{whole, ns("home", ""), true}, {whole, ns("home", "false"), false},
		{some, ns("a", "true"), true}, {some, ns("b", "true"), false}, {some, ns("home", ""), true},
	} {
		if got := c.platform.Enabled(c.ns); got != c.want {
			t.Errorf("%s %v watched %v: %v", c.ns.Name, c.ns.Labels, c.platform.Watched, got)
		}
	}
}
