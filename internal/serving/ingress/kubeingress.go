// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/config"
)

// ingressFor makes the one Ingress of a service: a rule for each host. Existing tools know the order of the rules;
// additional hosts follow.
func ingressFor(s Service, h hosts, cfg *config.Config) *networkingv1.Ingress {
	var rules []networkingv1.IngressRule
	add := func(host string, to Backend) { rules = append(rules, ingressRule(host, to.Service.Name)) }
	if s.Transformer != nil && s.Explainer != nil {
		add(h.explainer, *s.Explainer)
	}
	add(h.top, s.top())
	switch {
	case s.Transformer != nil:
		add(h.transformer, *s.Transformer)
	case s.Explainer != nil:
		add(h.explainer, *s.Explainer)
	}
	add(h.predictor, s.Predictor)
	for _, host := range h.more {
		add(host, s.top())
	}
	return &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, Annotations: cfg.FilterAnnotations(s.Annotations)},
		Spec:       networkingv1.IngressSpec{IngressClassName: cfg.Ingress.IngressClassName, Rules: rules},
	}
}

func ingressRule(host, service string) networkingv1.IngressRule {
	return networkingv1.IngressRule{
		Host: host,
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{
				Path:     "/",
				PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: service,
					Port: networkingv1.ServiceBackendPort{Number: httpPort},
				}},
			}},
		}},
	}
}
