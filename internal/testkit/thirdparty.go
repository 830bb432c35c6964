// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// API names the definitions that one third-party product brings along.
type API string

// The products that Modelplane works with when they are there.
const (
	GatewayAPI         API = "Gateway API"
	InferenceExtension API = "Gateway API Inference Extension"
	Knative            API = "Knative Serving"
	Istio              API = "Istio"
	KEDA               API = "KEDA"
	OpenTelemetry      API = "OpenTelemetry Operator"
	PrometheusOperator API = "Prometheus Operator"
	Kuadrant           API = "Kuadrant"
	Authorino          API = "Authorino"
	OpenShift          API = "OpenShift"
	LWS                API = "LeaderWorkerSet"
	CertManager        API = "cert-manager"
	EnvoyGateway       API = "Envoy Gateway"
)

// resource is the outside of a definition: what a client can tell of it. The
// first version is the stored one.
type resource struct {
	group, kind, plural string
	versions            string
	cluster             bool
	noStatus            bool
	scale               *apiextensionsv1.CustomResourceSubresourceScale
	shortNames          []string
}

var hpaSelector = ".status.hpaPodSelector"

// thirdParty lists names, versions, scopes and subresources as the products
// ship them. What is inside the objects stays open: that is the product's to check.
var thirdParty = map[API][]resource{
	GatewayAPI: {
		{group: "gateway.networking.k8s.io", kind: "GatewayClass", versions: "v1 v1beta1", plural: "gatewayclasses", cluster: true, shortNames: []string{"gc"}},
		{group: "gateway.networking.k8s.io", kind: "Gateway", versions: "v1 v1beta1", shortNames: []string{"gtw"}},
		{group: "gateway.networking.k8s.io", kind: "HTTPRoute", versions: "v1 v1beta1"},
		{group: "gateway.networking.k8s.io", kind: "GRPCRoute", versions: "v1"},
		{group: "gateway.networking.k8s.io", kind: "ReferenceGrant", versions: "v1beta1 v1", noStatus: true, shortNames: []string{"refgrant"}},
		{group: "gateway.networking.k8s.io", kind: "BackendTLSPolicy", versions: "v1", plural: "backendtlspolicies", shortNames: []string{"btlspolicy"}},
	},
	InferenceExtension: {
		{group: "inference.networking.k8s.io", kind: "InferencePool", versions: "v1", shortNames: []string{"infpool"}},
		{group: "inference.networking.x-k8s.io", kind: "InferencePool", versions: "v1alpha2", shortNames: []string{"xinfpool"}},
		{group: "inference.networking.x-k8s.io", kind: "InferenceModel", versions: "v1alpha2"},
		{group: "inference.networking.x-k8s.io", kind: "InferenceObjective", versions: "v1alpha2"},
	},
	Knative: {
		{group: "serving.knative.dev", kind: "Service", versions: "v1", shortNames: []string{"kservice", "ksvc"}},
		{group: "serving.knative.dev", kind: "Configuration", versions: "v1", shortNames: []string{"config", "cfg"}},
		{group: "serving.knative.dev", kind: "Revision", versions: "v1", shortNames: []string{"rev"}},
		{group: "serving.knative.dev", kind: "Route", versions: "v1", shortNames: []string{"rt"}},
	},
	Istio: {
		{group: "networking.istio.io", kind: "VirtualService", versions: "v1 v1beta1 v1alpha3", shortNames: []string{"vs"}},
		{group: "networking.istio.io", kind: "DestinationRule", versions: "v1 v1beta1 v1alpha3", shortNames: []string{"dr"}},
		{group: "networking.istio.io", kind: "Gateway", versions: "v1 v1beta1 v1alpha3", shortNames: []string{"gw"}},
		{group: "networking.istio.io", kind: "ServiceEntry", versions: "v1 v1beta1 v1alpha3", plural: "serviceentries", shortNames: []string{"se"}},
		{group: "networking.istio.io", kind: "EnvoyFilter", versions: "v1alpha3"},
		{group: "telemetry.istio.io", kind: "Telemetry", versions: "v1 v1alpha1", plural: "telemetries"},
		{group: "security.istio.io", kind: "AuthorizationPolicy", versions: "v1 v1beta1", plural: "authorizationpolicies", shortNames: []string{"ap"}},
		{group: "security.istio.io", kind: "PeerAuthentication", versions: "v1 v1beta1", shortNames: []string{"pa"}},
	},
	KEDA: {
		{group: "keda.sh", kind: "ScaledObject", versions: "v1alpha1", shortNames: []string{"so"}},
		{group: "keda.sh", kind: "TriggerAuthentication", versions: "v1alpha1", shortNames: []string{"ta", "triggerauth"}},
		{group: "keda.sh", kind: "ClusterTriggerAuthentication", versions: "v1alpha1", cluster: true, shortNames: []string{"cta"}},
	},
	OpenTelemetry: {
		{group: "opentelemetry.io", kind: "OpenTelemetryCollector", versions: "v1beta1", shortNames: []string{"otelcol"}},
	},
	PrometheusOperator: {
		{group: "monitoring.coreos.com", kind: "ServiceMonitor", versions: "v1", shortNames: []string{"smon"}},
		{group: "monitoring.coreos.com", kind: "PodMonitor", versions: "v1", shortNames: []string{"pmon"}},
		{group: "monitoring.coreos.com", kind: "PrometheusRule", versions: "v1", shortNames: []string{"promrule"}},
	},
	Kuadrant: {
		{group: "kuadrant.io", kind: "Kuadrant", versions: "v1beta1"},
		{group: "kuadrant.io", kind: "AuthPolicy", versions: "v1", plural: "authpolicies"},
		{group: "kuadrant.io", kind: "RateLimitPolicy", versions: "v1", plural: "ratelimitpolicies"},
		{group: "kuadrant.io", kind: "TokenRateLimitPolicy", versions: "v1alpha1", plural: "tokenratelimitpolicies"},
		{group: "extensions.kuadrant.io", kind: "TelemetryPolicy", versions: "v1alpha1", plural: "telemetrypolicies"},
	},
	Authorino: {
		{group: "authorino.kuadrant.io", kind: "AuthConfig", versions: "v1beta3 v1beta2"},
	},
	OpenShift: {
		{group: "route.openshift.io", kind: "Route", versions: "v1"},
		{group: "console.openshift.io", kind: "ConsoleLink", versions: "v1", cluster: true},
		{group: "user.openshift.io", kind: "Group", versions: "v1", cluster: true, noStatus: true},
		{group: "config.openshift.io", kind: "Ingress", plural: "ingresses", versions: "v1", cluster: true},
	},
	LWS: {
		{group: "leaderworkerset.x-k8s.io", kind: "LeaderWorkerSet", versions: "v1", shortNames: []string{"lws"},
			scale: &apiextensionsv1.CustomResourceSubresourceScale{
				SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &hpaSelector,
			}},
	},
	CertManager: {
		{group: "cert-manager.io", kind: "Certificate", versions: "v1", shortNames: []string{"cert", "certs"}},
		{group: "cert-manager.io", kind: "Issuer", versions: "v1"},
		{group: "cert-manager.io", kind: "ClusterIssuer", versions: "v1", cluster: true},
	},
	EnvoyGateway: {
		{group: "gateway.envoyproxy.io", kind: "Backend", versions: "v1alpha1"},
		{group: "gateway.envoyproxy.io", kind: "EnvoyExtensionPolicy", versions: "v1alpha1", plural: "envoyextensionpolicies"},
	},
}

// ThirdParty returns the definitions of a product: small ones of ours that look
// like the product's from the outside and take any content.
func ThirdParty(api API) []*apiextensionsv1.CustomResourceDefinition {
	resources, known := thirdParty[api]
	if !known {
		panic(fmt.Sprintf("testkit knows no third-party API %q", api))
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, len(resources))
	for i, r := range resources {
		crds[i] = r.definition()
	}
	return crds
}

func (r resource) definition() *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(r.kind)
	plural := r.plural
	if plural == "" {
		plural = singular + "s"
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + r.group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: r.group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: singular, Kind: r.kind, ListKind: r.kind + "List", ShortNames: r.shortNames,
			},
		},
	}
	if r.cluster {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	if strings.HasSuffix(r.group, ".k8s.io") {
		// The server asks this of every definition in a group that belongs to Kubernetes.
		crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, a stand-in for tests"}
	}
	for i, version := range strings.Fields(r.versions) {
		crd.Spec.Versions = append(crd.Spec.Versions, r.version(version, i == 0))
	}
	return crd
}

func (r resource) version(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
	anything := true
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: storage,
		Subresources: &apiextensionsv1.CustomResourceSubresources{Scale: r.scale},
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: &anything,
		}},
	}
	if !r.noStatus {
		version.Subresources.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
	}
	return version
}

// Install makes the server know the kinds of the products until the test ends
// or removes them. Tests that run side by side may need the same product: it
// goes with the last of them.
func (c *Cluster) Install(t testing.TB, apis ...API) {
	t.Helper()
	c.holders.mu.Lock()
	defer c.holders.mu.Unlock()
	for _, api := range apis {
		if c.holders.add(api, t) {
			t.Cleanup(func() { c.release(t, api) })
		}
		c.InstallCRDs(t, ThirdParty(api)...)
	}
}

func (c *Cluster) release(t testing.TB, api API) {
	c.holders.mu.Lock()
	defer c.holders.mu.Unlock()
	if c.holders.drop(api, t) {
		c.RemoveCRDs(t, names(ThirdParty(api))...)
	}
}

// Remove takes the products away at once, with all their objects, whoever
// installed them.
func (c *Cluster) Remove(t testing.TB, apis ...API) {
	t.Helper()
	c.holders.mu.Lock()
	defer c.holders.mu.Unlock()
	for _, api := range apis {
		delete(c.holders.set, api)
		c.RemoveCRDs(t, names(ThirdParty(api))...)
	}
}

func names(crds []*apiextensionsv1.CustomResourceDefinition) []string {
	all := make([]string, len(crds))
	for i, crd := range crds {
		all[i] = crd.Name
	}
	return all
}

// holders remembers which tests need a product. Its lock is kept while products
// come and go, so that one test does not remove what another is installing.
type holders struct {
	mu  sync.Mutex
	set map[API]map[testing.TB]bool
}

// add tells whether the test did not hold the product before.
func (h *holders) add(api API, t testing.TB) bool {
	if h.set == nil {
		h.set = map[API]map[testing.TB]bool{}
	}
	if h.set[api] == nil {
		h.set[api] = map[testing.TB]bool{}
	}
	held := h.set[api][t]
	h.set[api][t] = true
	return !held
}

// drop tells whether the test was the last that held the product.
func (h *holders) drop(api API, t testing.TB) bool {
	held := h.set[api][t]
	delete(h.set[api], t)
	return held && len(h.set[api]) == 0
}
