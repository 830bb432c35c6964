// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

const (
	httpPort             = 80   // of every component's Service
	containerPort        = 8080 // of a container that declares none
	defaultClusterDomain = "cluster.local"
	clusterLocalDomain   = "svc.cluster.local" // as ingressDomain: nothing is reachable from outside
)

// Share is the part of a predictor's requests that goes to a canary.
type Share struct {
	Service string
	Percent int32
}

// Backend is a component that takes requests.
type Backend struct {
	// Service in front of its pods, as planned; never nil.
	Service *corev1.Service
	// Timeout of a request in seconds; nil means the usual one.
	Timeout *int64
	// Canaries that are ready. Only the predictor has any.
	Canaries []Share
	// Model that an explainer explains, if it is not named like the service.
	Model string
	// Address says whom requests are for that go through the activator; empty: they do not.
	Address string
}

// Service is an InferenceService in Standard mode as far as routing goes.
type Service struct {
	Name, Namespace     string
	Labels, Annotations map[string]string
	// PredictorHostName is {isvc}-predictor whatever the predictor's objects are called, so that its host survives the
	// promotion of a canary. Empty means just that.
	PredictorHostName      string
	Predictor              Backend
	Transformer, Explainer *Backend
	// ThroughTransformer leads the service's own host to the transformer.
	ThroughTransformer bool
	// ClusterDomain is the cluster's DNS suffix; empty means cluster.local.
	ClusterDomain string
}

// URLSet is where a service is found.
type URLSet struct {
	// URL from outside, by host.
	URL string
	// Path is the URL from outside by path; empty where the platform offers none.
	Path string
	// Address inside the cluster.
	Address string
	// Components by their own hosts.
	Components map[v1beta1.ComponentType]string
}

// ClusterLocal tells whether a service is meant to be reached from inside the cluster only.
func ClusterLocal(s Service, cfg *config.Config) bool {
	domain := cfg.Ingress.IngressDomain
	return s.Labels[v1beta1.LabelVisibility] == v1beta1.VisibilityClusterLocal ||
		domain == clusterLocalDomain || domain == "svc."+clusterDomain(s.ClusterDomain)
}

// CanSplit tells whether the platform's routes can give canaries a share of the requests. A plain Ingress has no
// weights, and where no routes are made there is nothing to weigh. A single service may still be cluster-local.
func CanSplit(cfg *config.Config) bool {
	return cfg.Ingress.EnableGatewayAPI && !cfg.Ingress.DisableIngressCreation && cfg.Ingress.IngressDomain != clusterLocalDomain
}

// Objects are all objects that lead requests from outside to a service; none when it is not to be reached from there.
func Objects(s Service, cfg *config.Config) ([]client.Object, error) {
	if ClusterLocal(s, cfg) || cfg.Ingress.DisableIngressCreation {
		return nil, nil
	}
	hosts, err := hostsOf(s, cfg)
	if err != nil {
		return nil, err
	}
	if !cfg.Ingress.EnableGatewayAPI {
		return []client.Object{ingressFor(s, hosts, cfg)}, nil
	}
	return httpRoutes(s, hosts, cfg)
}

// Ignored lists settings of the platform that the objects for this service do not honour, in sentences for a person. It
// is empty when everything that was asked for is done. Whether canaries get their share is told by CanSplit.
func Ignored(s Service, cfg *config.Config) []string {
	if ClusterLocal(s, cfg) || cfg.Ingress.DisableIngressCreation {
		return nil
	}
	var out []string
	if !cfg.Ingress.EnableGatewayAPI && cfg.Ingress.PathTemplate != "" {
		out = append(out, "ingress.pathTemplate has no effect, because an Ingress cannot rewrite paths. "+
			"Set ingress.enableGatewayApi in inferenceservice-config, or remove pathTemplate.")
	}
	hosts, err := hostsOf(s, cfg)
	if err != nil {
		return out
	}
	return append(out, hosts.refused...)
}

// URLs says where a service is found, whether or not anything leads there yet.
func URLs(s Service, cfg *config.Config) (URLSet, error) {
	hosts, err := hostsOf(s, cfg)
	if err != nil {
		return URLSet{}, err
	}
	out := URLSet{
		URL:     cfg.Ingress.URLScheme + "://" + hosts.top,
		Address: "http://" + s.top().address(s.Namespace, s.ClusterDomain),
		Components: map[v1beta1.ComponentType]string{
			v1beta1.PredictorComponent: "http://" + hosts.predictor,
		},
	}
	if s.Transformer != nil {
		out.Components[v1beta1.TransformerComponent] = "http://" + hosts.transformer
	}
	if s.Explainer != nil {
		out.Components[v1beta1.ExplainerComponent] = "http://" + hosts.explainer
	}
	if CanSplit(cfg) && !ClusterLocal(s, cfg) && cfg.Ingress.PathTemplate != "" {
		path, err := pathFor(s.Name, s.Namespace, cfg)
		if err != nil {
			return URLSet{}, err
		}
		out.Path = cfg.Ingress.URLScheme + "://" + cfg.Ingress.IngressDomain + path
	}
	return out, nil
}

// top is the component that the service's own host leads to.
func (s Service) top() Backend {
	if s.Transformer != nil && s.ThroughTransformer {
		return *s.Transformer
	}
	return s.Predictor
}

// address is where a component is found inside the cluster. A headless Service translates no ports, so callers have to
// know the pods'.
func (b Backend) address(namespace, domain string) string {
	host := serviceHost(b.Service.Name, namespace, domain)
	if b.Service.Spec.ClusterIP != corev1.ClusterIPNone {
		return host
	}
	port := int32(containerPort)
	for _, p := range b.Service.Spec.Ports {
		if isGRPC(p) {
			continue
		}
		if p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal != 0 {
			port = p.TargetPort.IntVal
		}
		break
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// isGRPC goes by what a Service says of a port.
func isGRPC(p corev1.ServicePort) bool {
	name := strings.ToLower(p.Name)
	return p.AppProtocol != nil && *p.AppProtocol == "kubernetes.io/h2c" ||
		strings.Contains(name, "grpc") || strings.Contains(name, "h2c")
}

func serviceHost(name, namespace, domain string) string {
	return name + "." + namespace + ".svc." + clusterDomain(domain)
}

func clusterDomain(domain string) string {
	if domain == "" {
		return defaultClusterDomain
	}
	return domain
}
