// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	servingv1beta1 "github.com/modelplane/modelplane/api/serving/v1beta1"
)

var isvcKind = servingv1beta1.GroupVersion.WithKind("InferenceService")

func isvc() Kind {
	return Kind{GVK: isvcKind, New: func() client.Object { return &servingv1beta1.InferenceService{} }}
}

func request(op admissionv1.Operation, now, old []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: op, Name: "x", Object: runtime.RawExtension{Raw: now}, OldObject: runtime.RawExtension{Raw: old},
	}}
}

func TestValidateCreate(t *testing.T) {
	have := isvc().validate(t.Context(), request(admissionv1.Create, isvcJSON(t, "containers: [{name: a, imagee: b}]"), nil))
	want := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: "Failure", Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: `InferenceService.serving.kserve.io "x" is invalid: spec.predictor.containers[0].imagee: unknown field; did you mean "image"?`,
		Details: &metav1.StatusDetails{Group: isvcKind.Group, Kind: isvcKind.Kind, Name: "x", Causes: []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueNotSupported, Field: "spec.predictor.containers[0].imagee", Message: `unknown field; did you mean "image"?`,
		}}},
	}}}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	if good := isvc().validate(t.Context(), request(admissionv1.Create, isvcJSON(t, "containers: [{name: a}]"), nil)); !good.Allowed {
		t.Errorf("a good object is refused: %+v", good.Result)
	}
	unreadable := isvc().validate(t.Context(), request(admissionv1.Create, []byte("{"), nil))
	if unreadable.Allowed || unreadable.Result.Code != http.StatusBadRequest {
		t.Errorf("want a bad request, have %+v", unreadable.Result)
	}
}

func TestValidateUpdateOnlyNewProblems(t *testing.T) {
	stored := isvcJSON(t, "containers: [{name: a, imagee: b}]")
	moved := isvcJSON(t, "minReplicas: 2\ncontainers: [{name: first}, {name: a, imagee: b}]")
	have := isvc().validate(t.Context(), request(admissionv1.Update, moved, stored))
	if !have.Allowed || len(have.Warnings) != 1 || !strings.Contains(have.Warnings[0], "spec.predictor.containers[1].imagee: unknown field") {
		t.Errorf("want it allowed with a warning, have %+v", have.AdmissionResponse)
	}
	worse := isvcJSON(t, "containers: [{name: a, imagee: b, tyt: c}]")
	have = isvc().validate(t.Context(), request(admissionv1.Update, worse, stored))
	if have.Allowed || len(have.Result.Details.Causes) != 1 || have.Result.Details.Causes[0].Field != "spec.predictor.containers[0].tyt" {
		t.Errorf("want the new problem alone refused, have %+v", have.Result)
	}
	have = isvc().validate(t.Context(), request(admissionv1.Update, worse, []byte("{")))
	if have.Allowed || len(have.Result.Details.Causes) != 2 {
		t.Errorf("an unreadable stored object excuses nothing, have %+v", have.Result)
	}
}

func TestValidateLetsLeavingObjectsGo(t *testing.T) {
	leaving := []byte(`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{"predictor":{"nonsense":1}}}`)
	k := isvc()
	k.Validate = func(context.Context, client.Object, client.Object) ([]string, error) { return nil, errors.New("never") }
	if have := k.validate(t.Context(), request(admissionv1.Update, leaving, leaving[:2])); !have.Allowed {
		t.Errorf("an object being deleted is kept: %+v", have.Result)
	}
	if have := k.validate(t.Context(), request(admissionv1.Connect, nil, nil)); !have.Allowed {
		t.Errorf("other operations are none of ours: %+v", have.Result)
	}
}

func TestValidateAsksTheKind(t *testing.T) {
	fieldErr := field.Invalid(field.NewPath("spec", "predictor"), "v", "no good")
	for _, tc := range []struct {
		name    string
		err     error
		code    int32
		reason  metav1.StatusReason
		causes  int
		message string
	}{
		{"one field", fieldErr, 422, metav1.StatusReasonInvalid, 1, `InferenceService.serving.kserve.io "x" is invalid: spec.predictor: Invalid value: "v": no good`},
		{"two fields", field.ErrorList{fieldErr, field.Required(field.NewPath("spec"), "")}.ToAggregate(), 422, metav1.StatusReasonInvalid, 2, ""},
		{"a field and something else", utilerrors.NewAggregate([]error{fieldErr, errors.New("also")}), 403, metav1.StatusReasonForbidden, 0, "also"},
		{"a status", apierrors.NewConflict(schema.GroupResource{Resource: "r"}, "x", errors.New("again")), 409, metav1.StatusReasonConflict, 0, ""},
		{"plain", errors.New("because"), 403, metav1.StatusReasonForbidden, 0, "because"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := isvc()
			k.Validate = func(_ context.Context, old, obj client.Object) ([]string, error) {
				if old != nil || obj.(*servingv1beta1.InferenceService).Spec.Predictor.Containers[0].Name != "a" {
					t.Errorf("asked about %v, %v", old, obj)
				}
				return []string{"mind"}, tc.err
			}
			have := k.validate(t.Context(), request(admissionv1.Create, isvcJSON(t, "containers: [{name: a}]"), nil))
			if have.Allowed || have.Result.Code != tc.code || have.Result.Reason != tc.reason || !strings.Contains(have.Result.Message, tc.message) {
				t.Fatalf("have %+v", have.Result)
			}
			if have.Result.Details != nil && len(have.Result.Details.Causes) != tc.causes {
				t.Errorf("have causes %+v", have.Result.Details.Causes)
			}
			if !cmp.Equal(have.Warnings, []string{"mind"}) {
				t.Errorf("have warnings %v", have.Warnings)
			}
		})
	}
}

func TestValidateSeesTheOldObject(t *testing.T) {
	k := isvc()
	asked := false
	k.Validate = func(ctx context.Context, old, _ client.Object) ([]string, error) {
		req, err := admission.RequestFromContext(ctx)
		asked = err == nil && req.Name == "x" && old.(*servingv1beta1.InferenceService).Spec.Predictor.Containers[0].Name == "old"
		return nil, nil
	}
	k.validate(t.Context(), request(admissionv1.Update, isvcJSON(t, "containers: [{name: a}]"), isvcJSON(t, "containers: [{name: old}]")))
	if !asked {
		t.Error("want the old object and the request")
	}
}

func TestValidateDelete(t *testing.T) {
	stored := isvcJSON(t, "containers: [{name: a, imagee: b}]")
	if have := isvc().validate(t.Context(), request(admissionv1.Delete, nil, stored)); !have.Allowed {
		t.Errorf("have %+v", have.Result)
	}
	k := isvc()
	k.ValidateDelete = func(_ context.Context, obj client.Object) ([]string, error) {
		return nil, errors.New(obj.GetName() + " is in use")
	}
	have := k.validate(t.Context(), request(admissionv1.Delete, nil, stored))
	if have.Allowed || have.Result.Message != "x is in use" {
		t.Errorf("have %+v", have.Result)
	}
	if have := k.validate(t.Context(), request(admissionv1.Delete, nil, []byte("{"))); have.Allowed || have.Result.Code != http.StatusBadRequest {
		t.Errorf("have %+v", have.Result)
	}
}

func TestMutatePatchesOnlyTheDefaults(t *testing.T) {
	k := isvc()
	k.Default = func(_ context.Context, obj client.Object) error {
		i := obj.(*servingv1beta1.InferenceService)
		i.Spec.Predictor.Containers[0].Name = "kserve-container"
		i.SetLabels(map[string]string{"a": "b"})
		return nil
	}
	have := k.mutate(t.Context(), request(admissionv1.Create, isvcJSON(t, "containers: [{image: b, resources: {limits: {cpu: 1000m}}}]"), nil))
	want := []jsonpatch.JsonPatchOperation{
		{Operation: "add", Path: "/metadata/labels", Value: map[string]any{"a": "b"}},
		{Operation: "add", Path: "/spec/predictor/containers/0/name", Value: "kserve-container"},
	}
	less := func(a, b jsonpatch.JsonPatchOperation) int { return strings.Compare(a.Path, b.Path) }
	if !have.Allowed || !cmp.Equal(sorted(want, less), sorted(have.Patches, less)) {
		t.Errorf("have %+v %+v", have.Result, have.Patches)
	}
	if again := k.mutate(t.Context(), request(admissionv1.Create, isvcJSON(t, "containers: [{imagee: b}]"), nil)); again.Allowed {
		t.Error("a misspelt field must be refused before defaults hide it")
	}
	k.Default = func(context.Context, client.Object) error { return field.Required(field.NewPath("spec"), "x") }
	if failed := k.mutate(t.Context(), request(admissionv1.Create, isvcJSON(t, "{}"), nil)); failed.Allowed || failed.Result.Code != 422 {
		t.Errorf("have %+v", failed.Result)
	}
	leaving := []byte(`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}`)
	if left := k.mutate(t.Context(), request(admissionv1.Update, leaving, leaving)); !left.Allowed || len(left.Patches) > 0 {
		t.Errorf("have %+v", left)
	}
}

func TestCarry(t *testing.T) {
	for _, tc := range []struct{ name, original, before, after, want string }{
		{"nothing changed", `{"a":1,"x":2}`, `{"a":1,"z":{}}`, `{"a":1,"z":{}}`, `{"a":1,"x":2}`},
		{"unknown kept", `{"a":{"x":2}}`, `{"a":{}}`, `{"a":{"b":1}}`, `{"a":{"b":1,"x":2}}`},
		{"below what the type adds", `{}`, `{"r":{}}`, `{"r":{"l":1}}`, `{"r":{"l":1}}`},
		{"removed", `{"a":1,"x":2}`, `{"a":1}`, `{}`, `{"x":2}`},
		{"list grew", `{"l":[{"x":1}]}`, `{"l":[{}]}`, `{"l":[{"n":1},{"n":2}]}`, `{"l":[{"n":1,"x":1},{"n":2}]}`},
		{"list shrank", `{"l":[1,2]}`, `{"l":[1,2]}`, `{"l":[2]}`, `{"l":[2]}`},
		{"other type", `{"a":"1"}`, `{"a":"1"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"other writing of a value", `{"q":"1000m","n":1}`, `{"q":"1","n":1}`, `{"q":"1","n":2}`, `{"q":"1000m","n":2}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var o, b, a, w any
			for text, into := range map[string]*any{tc.original: &o, tc.want: &w} {
				must(t, json.Unmarshal([]byte(text), into))
			}
			must(t, json.Unmarshal([]byte(tc.before), &b))
			must(t, json.Unmarshal([]byte(tc.after), &a))
			must(t, json.Unmarshal([]byte(tc.original), &o))
			must(t, json.Unmarshal([]byte(tc.want), &w))
			if diff := cmp.Diff(w, carry(o, b, a)); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRegisterChecksTheScheme(t *testing.T) {
	server := webhook.NewServer(webhook.Options{})
	if err := Register(server, runtime.NewScheme(), isvc()); err == nil || !strings.Contains(err.Error(), "admission of serving.kserve.io/v1beta1") {
		t.Errorf("want the kind named, have %v", err)
	}
	scheme := runtime.NewScheme()
	must(t, AddToScheme(scheme))
	wrong := isvc()
	wrong.GVK.Kind = "Other"
	if err := Register(server, scheme, wrong); err == nil || !strings.Contains(err.Error(), "knows its type as") {
		t.Errorf("want the mismatch named, have %v", err)
	}
}

// TestRequestsAreBounded goes through the registered path, as the API server does.
func TestRequestsAreBounded(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, AddToScheme(scheme))
	server := webhook.NewServer(webhook.Options{})
	must(t, Register(server, scheme, isvc()))
	for _, tc := range []struct {
		name string
		body string
		want int32
	}{
		{"eight megabytes", strings.Repeat(" ", 8<<20), http.StatusRequestEntityTooLarge},
		{"no review", "{", http.StatusBadRequest},
		{"a review", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE"}}`, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, isvc().ValidatePath(), strings.NewReader(tc.body))
			req.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			server.WebhookMux().ServeHTTP(answer, req)
			review := admissionv1.AdmissionReview{}
			must(t, json.Unmarshal(answer.Body.Bytes(), &review))
			if have := review.Response.Result.Code; have != tc.want || review.Response.Allowed != (tc.want == http.StatusOK) {
				t.Errorf("have %+v", review.Response)
			}
		})
	}
}

// TestVersionsAtOnePath: each version is answered for by its own rules, and what is neither is refused.
func TestVersionsAtOnePath(t *testing.T) {
	group := schema.GroupVersion{Group: "example.com", Version: "v1"}
	paths := byVersion{}
	for _, version := range []string{"v1", "v2"} {
		k := Kind{GVK: schema.GroupVersionKind{Group: group.Group, Version: version, Kind: "Thing"}, PathWithoutVersion: true}
		paths.add(k.ValidatePath(), k, func(context.Context, admission.Request) admission.Response { return admission.Allowed(version) })
	}
	at, ok := paths["/validate-example-com-thing"]
	if !ok || len(paths) != 1 {
		t.Fatalf("the paths are %v", paths)
	}
	for version, want := range map[string]int32{"v1": 200, "v2": 200, "v3": 400} {
		req := admission.Request{}
		req.Kind = metav1.GroupVersionKind{Group: group.Group, Version: version, Kind: "Thing"}
		got := at.Handle(t.Context(), req)
		if got.Result.Code != want || want == 200 && got.Result.Message != version {
			t.Errorf("%s is answered with %+v", version, got.Result)
		}
	}
}
