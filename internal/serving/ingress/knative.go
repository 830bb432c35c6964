// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// KnativePart is a component that runs as a Knative Service.
type KnativePart struct {
	// Name of its Knative Service.
	Name string
	// URL that Knative gave it; empty until it was ready for the first time.
	URL string
}

// KnativeService is an InferenceService in Knative mode as far as routing goes.
type KnativeService struct {
	Name, Namespace        string
	Labels, Annotations    map[string]string
	Predictor              KnativePart
	Transformer, Explainer *KnativePart
	// ThroughTransformer leads the service's own hosts to the transformer.
	ThroughTransformer bool
	// Domains that Knative may have used: the keys of its ConfigMap config-domain.
	Domains []string
	// NoIstio says that the cluster does not know VirtualServices, which comes to the same as disableIstioVirtualHost.
	NoIstio bool
	// ClusterDomain is the cluster's DNS suffix; empty means cluster.local.
	ClusterDomain string
}

// VirtualHost tells whether a service has hosts of its own, apart from those that Knative gave its components.
func (k KnativeService) VirtualHost(cfg *config.Config) bool {
	return !k.NoIstio && !cfg.Ingress.DisableIstioVirtualHost
}

// KnativeObjects are the ExternalName Service of a service and, as soon as Knative gave its first component a URL, the
// VirtualService that leads there. A service without a virtual host has neither. Explanations are routed as soon as the
// explainer has a URL; until then nothing else is held up.
func KnativeObjects(k KnativeService, cfg *config.Config) ([]client.Object, error) {
	if !k.VirtualHost(cfg) {
		return nil, nil
	}
	objects := []client.Object{externalName(k, cfg)}
	if k.top().URL == "" {
		return objects, nil
	}
	v, err := virtualService(k, cfg)
	if err != nil {
		return nil, err
	}
	return append(objects, v), nil
}

// KnativeURLs says where a service is found. What depends on a component without a URL is left empty.
func KnativeURLs(k KnativeService, cfg *config.Config) (URLSet, error) {
	out := URLSet{Components: map[v1beta1.ComponentType]string{}}
	parts := map[v1beta1.ComponentType]*KnativePart{
		v1beta1.PredictorComponent: &k.Predictor, v1beta1.TransformerComponent: k.Transformer, v1beta1.ExplainerComponent: k.Explainer,
	}
	for component, part := range parts {
		if part != nil && part.URL != "" {
			out.Components[component] = part.URL
		}
	}
	top := k.top()
	if top.URL == "" {
		return out, nil
	}
	host, err := k.externalHost()
	if err != nil {
		return URLSet{}, err
	}
	scheme := cfg.Ingress.URLScheme + "://"
	if !k.VirtualHost(cfg) {
		u, err := top.host()
		out.URL, out.Address = scheme+u, "http://"+serviceHost(top.Name, k.Namespace, k.ClusterDomain)
		return out, err
	}
	out.URL, out.Address = scheme+host, "http://"+k.clusterHost()
	if cfg.Ingress.PathTemplate != "" && !k.internal(host) {
		path, err := pathFor(k.Name, k.Namespace, cfg)
		if err != nil {
			return URLSet{}, err
		}
		out.Path = scheme + cfg.Ingress.IngressDomain + path
		out.URL = out.Path
	}
	return out, nil
}

// KnativeIgnored lists settings of the platform that the objects for this service do not honour, in sentences for a
// person.
func KnativeIgnored(k KnativeService, cfg *config.Config) []string {
	host, err := k.externalHost()
	if err != nil || !k.VirtualHost(cfg) || k.internal(host) {
		return nil
	}
	_, refused := k.additionalHosts(host, cfg)
	return refused
}

func (k KnativeService) additionalHosts(host string, cfg *config.Config) (more, refused []string) {
	domains := slices.Clone(k.Domains)
	slices.SortFunc(domains, longestFirst)
	return additionalHosts(host, domains, cfg, "Add its domain to Knative's config-domain.")
}

// longestFirst makes the most specific of several domains that a host may end in the one that counts.
func longestFirst(a, b string) int {
	if len(a) != len(b) {
		return len(b) - len(a)
	}
	return strings.Compare(a, b)
}

// top is the component that the service's own hosts lead to.
func (k KnativeService) top() KnativePart {
	if k.Transformer != nil && k.ThroughTransformer {
		return *k.Transformer
	}
	return k.Predictor
}

func (k KnativeService) clusterHost() string {
	return serviceHost(k.Name, k.Namespace, k.ClusterDomain)
}

// internal tells whether a service is reached from inside the cluster only.
func (k KnativeService) internal(external string) bool {
	return k.Labels[v1beta1.LabelKnativeVisibility] == v1beta1.VisibilityClusterLocal || external == k.clusterHost()
}

// externalHost is the host that Knative would have given the service itself: the first component's, with the name of
// the service in the place of the component's. Where that name does not occur (a template of Knative's that shortens
// names), the component's suffix is taken out, old or new.
func (k KnativeService) externalHost() (string, error) {
	top := k.top()
	host, err := top.host()
	if err != nil {
		return "", err
	}
	if strings.Contains(host, top.Name) {
		return strings.Replace(host, top.Name, k.Name, 1), nil
	}
	for _, suffix := range []string{"-predictor-default", "-transformer-default", "-predictor", "-transformer"} {
		if strings.Contains(host, suffix) {
			return strings.Replace(host, suffix, "", 1), nil
		}
	}
	return host, nil
}

func (p KnativePart) host() (string, error) {
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("the URL %[2]q of Knative Service %[1]s holds no host. Check domain-template and config-domain of Knative", p.Name, p.URL)
	}
	return u.Host, nil
}

// externalName lets callers inside the cluster reach the service by its own name, through the local gateway.
func externalName(k KnativeService, cfg *config.Config) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: k.Name, Namespace: k.Namespace},
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeExternalName,
			ExternalName:    cfg.Ingress.LocalGatewayService,
			SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
}
