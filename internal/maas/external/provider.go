// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// providers is the kind ExternalProvider.
type providers struct{ *Settings }

type providerSeen struct {
	Flavour gateways.Flavour
	Secret  secretSeen
}

// secretSeen is what there is of a Secret with credentials.
type secretSeen struct{ Exists, HasKey, Labelled bool }

// Observe implements engine.Kind.
func (p providers) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.ExternalProvider) (providerSeen, error) {
	gateway, err := gateways.Observe(ctx, r, p.Gateway)
	if err != nil {
		return providerSeen{}, err
	}
	secret, err := readSecret(ctx, r, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.Auth.SecretRef.Name})
	return providerSeen{Flavour: gateway.Flavour, Secret: secret}, err
}

// readSecret finds out whether there are credentials. They are not kept.
func readSecret(ctx context.Context, r engine.Reader, key client.ObjectKey) (secretSeen, error) {
	secret := &corev1.Secret{}
	err := r.GetUncached(ctx, key, secret)
	if err != nil {
		return secretSeen{}, client.IgnoreNotFound(err)
	}
	return secretSeen{
		Exists: true, HasKey: len(secret.Data[keyOfSecret]) > 0 || secret.StringData[keyOfSecret] != "",
		Labelled: secret.Labels[naming.LabelSecret] == "true",
	}, nil
}

// problem is what is wrong with a Secret from which a key is taken.
func (s secretSeen) problem(namespace, name string) *engine.Problem {
	switch {
	case !s.Exists:
		return engine.WaitFor("SecretMissing", "Secret %s with the credentials of the provider does not exist in namespace %s. Create it.", name, namespace)
	case !s.HasKey:
		return engine.WaitFor("SecretIncomplete", "Secret %s in namespace %s has no %s. Put the key of the provider there.", name, namespace, keyOfSecret)
	case !s.Labelled:
		return engine.WaitFor("SecretNotLabelled", "Secret %s in namespace %s has no label %s=true, so that the payload processor may not read it. Add the label.", name, namespace, naming.LabelSecret)
	}
	return nil
}

// Plan implements engine.Kind.
func (p providers) Plan(obj *v1alpha1.ExternalProvider, seen providerSeen) engine.Plan {
	at, problem := endpointOf(obj.Spec.Endpoint, obj.Annotations)
	if problem == nil {
		problem = signsIn(obj.Spec.Auth)
	}
	if problem != nil {
		return engine.Plan{KeepChildren: true, Problem: problem, Status: providerStatus(v1alpha1.PhaseFailed, "")}
	}
	b := backend{flavour: seen.Flavour, endpoint: at, meta: providerMeta(obj)}
	plan := engine.Plan{Children: b.children()}
	if plan.Problem = seen.Secret.problem(obj.Namespace, obj.Spec.Auth.SecretRef.Name); plan.Problem != nil {
		plan.Status = providerStatus(v1alpha1.PhasePending, "")
		return plan
	}
	plan.Status = providerStatus(v1alpha1.PhaseReady, at.says())
	return plan
}

// signsIn is the problem of a way to sign in that the payload processor does not know.
func signsIn(auth v1alpha1.Auth) *engine.Problem {
	if auth.Type == v1alpha1.AuthAPIKey || auth.Type == v1alpha1.AuthSimple {
		return nil
	}
	return engine.MustChange("ProviderUnsupported", "The payload processor cannot sign in by %s. Use a provider's API that takes a key, with the type apikey.", auth.Type)
}

func providerMeta(obj *v1alpha1.ExternalProvider) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: obj.Namespace, Name: serviceName(obj.Name), Labels: map[string]string{
		"app.kubernetes.io/managed-by": "modelplane", "app.kubernetes.io/component": "external-provider"}}
}

func providerStatus(phase v1alpha1.Phase, where string) *v1alpha1.ExternalProviderStatus {
	out := &v1alpha1.ExternalProviderStatus{Phase: phase}
	if phase == v1alpha1.PhaseReady {
		out.Conditions = []metav1.Condition{ready(fmt.Sprintf("Gateways reach the provider at %s.", where))}
	}
	return out
}

// ready is the condition of something that works.
func ready(message string) metav1.Condition {
	return metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", Message: message}
}
