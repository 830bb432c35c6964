// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/modelplane/modelplane/charts"
)

// Service says where the API server finds the webhooks.
type Service struct {
	Namespace, Name string
	// Port of the service; 0 stands for 443.
	Port int32
	// CABundle is set when the certificate authority is known beforehand. The
	// manager injects its own otherwise.
	CABundle []byte
}

// timeout is long enough for a busy manager and short enough for a person.
const timeout int32 = 10

// reviewVersions are the forms of a request that are understood. The older one
// is what other controllers of these kinds asked for.
func reviewVersions() []string { return []string{"v1", "v1beta1"} }

// Webhooks returns the configurations that make the API server ask for the
// given kinds. Both carry the name. The mutating one is nil when no kind has
// defaults.
func Webhooks(name string, service Service, kinds ...Kind) (*admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfiguration, error) {
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	mutating := newMutating(name)
	plurals, err := resources()
	if err != nil {
		return nil, nil, err
	}
	for _, k := range kinds {
		plural, ok := plurals[k.GVK]
		if !ok {
			return nil, nil, fmt.Errorf("webhook for %s: there is no definition of it", k.GVK)
		}
		validating.Webhooks = append(validating.Webhooks, k.validatingWebhook(service, plural, versions(plurals, k.GVK)))
		if k.Default != nil {
			mutating.Webhooks = append(mutating.Webhooks, k.mutatingWebhook(service, plural, versions(plurals, k.GVK)))
		}
	}
	if len(mutating.Webhooks) == 0 {
		mutating = nil
	}
	return validating, mutating, nil
}

// resources maps every kind to its plural.
func resources() (map[schema.GroupVersionKind]string, error) {
	defs, err := charts.Resources()
	if err != nil {
		return nil, err
	}
	out := map[schema.GroupVersionKind]string{}
	for _, def := range defs {
		for _, v := range def.Spec.Versions {
			out[schema.GroupVersionKind{Group: def.Spec.Group, Version: v.Name, Kind: def.Spec.Names.Kind}] = def.Spec.Names.Plural
		}
	}
	return out, nil
}

// versions counts how many versions of a kind there are.
func versions(plurals map[schema.GroupVersionKind]string, gvk schema.GroupVersionKind) int {
	n := 0
	for other := range plurals {
		if other.GroupKind() == gvk.GroupKind() {
			n++
		}
	}
	return n
}

// match checks an object in the version it was written in. A kind with several
// versions has a webhook for each, so that none may be asked for another's.
func match(versions int) *admissionregistrationv1.MatchPolicyType {
	if versions > 1 {
		return new(admissionregistrationv1.Exact)
	}
	return new(admissionregistrationv1.Equivalent)
}

func (k Kind) validatingWebhook(service Service, plural string, versions int) admissionregistrationv1.ValidatingWebhook {
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	if k.ValidateDelete != nil {
		operations = append(operations, admissionregistrationv1.Delete)
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    k.webhookName(),
		ClientConfig:            service.clientConfig(k.ValidatePath()),
		Rules:                   k.rules(plural, operations),
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             match(versions),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(timeout),
		AdmissionReviewVersions: reviewVersions(),
	}
}

func (k Kind) mutatingWebhook(service Service, plural string, versions int) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name:         k.webhookName(),
		ClientConfig: service.clientConfig(k.MutatePath()),
		Rules: k.rules(plural, []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update,
		}),
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             match(versions),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(timeout),
		AdmissionReviewVersions: reviewVersions(),
		ReinvocationPolicy:      new(admissionregistrationv1.NeverReinvocationPolicy),
	}
}

func (k Kind) webhookName() string {
	return strings.ToLower(k.GVK.Kind) + "." + k.GVK.Version + "." + k.GVK.Group
}

func (k Kind) rules(plural string, operations []admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups:   []string{k.GVK.Group},
			APIVersions: []string{k.GVK.Version},
			Resources:   []string{plural},
			Scope:       new(admissionregistrationv1.AllScopes),
		},
	}}
}

func (s Service) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	port := s.Port
	if port == 0 {
		port = 443
	}
	return admissionregistrationv1.WebhookClientConfig{
		Service:  &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: &path, Port: &port},
		CABundle: s.CABundle,
	}
}
