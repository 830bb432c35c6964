// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func sorted[T any](in []T, less func(a, b T) int) []T {
	out := slices.Clone(in)
	slices.SortFunc(out, less)
	return out
}

func TestPaths(t *testing.T) {
	if have := isvc().ValidatePath(); have != "/validate-serving-kserve-io-v1beta1-inferenceservice" {
		t.Errorf("have %s", have)
	}
	if have := isvc().MutatePath(); have != "/mutate-serving-kserve-io-v1beta1-inferenceservice" {
		t.Errorf("have %s", have)
	}
}

func TestKindsCoverEverything(t *testing.T) {
	have := map[string][]string{}
	total := 0
	for _, domain := range []string{Serving, ModelMesh, ModelRegistry, MaaS, MLflow} {
		kinds, err := Kinds(domain)
		must(t, err)
		for _, k := range kinds {
			have[domain] = append(have[domain], k.GVK.Version+" "+k.GVK.Kind)
			if obj := k.New(); obj == nil || obj == k.New() {
				t.Errorf("%s: New must return a fresh object", k.GVK)
			}
		}
		total += len(kinds)
	}
	if total != 32 {
		t.Errorf("have %d kinds, want 32", total)
	}
	want := map[string][]string{
		Serving: {
			"v1alpha1 ClusterServingRuntime", "v1alpha1 ClusterStorageContainer", "v1alpha1 InferenceGraph",
			"v1beta1 InferenceService", "v1alpha1 LLMInferenceService", "v1alpha2 LLMInferenceService",
			"v1alpha1 LLMInferenceServiceConfig", "v1alpha2 LLMInferenceServiceConfig", "v1alpha1 LocalModelCache",
			"v1alpha1 LocalModelNamespaceCache", "v1alpha1 LocalModelNode", "v1alpha1 LocalModelNodeGroup",
			"v1alpha1 ServingRuntime", "v1alpha1 TrainedModel",
		},
		ModelMesh:     {"v1alpha1 Predictor"},
		ModelRegistry: {"v1alpha1 Catalog", "v1alpha1 AIHub", "v1alpha1 ModelRegistry", "v1beta1 ModelRegistry"},
		MaaS: {
			"v1alpha1 ExternalModel", "v1alpha1 ExternalProvider", "v1alpha1 AITenant", "v1alpha1 Config", "v1alpha1 ExternalModel",
			"v1alpha1 MaaSAuthPolicy", "v1alpha1 MaaSModelRef", "v1alpha1 MaaSSubscription", "v1alpha1 MaasTenantConfig", "v1alpha1 Tenant",
		},
		MLflow: {"v1alpha1 MLflowOperator", "v1 MLflowConfig", "v1 MLflow"},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	if _, err := Kinds("nonsense"); err == nil {
		t.Error("want an error for a domain that does not exist")
	}
}

// TestOpaqueTypes lists the types of ours that read themselves: the walker cannot
// look into them, so each must be one that has nothing inside to misspell.
func TestOpaqueTypes(t *testing.T) {
	opaque := map[string]bool{}
	seen := map[reflect.Type]bool{}
	for _, domain := range []string{Serving, ModelMesh, ModelRegistry, MaaS, MLflow} {
		kinds, err := Kinds(domain)
		must(t, err)
		for _, k := range kinds {
			collectOpaque(reflect.TypeOf(k.New()), seen, opaque)
		}
	}
	want := []string{
		"intstr.IntOrString", "resource.Quantity", "v1.FieldsV1", "v1.JSON", "v1.Time",
		"runtime.RawExtension", "v1beta1.MetricQuantity",
	}
	for name := range opaque {
		if !slices.Contains(want, name) {
			t.Errorf("%s reads itself; what is inside it is not checked", name)
		}
	}
}

func collectOpaque(t reflect.Type, seen map[reflect.Type]bool, opaque map[string]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collectOpaque(t.Elem(), seen, opaque)
		return
	case reflect.Struct:
	default:
		return
	}
	if p := reflect.PointerTo(t); p.Implements(jsonReader) || p.Implements(textReader) {
		opaque[t.String()] = true
		return
	}
	for _, f := range fieldsOf(t) {
		collectOpaque(f, seen, opaque)
	}
}

func TestWebhooks(t *testing.T) {
	kinds, err := Kinds(Serving)
	must(t, err)
	for i := range kinds {
		if kinds[i].GVK == isvcKind {
			kinds[i].Default = func(context.Context, client.Object) error { return nil }
			kinds[i].ValidateDelete = func(context.Context, client.Object) ([]string, error) { return nil, nil }
		}
	}
	validating, mutating, err := Webhooks("modelplane", Service{Namespace: "ns", Name: "svc", CABundle: []byte("ca")}, kinds...)
	must(t, err)
	if len(validating.Webhooks) != len(kinds) || len(mutating.Webhooks) != 1 {
		t.Fatalf("have %d validating and %d mutating for %d kinds", len(validating.Webhooks), len(mutating.Webhooks), len(kinds))
	}
	for _, w := range validating.Webhooks {
		if errs := validation.IsFullyQualifiedName(nil, w.Name); len(errs) > 0 {
			t.Errorf("%s: %v", w.Name, errs)
		}
		wantPolicy := admissionregistrationv1.Equivalent
		if strings.HasPrefix(w.Name, "llm") {
			wantPolicy = admissionregistrationv1.Exact
		}
		if *w.MatchPolicy != wantPolicy || *w.FailurePolicy != admissionregistrationv1.Fail || *w.TimeoutSeconds != 10 ||
			*w.SideEffects != admissionregistrationv1.SideEffectClassNone || string(w.ClientConfig.CABundle) != "ca" {
			t.Errorf("%s: %+v", w.Name, w)
		}
	}
	raw, err := json.Marshal(mutating.Webhooks[0])
	must(t, err)
	want := `{"name":"inferenceservice.v1beta1.serving.kserve.io","clientConfig":{"service":{"namespace":"ns","name":"svc",` +
		`"path":"/mutate-serving-kserve-io-v1beta1-inferenceservice","port":443},"caBundle":"Y2E="},"rules":[{"operations":["CREATE","UPDATE"],` +
		`"apiGroups":["serving.kserve.io"],"apiVersions":["v1beta1"],"resources":["inferenceservices"],"scope":"*"}],"failurePolicy":"Fail",` +
		`"matchPolicy":"Equivalent","sideEffects":"None","timeoutSeconds":10,"admissionReviewVersions":["v1","v1beta1"],"reinvocationPolicy":"Never"}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	deletes := 0
	for _, w := range validating.Webhooks {
		if slices.Contains(w.Rules[0].Operations, admissionregistrationv1.Delete) {
			deletes++
		}
	}
	if deletes != 1 {
		t.Errorf("%d kinds are asked on delete, want 1", deletes)
	}
	_, none, err := Webhooks("x", Service{}, Kind{GVK: isvcKind})
	if err != nil || none != nil {
		t.Errorf("want no mutating configuration, have %v %v", none, err)
	}
	if _, _, err := Webhooks("x", Service{}, Kind{GVK: schema.GroupVersionKind{Kind: "Nothing"}}); err == nil {
		t.Error("want an error for a kind without a definition")
	}
}

func TestProblemString(t *testing.T) {
	if have := fmt.Sprint(Problem{Message: "m"}, Problem{Path: "p", Message: "m"}); have != "m p: m" {
		t.Errorf("have %q", have)
	}
}
