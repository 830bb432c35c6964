// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	servingv1beta1 "github.com/modelplane/modelplane/api/serving/v1beta1"
)

// isvcJSON makes an InferenceService whose predictor is the given YAML.
func isvcJSON(t testing.TB, predictor string) []byte {
	t.Helper()
	text := "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: x, namespace: default}\nspec:\n  predictor:\n"
	for line := range strings.Lines(strings.TrimSuffix(predictor, "\n")) {
		text += "    " + line
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestStrictRefusesFields(t *testing.T) {
	for _, tc := range []struct {
		name, predictor string
		want            Problems
	}{
		{"unknown, near an optional one", "containers: [{name: a, imagee: b}]", Problems{{
			"spec.predictor.containers[0].imagee", `unknown field; did you mean "image"?`, metav1.CauseTypeFieldValueNotSupported,
		}}},
		{"unknown, only the case is wrong", "containers: [{name: a, ImagePullpolicy: Always}]", Problems{{
			"spec.predictor.containers[0].ImagePullpolicy", `unknown field; did you mean "imagePullPolicy"?`, metav1.CauseTypeFieldValueNotSupported,
		}}},
		{"unknown, near nothing", "affinity: {zzzzzzzz: 1}", Problems{{
			"spec.predictor.affinity.zzzzzzzz", "unknown field", metav1.CauseTypeFieldValueNotSupported,
		}}},
		{"unknown, in an embedded struct", "minReplica: 1", Problems{{
			"spec.predictor.minReplica", `unknown field; did you mean "minReplicas"?`, metav1.CauseTypeFieldValueNotSupported,
		}}},
		{"wrong type of a scalar", "containers: [{name: a, tty: yes please, ports: [{containerPort: '80'}]}]", Problems{
			{"spec.predictor.containers[0].ports[0].containerPort", "must be an integer, not a string", metav1.CauseTypeTypeInvalid},
			{"spec.predictor.containers[0].tty", "must be true or false, not a string", metav1.CauseTypeTypeInvalid},
		}},
		{"wrong type of a branch", "containers: {name: a}\naffinity: []\nnodeSelector: [a]", Problems{
			{"spec.predictor.affinity", "must be an object, not a list", metav1.CauseTypeTypeInvalid},
			{"spec.predictor.containers", "must be a list, not an object", metav1.CauseTypeTypeInvalid},
			{"spec.predictor.nodeSelector", "must be an object, not a list", metav1.CauseTypeTypeInvalid},
		}},
		{"a string for a number and a number for a string", "containers: [{name: 1, image: 1.5}]", Problems{
			{"spec.predictor.containers[0].image", "must be a string, not a number", metav1.CauseTypeTypeInvalid},
			{"spec.predictor.containers[0].name", "must be a string, not an integer", metav1.CauseTypeTypeInvalid},
		}},
		{"out of range", "containers: [{name: a, ports: [{containerPort: 99999999999}]}]", Problems{
			{"spec.predictor.containers[0].ports[0].containerPort", "99999999999 is out of range for a 32-bit integer", metav1.CauseTypeFieldValueInvalid},
		}},
		{"a type that reads itself", "containers: [{name: a, resources: {limits: {nvidia.com/gpu: one}}}]", Problems{{
			"spec.predictor.containers[0].resources.limits[nvidia.com/gpu]",
			`invalid value "one": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
			metav1.CauseTypeFieldValueInvalid,
		}}},
		{"a value of a map", "nodeSelector: {a: true}", Problems{
			{"spec.predictor.nodeSelector[a]", "must be a string, not a boolean", metav1.CauseTypeTypeInvalid},
		}},
		{"all at once, in order", "minReplicas: a\ncontainers: [{nam: a}, {name: b, imag: c}]", Problems{
			{"spec.predictor.containers[0].nam", `unknown field; did you mean "name"?`, metav1.CauseTypeFieldValueNotSupported},
			{"spec.predictor.containers[1].imag", `unknown field; did you mean "image"?`, metav1.CauseTypeFieldValueNotSupported},
			{"spec.predictor.minReplicas", "must be an integer, not a string", metav1.CauseTypeTypeInvalid},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Strict(isvcJSON(t, tc.predictor), &servingv1beta1.InferenceService{})
			var have Problems
			if !errors.As(err, &have) {
				t.Fatalf("want problems, have %v", err)
			}
			if diff := cmp.Diff(tc.want, have); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

func TestStrictFindsDuplicates(t *testing.T) {
	raw := []byte(`{"spec":{"predictor":{"containers":[{"name":"a","name":"b"}]}}}`)
	want := Problems{{"spec.predictor.containers[0].name", "duplicate field", metav1.CauseTypeFieldValueDuplicate}}
	var have Problems
	if !errors.As(Strict(raw, &servingv1beta1.InferenceService{}), &have) || !reflect.DeepEqual(want, have) {
		t.Errorf("want %v, have %v", want, have)
	}
}

func TestStrictRefusesDocuments(t *testing.T) {
	large := isvcJSON(t, "containers: [{name: a, image: "+strings.Repeat("x", 3<<20)+"}]")
	for _, tc := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"three megabytes", large, "bytes, more than the 1572864 that can be stored"},
		{"not UTF-8", []byte("{\"kind\":\"a\xffb\"}"), "kind: not valid UTF-8: byte 10 (0xff) starts no character"},
		{"too deep", []byte(strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)), "nested 300 levels deep"},
		{"too deep to parse", []byte(strings.Repeat("[", 1<<20)), "nested 1048576 levels deep"},
		{"not JSON", []byte("{"), "not valid JSON"},
		{"empty", nil, "not valid JSON"},
		{"a list", []byte("[]"), "expected an object, found a list"},
		{"null", []byte("null"), "expected an object, found null"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Strict(tc.raw, &servingv1beta1.InferenceService{})
			if err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 300 {
				t.Errorf("want a short error with %q, have %v", tc.want, err)
			}
		})
	}
}

func TestStrictAccepts(t *testing.T) {
	raw := isvcJSON(t, `minReplicas: 1
affinity: null
containers:
- name: a
  image: b
  ports: [{containerPort: 80}]
  resources: {limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: "2"}}
  livenessProbe: {httpGet: {port: http}, periodSeconds: 3}
`)
	obj := &servingv1beta1.InferenceService{}
	if err := Strict(raw, obj); err != nil {
		t.Fatal(err)
	}
	have := obj.Spec.Predictor.Containers[0]
	if have.Name != "a" || have.Ports[0].ContainerPort != 80 || have.Resources.Limits.Cpu().Value() != 1 ||
		have.LivenessProbe.HTTPGet.Port.StrVal != "http" || *obj.Spec.Predictor.MinReplicas != 1 {
		t.Errorf("decoded %+v", have)
	}
}

// TestStrictLeavesStatusAlone: status belongs to controllers, perhaps to newer
// ones than this, and the API server drops it from what users write.
func TestStrictLeavesStatusAlone(t *testing.T) {
	raw := []byte(`{"spec":{"predictor":{}},"status":{"fromTheFuture":{"a":1},"url":"http://x"}}`)
	if err := Strict(raw, &servingv1beta1.InferenceService{}); err != nil {
		t.Errorf("unknown fields in status: %v", err)
	}
	err := Strict([]byte(`{"spec":{"predictor":{},"status":{"a":1}}}`), &servingv1beta1.InferenceService{})
	if err == nil || !strings.Contains(err.Error(), "spec.status: unknown field") {
		t.Errorf("want spec.status refused, have %v", err)
	}
}

// TestOnlyTheRootHasAStatus: a field that happens to have the name is the user's.
func TestOnlyTheRootHasAStatus(t *testing.T) {
	type part struct {
		Known int `json:"known"`
	}
	type whole struct {
		Status part `json:"status"`
		Spec   struct {
			Status part `json:"status"`
		} `json:"spec"`
	}
	found, err := inspect([]byte(`{"status":{"x":1},"spec":{"status":{"y":1}},"z":1}`), reflect.TypeFor[whole]())
	if err != nil || found.problems.Error() != "[spec.status.y: unknown field, z: unknown field]" {
		t.Errorf("have %v %v", found.problems, err)
	}
}

// TestCleanIsDecodable: what has problems is left out, so that the rest can still
// be read from an object that was stored before anyone looked.
func TestCleanIsDecodable(t *testing.T) {
	raw := isvcJSON(t, `minReplicas: a
nodeSelector: {a: 1, b: c}
tolerations: {}
containers:
- {name: a, image: [], resources: {limits: {cpu: many, memory: 1Gi}}, ports: [{containerPort: 99999999999}], tty: 1}
- 7
`)
	found, err := inspect(raw, reflect.TypeFor[*servingv1beta1.InferenceService]())
	if err != nil {
		t.Fatal(err)
	}
	obj := &servingv1beta1.InferenceService{}
	if err := found.decode(obj); err != nil {
		t.Fatalf("with %v: %v", found.problems, err)
	}
	p := obj.Spec.Predictor
	if len(found.problems) != 8 || len(p.Containers) != 1 || p.Containers[0].Name != "a" || p.NodeSelector["b"] != "c" ||
		len(p.Containers[0].Resources.Limits) != 1 {
		t.Errorf("%d problems: %v\n%+v", len(found.problems), found.problems, p)
	}
}

func TestStrictBoundsItsMessage(t *testing.T) {
	predictor := ""
	for i := range 100 {
		predictor += fmt.Sprintf("unheardOf%03d: 1\n", i)
	}
	err := Strict(isvcJSON(t, predictor), &servingv1beta1.InferenceService{})
	if err == nil || !strings.HasSuffix(err.Error(), "and 80 more]") {
		t.Errorf("want 20 problems and a count, have %v", err)
	}
	long := `{"spec":{"predictor":{"` + strings.Repeat("é", 5000) + `\u0007":1}}}`
	err = Strict([]byte(long), &servingv1beta1.InferenceService{})
	if err == nil || len(err.Error()) > 700 || strings.Contains(err.Error(), "\a") {
		t.Errorf("want a short printable message, have %v", err)
	}
}

func TestFieldsOf(t *testing.T) {
	type deep struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	type left struct {
		deep
		C int `json:"c"`
		D int
	}
	type right struct {
		C int `json:"c"`
		D int `json:"D"`
	}
	type outer struct {
		left
		*right
		A       string `json:"a"`
		Skipped int    `json:"-"`
		hidden  int
		Pod     corev1.PodSpec `json:",omitempty"`
	}
	_ = outer{hidden: 1}
	want := map[string]reflect.Type{
		"a": reflect.TypeFor[string](), // the outer one, not the embedded one
		"b": reflect.TypeFor[int](),
		"D": reflect.TypeFor[int](), // tagged wins over untagged
		// c is ambiguous and belongs to nobody
		"Pod": reflect.TypeFor[corev1.PodSpec](),
	}
	if have := fieldsOf(reflect.TypeFor[outer]()); !reflect.DeepEqual(want, have) {
		t.Errorf("have %v, want %v", have, want)
	}
}

func TestNearest(t *testing.T) {
	known := map[string]reflect.Type{"image": nil, "imagePullPolicy": nil, "name": nil, "env": nil, "args": nil}
	for in, want := range map[string]string{
		"imagee": "image", "iamge": "image", "NAME": "name", "imagePulPolicy": "imagePullPolicy",
		"arg": "args", "x": "", "something": "", strings.Repeat("image", 20): "",
	} {
		if have := nearest(in, known); have != want {
			t.Errorf("nearest(%q) = %q, want %q", in, have, want)
		}
	}
}

func TestSince(t *testing.T) {
	p := func(path string) Problem {
		return Problem{Path: path, Type: metav1.CauseTypeFieldValueNotSupported, Message: "unknown field"}
	}
	old := Problems{p("spec.list[0].x"), p("spec.y")}
	fresh, known := Problems{p("spec.list[1].x"), p("spec.list[2].x"), p("spec.z")}.since(old)
	if diff := cmp.Diff(Problems{p("spec.list[2].x"), p("spec.z")}, fresh); diff != "" {
		t.Errorf("fresh (-want +have):\n%s", diff)
	}
	if diff := cmp.Diff(Problems{p("spec.list[1].x")}, known); diff != "" {
		t.Errorf("known (-want +have):\n%s", diff)
	}
}

func TestNesting(t *testing.T) {
	for in, want := range map[string]int{
		``: 0, `1`: 0, `{}`: 1, `[{"a":[]}]`: 3, `"[[["`: 0, `{"\"[[":[]}`: 2, `"\\"[`: 1,
	} {
		if have := nesting([]byte(in)); have != want {
			t.Errorf("nesting(%s) = %d, want %d", in, have, want)
		}
	}
}
