// SPDX-License-Identifier: Apache-2.0

package kuadrant

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// Grant is what one subscription allows on one model.
type Grant struct {
	// Namespace and Name of the subscription.
	Namespace, Name string
	// ModelNamespace and Model name the MaaSModelRef.
	ModelNamespace, Model string
	// Rates all hold.
	Rates []v1alpha1.TokenRateLimit
}

// key is how the subscription is known at the gateway.
func (g Grant) key() string {
	return naming.SubscriptionKey(g.Namespace, g.Name, g.ModelNamespace, g.Model)
}

// Limits is everything that holds on one route.
type Limits struct {
	Namespace string
	// Model is the MaaSModelRef that the policy is named after, and Route what it is for.
	Model, Route string
	Grants       []Grant
}

// userCounter counts for each user on his own.
func userCounter() []any { return []any{map[string]any{"expression": "auth.identity.userid"}} }

// noListing leaves out requests that only ask which models there are.
const noListing = `!request.url_path.endsWith("/v1/models")`

// keyDenied is the limit for whoever has no subscription of the route: a policy of the route takes the place of that of the
// gateway, which would have denied it.
const keyDenied = "deny-without-subscription"

// Policy is one policy for a route, however many models and subscriptions share it.
func (l Limits) Policy() *unstructured.Unstructured {
	grants := slices.SortedFunc(slices.Values(l.Grants), func(a, b Grant) int { return cmp.Compare(a.key(), b.key()) })
	limits, names, selected := map[string]any{}, []string{}, []string{}
	for i, key := range keysOf(grants) {
		g := grants[i]
		limits[key] = map[string]any{
			"rates":    rates(g.Rates),
			"when":     when("auth.identity.selected_subscription_key == "+strconv.Quote(g.key()), noListing),
			"counters": userCounter(),
		}
		names, selected = append(names, g.Namespace+"/"+g.Name), append(selected, strconv.Quote(g.key()))
	}
	limits[keyDenied] = map[string]any{
		"rates":    []any{map[string]any{"limit": int64(0), "window": "1m"}},
		"when":     when("!(auth.identity.selected_subscription_key in ["+strings.Join(selected, ", ")+"])", noListing),
		"counters": userCounter(),
	}
	policy := object(TokenRateLimitPolicy, l.Namespace, naming.RateLimitPolicy(l.Model), map[string]string{
		naming.LabelModel: label(l.Model), naming.LabelModelNamespace: l.Namespace, naming.LabelManagedBy: naming.ManagedBy,
		naming.LabelPartOf: "maas-subscription", naming.LabelComponent: "token-rate-limit-policy",
	}, map[string]any{"targetRef": targetRef("HTTPRoute", l.Route), "limits": limits})
	slices.Sort(names)
	policy.SetAnnotations(map[string]string{naming.AnnotationSubscriptions: strings.Join(slices.Compact(names), ",")})
	return policy
}

// keysOf names limits as tools know them. Of two that would have the same name, as hyphens allow, both get one that nobody else has.
func keysOf(grants []Grant) []string {
	known := map[string]int{}
	for _, g := range grants {
		known[naming.LimitKey(g.Namespace, g.Name, g.Model)]++
	}
	out := make([]string, len(grants))
	for i, g := range grants {
		out[i] = naming.LimitKey(g.Namespace, g.Name, g.Model)
		if known[out[i]] > 1 {
			out[i] = naming.DistinctLimitKey(g.Namespace, g.Name, g.ModelNamespace, g.Model)
		}
	}
	return out
}

// rates are all that hold, each once, in a stable order.
func rates(of []v1alpha1.TokenRateLimit) []any {
	var out []any
	for i, rate := range of {
		if slices.Index(of, rate) == i {
			out = append(out, map[string]any{"limit": rate.Limit, "window": rate.Window})
		}
	}
	return out
}

// Lists tells whether a live policy limits a subscription, by whatever limits.
func Lists(policy *unstructured.Unstructured, namespace, name string) bool {
	return slices.Contains(strings.Split(policy.GetAnnotations()[naming.AnnotationSubscriptions], ","), namespace+"/"+name)
}

// Holds tells whether a live policy has exactly the limit of a grant.
func Holds(policy *unstructured.Unstructured, g Grant) bool {
	limits, _, _ := unstructured.NestedMap(policy.Object, "spec", "limits")
	for _, key := range []string{naming.LimitKey(g.Namespace, g.Name, g.Model), naming.DistinctLimitKey(g.Namespace, g.Name, g.ModelNamespace, g.Model)} {
		limit, _ := limits[key].(map[string]any)
		have, _ := limit["rates"].([]any)
		if want := rates(g.Rates); len(have) == len(want) && fmt.Sprint(have) == fmt.Sprint(want) && mentions(limit, g.key()) {
			return true
		}
	}
	return false
}

// mentions tells whether a limit is the one of a subscription.
func mentions(limit map[string]any, key string) bool {
	conditions, _ := limit["when"].([]any)
	return slices.ContainsFunc(conditions, func(item any) bool {
		c, _ := item.(map[string]any)
		predicate, _ := c["predicate"].(string)
		return strings.Contains(predicate, strconv.Quote(key))
	})
}

// open are the paths below which no tokens are used: those of the tenant's API, which routes lead nowhere else.
var open = append([]string{"/maas-api"}, naming.OfferedPaths()...)

// Deny is the policy that lets nobody have tokens at a gateway, where no route says otherwise.
func Deny(namespace, gateway, name string) *unstructured.Unstructured {
	var predicates []string
	for _, path := range open {
		predicates = append(predicates, "!(request.url_path == "+strconv.Quote(path)+" || request.url_path.startsWith("+strconv.Quote(path+"/")+"))")
	}
	return object(TokenRateLimitPolicy, namespace, name, map[string]string{
		naming.LabelManagedBy: naming.ManagedBy, naming.LabelPartOf: "maas-gateway-auth", naming.LabelComponent: "gateway-default-deny",
	}, map[string]any{
		"targetRef": targetRef("Gateway", gateway),
		"defaults": map[string]any{"limits": map[string]any{"deny-all-by-default": map[string]any{
			"rates":    []any{map[string]any{"limit": int64(0), "window": "1m"}},
			"when":     when(predicates...),
			"counters": userCounter(),
		}}},
	})
}

// label is a name as a label may have it.
func label(name string) string {
	const most = 63
	if len(name) <= most {
		return name
	}
	return name[:most-len("-12345678")] + "-" + naming.Digest(name)
}
