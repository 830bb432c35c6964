// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"
)

// Hook changes objects of a kind that is not one of ours, such as pods, before
// they are stored. It reads what it needs by itself, unlike the rules of a Kind.
type Hook struct {
	// Path is where the API server asks.
	Path string
	// Webhook says when it asks: name, rules, selectors and whether it asks again.
	// The rest is the same for all.
	Webhook admissionregistrationv1.MutatingWebhook
	// New returns an empty object of the kind.
	New func() client.Object
	// Mutate changes the object, whose namespace is set. An error refuses it; one
	// that wraps an answer of the API server says that it is to be tried again.
	Mutate func(ctx context.Context, obj client.Object) error
}

// answerBy leaves time to say why, before the API server gives up waiting.
const answerBy = time.Duration(timeout-2) * time.Second

// RegisterHooks serves hooks.
func RegisterHooks(server webhook.Server, hooks ...Hook) {
	for _, h := range hooks {
		server.Register(h.Path, &admission.Webhook{Handler: admission.HandlerFunc(h.handle)})
	}
}

// handle answers one request. Unknown fields are none of our business here: they
// belong to a Kubernetes newer than we know, and stay.
func (h Hook) handle(ctx context.Context, req admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(admission.NewContextWithRequest(ctx, req), answerBy)
	defer cancel()
	obj := h.New()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(req.Object.Raw, obj); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(req.Namespace) // the API server fills it in later
	}
	result, err := edit(req.Object.Raw, obj, func() error { return h.Mutate(ctx, obj) })
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status), errors.Is(err, context.DeadlineExceeded):
		return admission.Errored(http.StatusInternalServerError, err)
	case err != nil:
		return admission.Denied(err.Error())
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, result)
}

// WithHooks adds hooks to the configuration of a name, which may be nil.
func WithHooks(mutating *admissionregistrationv1.MutatingWebhookConfiguration, name string, service Service, hooks ...Hook) *admissionregistrationv1.MutatingWebhookConfiguration {
	if len(hooks) == 0 {
		return mutating
	}
	if mutating == nil {
		mutating = newMutating(name)
	}
	for _, h := range hooks {
		mutating.Webhooks = append(mutating.Webhooks, h.webhook(service))
	}
	return mutating
}

func newMutating(name string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// webhook completes what the hook says. What a cluster needs to heal by itself
// must never wait for the manager.
func (h Hook) webhook(service Service) admissionregistrationv1.MutatingWebhook {
	out := *h.Webhook.DeepCopy()
	out.ClientConfig = service.clientConfig(h.Path)
	out.FailurePolicy = new(admissionregistrationv1.Fail)
	out.MatchPolicy = new(admissionregistrationv1.Equivalent)
	out.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
	out.TimeoutSeconds = new(timeout)
	out.AdmissionReviewVersions = reviewVersions()
	if out.ReinvocationPolicy == nil {
		out.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	}
	if out.NamespaceSelector == nil {
		out.NamespaceSelector = &metav1.LabelSelector{}
	}
	out.NamespaceSelector.MatchExpressions = append(out.NamespaceSelector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn,
		Values: []string{metav1.NamespaceSystem},
	})
	return out
}
