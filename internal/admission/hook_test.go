// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func podHook(mutate func(context.Context, client.Object) error) Hook {
	return Hook{Path: "/mutate-things", New: func() client.Object { return &corev1.Pod{} }, Mutate: mutate}
}

func ask(h Hook, pod string) admission.Response {
	return h.handle(context.Background(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "models", Object: runtime.RawExtension{Raw: []byte(pod)},
	}})
}

// TestHookChangesOnlyWhatItChanges keeps what a newer Kubernetes knows and we do
// not, and fills in nothing that the API server fills in.
func TestHookChangesOnlyWhatItChanges(t *testing.T) {
	h := podHook(func(_ context.Context, obj client.Object) error {
		if obj.GetNamespace() != "models" {
			return fmt.Errorf("the namespace is %q", obj.GetNamespace())
		}
		obj.SetLabels(map[string]string{"a": "b"})
		return nil
	})
	response := ask(h, `{"metadata":{"generateName":"x-"},"spec":{"containers":[{"name":"a","newField":{"x":1}}],"alsoNew":true}}`)
	if !response.Allowed {
		t.Fatalf("refused: %v", response.Result)
	}
	patch, err := json.Marshal(response.Patches)
	must(t, err)
	if have := string(patch); have != `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]` {
		t.Errorf("the patch is %s", have)
	}
}

func TestHookSaysWhy(t *testing.T) {
	timedOut := apierrors.NewTimeoutError("too busy", 1)
	for _, tc := range []struct {
		name string
		pod  string
		err  error
		code int32
		want string
	}{
		{"a person must act", `{}`, errors.New("there is no Secret a; create it"), http.StatusForbidden, "there is no Secret a; create it"},
		{"the API server failed", `{}`, fmt.Errorf("read Secret a: %w", timedOut), http.StatusInternalServerError, "read Secret a: "},
		{"it took too long", `{}`, fmt.Errorf("read Secret a: %w", context.DeadlineExceeded), http.StatusInternalServerError, "read Secret a: "},
		{"no pod at all", `[]`, nil, http.StatusBadRequest, "cannot unmarshal"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			response := ask(podHook(func(context.Context, client.Object) error { return tc.err }), tc.pod)
			if response.Allowed || response.Result.Code != tc.code || !strings.Contains(response.Result.Message, tc.want) {
				t.Errorf("got %+v", response.Result)
			}
		})
	}
}

func TestHookHasTimeToAnswer(t *testing.T) {
	var left bool
	ask(podHook(func(ctx context.Context, _ client.Object) error {
		_, left = ctx.Deadline()
		return nil
	}), `{}`)
	if !left {
		t.Error("a hook may wait for ever")
	}
}

func TestWithHooks(t *testing.T) {
	h := podHook(nil)
	h.Webhook = admissionregistrationv1.MutatingWebhook{
		Name: "things.example.com", ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}
	service := Service{Namespace: "n", Name: "s"}
	if WithHooks(nil, "any", service) != nil {
		t.Error("a configuration without webhooks")
	}
	made := WithHooks(nil, "any", service, h)
	if made.Name != "any" || made.Kind != "MutatingWebhookConfiguration" || len(made.Webhooks) != 1 {
		t.Fatalf("got %+v", made)
	}
	again := WithHooks(made, "any", service, h)
	if len(again.Webhooks) != 2 || len(h.Webhook.NamespaceSelector.MatchExpressions) != 0 {
		t.Errorf("the hook itself was changed: %+v", h.Webhook)
	}
	w := made.Webhooks[0]
	excludes := func(r metav1.LabelSelectorRequirement) bool {
		return r.Operator == metav1.LabelSelectorOpNotIn && slices.Contains(r.Values, metav1.NamespaceSystem)
	}
	switch {
	case *w.ClientConfig.Service.Path != h.Path, w.Name != "things.example.com", *w.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy,
		*w.FailurePolicy != admissionregistrationv1.Fail, *w.SideEffects != admissionregistrationv1.SideEffectClassNone,
		!slices.Equal(w.AdmissionReviewVersions, []string{"v1", "v1beta1"}), w.NamespaceSelector.MatchLabels["a"] != "b",
		!slices.ContainsFunc(w.NamespaceSelector.MatchExpressions, excludes):
		t.Errorf("got %+v", w)
	}
}
