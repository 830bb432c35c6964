// SPDX-License-Identifier: Apache-2.0

package modelrefs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/limits"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/routes"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Seen is everything that the decision about a model depends on.
type Seen struct {
	// Gateway is the one through which the model should be reached, nil where the tenant that the model names is not there.
	Gateway *types.NamespacedName
	// Entrance is how hosts of the gateway are reached, and Entrances are those that it has itself, the best first.
	Entrance  entrance
	Entrances []entrance
	Backend   Backend
	// NoGateways says that the cluster does not serve the Gateway API.
	NoGateways bool
	// Route leads to the model, nil without one.
	Route *gatewayv1.HTTPRoute
	// Subscribed and Permitted tell whether a working subscription and a working access policy name the model. Named says that
	// there are some that name it, working or not.
	Subscribed, Permitted          bool
	SubscriptionNamed, PolicyNamed bool
	// Twins are other models that clients ask for by the same name.
	Twins []string
	// Leader is the model that makes the policy for the route, of all that share it.
	Leader string
	Grants []kuadrant.Grant
	// Enforcement is that of the tenant of the gateway.
	Enforcement tenancy.Enforcement
	// Foreign are policies of others for the same route, and Kept says that a user keeps ours for himself.
	Foreign []string
	Kept    bool
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, m *v1alpha1.MaaSModelRef) (Seen, error) {
	o := &observer{Reader: r, model: m}
	var err error
	if o.tenants, err = tenancy.Observe(ctx, r, k.settings()); err != nil {
		return o.seen, err
	}
	for _, look := range []func(context.Context) error{o.gateway, o.backend, o.route, o.governance, o.twins, o.group, o.policies} {
		if err := look(ctx); err != nil {
			return o.seen, err
		}
	}
	return o.seen, nil
}

type observer struct {
	engine.Reader
	model   *v1alpha1.MaaSModelRef
	tenants tenancy.Tenants
	seen    Seen
	// sharing are the models on the same route, this one included.
	sharing []v1alpha1.MaaSModelRef
}

// gateway finds out through which gateway the model should be reached.
func (o *observer) gateway(ctx context.Context) error {
	tenant, found := o.tenants.Default(), true
	var err error
	if o.model.Spec.TenantRef != "" {
		tenant, found = o.tenants.Named(o.model.Spec.TenantRef)
	} else if own, has, failed := o.tenants.Of(ctx, o.Reader, o.model.Namespace); has || failed != nil {
		tenant, err = own, failed
	}
	if err != nil || !found {
		return err
	}
	o.seen.Gateway = &tenant.Gateway
	if o.seen.Enforcement, err = tenancy.ObserveEnforcement(ctx, o.Reader, tenant.Namespace); err != nil {
		return err
	}
	gateway := &gatewayv1.Gateway{}
	if err := o.Get(ctx, tenant.Gateway, gateway); err != nil {
		return absent(err)
	}
	o.seen.Entrance, o.seen.Entrances = entrancesOf(gateway)
	return nil
}

// absent is nil when something is not there, be it an object or its API.
func absent(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// entrance is where a gateway takes requests.
type entrance struct {
	scheme, host string
	port         int32
}

// at is the beginning of addresses at a host.
func (e entrance) at(host string) string {
	if strings.Contains(host, ":") { // of IPv6
		host = "[" + host + "]"
	}
	if e.port == 0 || e.scheme == "https" && e.port == 443 || e.scheme == "http" && e.port == 80 {
		return cmp.Or(e.scheme, "https") + "://" + host
	}
	return fmt.Sprintf("%s://%s:%d", e.scheme, host, e.port)
}

// entrancesOf are the hosts of a gateway's listeners without those for many, and then its addresses. Listeners with TLS come
// first, and the first one tells how hosts are reached that have no listener of their own.
func entrancesOf(g *gatewayv1.Gateway) (first entrance, all []entrance) {
	for _, l := range g.Spec.Listeners {
		e := entrance{scheme: "https", port: l.Port}
		if l.Protocol == gatewayv1.HTTPProtocolType {
			e.scheme = "http"
		}
		if h := ptr.Deref(l.Hostname, ""); h != "" && h[0] != '*' {
			e.host = string(h)
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b entrance) int { return -cmp.Compare(a.scheme, b.scheme) })
	if len(all) > 0 {
		first = all[0]
	}
	all = slices.DeleteFunc(all, func(e entrance) bool { return e.host == "" })
	for _, a := range g.Status.Addresses {
		all = append(all, entrance{first.scheme, a.Value, first.port})
	}
	return first, all
}

// route finds the one that leads to the model.
func (o *observer) route(ctx context.Context) error {
	b := o.seen.Backend
	if b.RouteName != "" {
		route := &gatewayv1.HTTPRoute{}
		err := o.Get(ctx, types.NamespacedName{Namespace: o.model.Namespace, Name: b.RouteName}, route)
		if err == nil && route.DeletionTimestamp == nil {
			o.seen.Route = route
		}
		o.seen.NoGateways = meta.IsNoMatchError(err)
		return absent(err)
	}
	if b.RouteLabels == nil {
		return nil
	}
	list, want := &gatewayv1.HTTPRouteList{}, b.RouteLabels
	err := o.List(ctx, list, client.InNamespace(o.model.Namespace), engine.MatchingFunc(func(obj client.Object) bool { return labelled(obj, want) }))
	o.seen.NoGateways = meta.IsNoMatchError(err)
	if err != nil {
		return absent(err)
	}
	slices.SortFunc(list.Items, func(a, b gatewayv1.HTTPRoute) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list.Items {
		if route := &list.Items[i]; labelled(route, want) && route.DeletionTimestamp == nil {
			o.seen.Route = route
			return nil
		}
	}
	return nil
}

func labelled(obj client.Object, want map[string]string) bool {
	have := obj.GetLabels()
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}

// governance asks whether somebody may use the model. Only what works counts.
func (o *observer) governance(ctx context.Context) error {
	me := client.ObjectKeyFromObject(o.model)
	subs, err := o.subscriptions(ctx, me)
	if err != nil {
		return err
	}
	for i := range subs {
		o.seen.SubscriptionNamed = true
		o.seen.Subscribed = o.seen.Subscribed || works(&subs[i], me)
	}
	list := &v1alpha1.MaaSAuthPolicyList{}
	if err := o.List(ctx, list, engine.Indexed(me.String())); err != nil {
		return err
	}
	for _, p := range list.Items {
		_, tenants, err := o.tenants.Of(ctx, o.Reader, p.Namespace)
		if err != nil {
			return err
		}
		if !tenants || p.DeletionTimestamp != nil {
			continue
		}
		o.seen.PolicyNamed = true
		o.seen.Permitted = o.seen.Permitted || p.Status.Phase == v1alpha1.PhaseActive || p.Status.Phase == v1alpha1.PhaseDegraded
	}
	return nil
}

// subscriptions are those of tenants that name a model and are not about to go.
func (o *observer) subscriptions(ctx context.Context, model types.NamespacedName) ([]v1alpha1.MaaSSubscription, error) {
	list := &v1alpha1.MaaSSubscriptionList{}
	if err := o.List(ctx, list, engine.Indexed(model.String())); err != nil {
		return nil, err
	}
	var out []v1alpha1.MaaSSubscription
	for _, s := range list.Items {
		_, tenants, err := o.tenants.Of(ctx, o.Reader, s.Namespace)
		if err != nil {
			return nil, err
		}
		if tenants && s.DeletionTimestamp == nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// works tells whether a subscription opens a model: all of it is in force, or at least the part about this model.
func works(s *v1alpha1.MaaSSubscription, model types.NamespacedName) bool {
	if s.Status.Phase == v1alpha1.PhaseActive {
		return true
	}
	return s.Status.Phase == v1alpha1.PhaseDegraded && slices.ContainsFunc(s.Status.TokenRateLimitStatuses, func(l v1alpha1.TokenRateLimitStatus) bool {
		return l.Model == model.Name && l.Namespace == model.Namespace && l.Ready
	})
}

// twins are other models that clients would mean by the same name, at the same gateway.
func (o *observer) twins(ctx context.Context) error {
	alias := cmp.Or(o.seen.Backend.Alias, o.model.Status.ResolvedModelAlias)
	if alias == "" || o.seen.Gateway == nil {
		return nil
	}
	list := &v1alpha1.MaaSModelRefList{}
	if err := o.List(ctx, list, engine.Indexed(byAlias(alias))); err != nil {
		return err
	}
	for _, other := range list.Items {
		s := other.Status
		elsewhere := s.HTTPRouteGatewayName != "" && (s.HTTPRouteGatewayName != o.seen.Gateway.Name || s.HTTPRouteGatewayNamespace != o.seen.Gateway.Namespace)
		if other.UID == o.model.UID && other.Name == o.model.Name && other.Namespace == o.model.Namespace || other.DeletionTimestamp != nil || elsewhere {
			continue
		}
		o.seen.Twins = append(o.seen.Twins, other.Namespace+"/"+other.Name)
	}
	slices.Sort(o.seen.Twins)
	return nil
}

// group finds the models that share the route, and what subscriptions allow on them.
func (o *observer) group(ctx context.Context) error {
	if o.seen.Route == nil {
		return nil
	}
	o.sharing = []v1alpha1.MaaSModelRef{*o.model}
	for _, value := range []string{byBackend(o.model.Namespace, o.model.Spec.ModelRef), byRoute(o.seen.Route.Namespace, o.seen.Route.Name)} {
		list := &v1alpha1.MaaSModelRefList{}
		if err := o.List(ctx, list, engine.Indexed(value)); err != nil {
			return err
		}
		o.sharing = append(o.sharing, list.Items...)
	}
	o.sharing = slices.DeleteFunc(o.sharing, func(m v1alpha1.MaaSModelRef) bool { return m.DeletionTimestamp != nil })
	slices.SortFunc(o.sharing, func(a, b v1alpha1.MaaSModelRef) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	o.sharing = slices.CompactFunc(o.sharing, func(a, b v1alpha1.MaaSModelRef) bool { return a.Name == b.Name })
	if len(o.sharing) == 0 {
		return nil
	}
	o.seen.Leader = o.sharing[0].Name
	if o.seen.Leader != o.model.Name {
		return nil
	}
	for i := range o.sharing {
		if err := o.grants(ctx, client.ObjectKeyFromObject(&o.sharing[i])); err != nil {
			return err
		}
	}
	return nil
}

// grants are what subscriptions allow on a model. One whose limits cannot hold, or whose tenant does not reach the route, allows nothing.
func (o *observer) grants(ctx context.Context, model types.NamespacedName) error {
	subs, err := o.subscriptions(ctx, model)
	if err != nil {
		return err
	}
	for i := range subs {
		s := &subs[i]
		rates := limits.On(s, model)
		tenant, _, err := o.tenants.Of(ctx, o.Reader, s.Namespace)
		if err != nil {
			return err
		}
		if limits.Check(rates) == "" && routes.HangsOn(o.seen.Route, tenant.Gateway) {
			o.seen.Grants = append(o.seen.Grants, kuadrant.Grant{Namespace: s.Namespace, Name: s.Name, ModelNamespace: model.Namespace, Model: model.Name, Rates: rates})
		}
	}
	return nil
}

// policies finds those of others for the route, and whether ours was left to a user.
func (o *observer) policies(ctx context.Context) error {
	if o.seen.Route == nil || o.seen.Enforcement.Mode != tenancy.Kuadrant {
		return nil
	}
	list := kuadrant.List(kuadrant.TokenRateLimitPolicy)
	on := kuadrant.Target{Kind: "HTTPRoute", Namespace: o.seen.Route.Namespace, Name: o.seen.Route.Name}
	if err := o.List(ctx, list, engine.Indexed(on.String())); err != nil {
		return absent(err)
	}
	for i := range list.Items {
		policy := &list.Items[i]
		switch {
		case !kuadrant.Ours(policy):
			o.seen.Foreign = append(o.seen.Foreign, policy.GetName())
		case policy.GetName() == naming.RateLimitPolicy(o.model.Name):
			o.seen.Kept = kuadrant.Left(policy)
		}
	}
	slices.Sort(o.seen.Foreign)
	return nil
}
