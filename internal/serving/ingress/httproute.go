// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/activation"
)

// Patterns that existing tools and tests know by their text.
const (
	anyPath     = `^/.*$`
	explainPath = `^/v1/models/[\w-]+:explain$`
	grpcPath    = `^/inference\.GRPCInferenceService/.*$`
	grpcContent = `^application/grpc.*`
)

// Headers by which a backend knows which service it was asked for.
const (
	headerName      = "KServe-Isvc-Name"
	headerNamespace = "KServe-Isvc-Namespace"
)

const defaultTimeout = 60 // seconds

// router makes the HTTPRoutes of one service.
type router struct {
	s       Service
	cfg     *config.Config
	gateway gatewayv1.ParentReference
}

// httpRoutes makes a route for each component's host, one for the service's own hosts, and one for its path.
//
// The path has a route of its own because all rules of a route hold for all its hosts: together with the rules for
// the service's own hosts it would take every request to the domain that all services share.
func httpRoutes(s Service, h hosts, cfg *config.Config) ([]client.Object, error) {
	gateway, err := gatewayRef(cfg)
	if err != nil {
		return nil, err
	}
	r := router{s: s, cfg: cfg, gateway: gateway}
	out := []client.Object{r.route(s.Name+"-predictor", r.all(s.Predictor), h.predictor)}
	if s.Transformer != nil {
		out = append(out, r.route(s.Name+"-transformer", r.all(*s.Transformer), h.transformer))
	}
	if s.Explainer != nil {
		out = append(out, r.route(s.Name+"-explainer", r.all(*s.Explainer), h.explainer))
	}
	out = append(out, r.routes(r.top(), h)...)
	if cfg.Ingress.PathTemplate == "" {
		return out, nil
	}
	path, err := pathFor(s.Name, s.Namespace, cfg)
	if err != nil {
		return nil, err
	}
	return append(out, r.route(s.Name+"-path", r.below(path), cfg.Ingress.IngressDomain)), nil
}

// routes lead from the service's own hosts: as many as these take.
func (r router) routes(rules []gatewayv1.HTTPRouteRule, h hosts) []client.Object {
	var out []client.Object
	for some := range slices.Chunk(append([]string{h.top}, h.more...), hostsPerRoute) {
		out = append(out, r.route(numbered(r.s.Name, len(out)), rules, some...))
	}
	return out
}

// numbered is the name of the HTTPRoute for the service's own hosts after so many others.
func numbered(name string, before int) string {
	if before == 0 {
		return name
	}
	return fmt.Sprintf("%s-hosts-%d", name, before+1)
}

// ownRouteNames are the names of those that routes makes.
func ownRouteNames(s Service, cfg *config.Config) []string {
	out := []string{s.Name}
	if h, err := hostsOf(s, cfg); err == nil {
		for len(out)*hostsPerRoute < 1+len(h.more) {
			out = append(out, numbered(s.Name, len(out)))
		}
	}
	return out
}

// GraphRoutes lead to the router of a graph: its only component, which takes all requests. None where the graph is not to be
// reached from outside, or by an Ingress only, of which graphs have none.
func GraphRoutes(s Service, cfg *config.Config) ([]client.Object, error) {
	if ClusterLocal(s, cfg) || cfg.Ingress.DisableIngressCreation || !cfg.Ingress.EnableGatewayAPI {
		return nil, nil
	}
	h, err := hostsOf(s, cfg)
	if err != nil {
		return nil, err
	}
	gateway, err := gatewayRef(cfg)
	if err != nil {
		return nil, err
	}
	r := router{s: s, cfg: cfg, gateway: gateway}
	return r.routes(r.all(s.Predictor), h), nil
}

// GraphRouteNames are the names of the HTTPRoutes that a graph may have.
func GraphRouteNames(s Service, cfg *config.Config) []string { return ownRouteNames(s, cfg) }

// RouteNames are the names of the HTTPRoutes of a service; none where it has none.
func RouteNames(s Service, cfg *config.Config) []string {
	if !cfg.Ingress.EnableGatewayAPI || ClusterLocal(s, cfg) || cfg.Ingress.DisableIngressCreation {
		return nil
	}
	out := append(ownRouteNames(s, cfg), s.Name+"-predictor")
	if s.Transformer != nil {
		out = append(out, s.Name+"-transformer")
	}
	if s.Explainer != nil {
		out = append(out, s.Name+"-explainer")
	}
	if cfg.Ingress.PathTemplate != "" {
		out = append(out, s.Name+"-path")
	}
	return out
}

func gatewayRef(cfg *config.Config) (gatewayv1.ParentReference, error) {
	namespace, name, found := strings.Cut(cfg.Ingress.KServeIngressGateway, "/")
	if !found || namespace == "" || name == "" {
		return gatewayv1.ParentReference{}, fmt.Errorf("ingress.kserveIngressGateway %q in inferenceservice-config names no Gateway. "+
			"Set it to namespace/name of the Gateway that routes attach to", cfg.Ingress.KServeIngressGateway)
	}
	return gatewayv1.ParentReference{
		Group:     ptr.To(gatewayv1.Group(gatewayv1.GroupName)),
		Kind:      ptr.To(gatewayv1.Kind("Gateway")),
		Namespace: ptr.To(gatewayv1.Namespace(namespace)),
		Name:      gatewayv1.ObjectName(name),
	}, nil
}

func (r router) route(name string, rules []gatewayv1.HTTPRouteRule, hosts ...string) *gatewayv1.HTTPRoute {
	names := make([]gatewayv1.Hostname, len(hosts))
	for i, host := range hosts {
		names[i] = gatewayv1.Hostname(host)
	}
	return &gatewayv1.HTTPRoute{
		TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "HTTPRoute"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: r.s.Namespace,
			Labels: r.cfg.FilterLabels(r.s.Labels), Annotations: r.cfg.FilterAnnotations(r.s.Annotations),
		},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{r.gateway}},
			Hostnames:       names,
			Rules:           rules,
		},
	}
}

// all leads every request to one component. A component that speaks both gRPC and REST gets a rule for each.
func (r router) all(b Backend) []gatewayv1.HTTPRouteRule {
	rest, grpc := b.ports()
	if grpc == 0 {
		return []gatewayv1.HTTPRouteRule{r.rule(regex(anyPath), b, rest)}
	}
	grpcMatch := regex(grpcPath)
	grpcMatch.Headers = []gatewayv1.HTTPHeaderMatch{{
		Type: ptr.To(gatewayv1.HeaderMatchRegularExpression), Name: "content-type", Value: grpcContent,
	}}
	return []gatewayv1.HTTPRouteRule{r.rule(grpcMatch, b, grpc), r.rule(regex(anyPath), b, rest)}
}

// top is for the service's own hosts: explanations go to the explainer, everything else to the first component.
func (r router) top() []gatewayv1.HTTPRouteRule {
	var rules []gatewayv1.HTTPRouteRule
	if r.s.Explainer != nil {
		rest, _ := r.s.Explainer.ports()
		rules = append(rules, r.rule(regex(explainPath), *r.s.Explainer, rest))
	}
	return append(rules, r.all(r.s.top())...)
}

// below is for the host that all services share: only what lies below the service's own path is taken, and the
// component sees the request without that path. Gateways can cut a prefix off but not what a pattern matched, so the
// explainer is found by the name of its model. gRPC knows no paths in front of its own.
func (r router) below(path string) []gatewayv1.HTTPRouteRule {
	var rules []gatewayv1.HTTPRouteRule
	if e := r.s.Explainer; e != nil {
		explain := "/v1/models/" + r.model(*e) + ":explain"
		rest, _ := e.ports()
		rules = append(rules, r.rule(match(gatewayv1.PathMatchExact, path+explain), *e, rest, rewrite(gatewayv1.HTTPPathModifier{
			Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: ptr.To(explain),
		})))
	}
	b := r.s.top()
	rest, _ := b.ports()
	return append(rules, r.rule(match(gatewayv1.PathMatchPathPrefix, path), b, rest, rewrite(gatewayv1.HTTPPathModifier{
		Type: gatewayv1.PrefixMatchHTTPPathModifier, ReplacePrefixMatch: ptr.To("/"),
	})))
}

func (r router) model(b Backend) string {
	if b.Model == "" {
		return r.s.Name
	}
	return b.Model
}

func (r router) rule(match gatewayv1.HTTPRouteMatch, b Backend, port int32, more ...gatewayv1.HTTPRouteFilter) gatewayv1.HTTPRouteRule {
	return gatewayv1.HTTPRouteRule{
		Matches:     []gatewayv1.HTTPRouteMatch{match},
		Filters:     append([]gatewayv1.HTTPRouteFilter{r.headers(b)}, more...),
		BackendRefs: r.backends(b, port),
		Timeouts:    r.timeouts(b),
	}
}

func (r router) headers(b Backend) gatewayv1.HTTPRouteFilter {
	set := []gatewayv1.HTTPHeader{{Name: headerName, Value: r.s.Name}, {Name: headerNamespace, Value: r.s.Namespace}}
	if b.Address != "" {
		set = append(set, gatewayv1.HTTPHeader{Name: activation.Header, Value: b.Address})
	}
	return gatewayv1.HTTPRouteFilter{
		Type:                  gatewayv1.HTTPRouteFilterRequestHeaderModifier,
		RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{Set: set},
	}
}

// backends weighs a component against its canaries. Without canaries the weight is left to the API's default, as
// existing routes have it.
func (r router) backends(b Backend, port int32) []gatewayv1.HTTPBackendRef {
	refs := []gatewayv1.HTTPBackendRef{r.backend(b.Service.Name, port)}
	if len(b.Canaries) == 0 {
		return refs
	}
	stable := int32(100)
	for _, canary := range b.Canaries {
		ref := r.backend(canary.Service, port)
		ref.Weight = ptr.To(canary.Percent)
		refs = append(refs, ref)
		stable -= canary.Percent
	}
	refs[0].Weight = ptr.To(max(stable, 0))
	return refs
}

func (r router) backend(service string, port int32) gatewayv1.HTTPBackendRef {
	return gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
		Kind:      ptr.To(gatewayv1.Kind("Service")),
		Name:      gatewayv1.ObjectName(service),
		Namespace: ptr.To(gatewayv1.Namespace(r.s.Namespace)),
		Port:      ptr.To(port),
	}}}
}

func (r router) timeouts(b Backend) *gatewayv1.HTTPRouteTimeouts {
	if r.cfg.Ingress.DisableHTTPRouteTimeout {
		return nil
	}
	return &gatewayv1.HTTPRouteTimeouts{Request: ptr.To(duration(ptr.Deref(b.Timeout, defaultTimeout)))}
}

// duration writes seconds as the Gateway API takes them: at most five digits for each unit.
func duration(seconds int64) gatewayv1.Duration {
	if seconds < 100_000 {
		return gatewayv1.Duration(fmt.Sprintf("%ds", seconds))
	}
	return gatewayv1.Duration(fmt.Sprintf("%dh%dm%ds", seconds/3600, seconds%3600/60, seconds%60))
}

// ports are the ports of a component's Service for REST and gRPC. Only a component that speaks both has a second one.
func (b Backend) ports() (rest, grpc int32) {
	ports := b.Service.Spec.Ports
	g := slices.IndexFunc(ports, isGRPC)
	h := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return !isGRPC(p) })
	if g < 0 || h < 0 {
		return httpPort, 0
	}
	return ports[h].Port, ports[g].Port
}

func regex(pattern string) gatewayv1.HTTPRouteMatch {
	return match(gatewayv1.PathMatchRegularExpression, pattern)
}

func match(kind gatewayv1.PathMatchType, value string) gatewayv1.HTTPRouteMatch {
	return gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(kind), Value: ptr.To(value)}}
}

func rewrite(to gatewayv1.HTTPPathModifier) gatewayv1.HTTPRouteFilter {
	return gatewayv1.HTTPRouteFilter{
		Type:       gatewayv1.HTTPRouteFilterURLRewrite,
		URLRewrite: &gatewayv1.HTTPURLRewriteFilter{Path: &to},
	}
}
