// SPDX-License-Identifier: Apache-2.0

package modelrefs

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1alpha2"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// Backend is the object behind a model.
type Backend struct {
	// Unsupported says that the kind is not known, and NoAPI that the cluster does not serve it.
	Unsupported, NoAPI bool
	Exists, Ready      bool
	// ByRoute says that the model is ready when its route is.
	ByRoute bool
	// Message is what the object says of itself while it is not ready.
	Message string
	// Alias is the name by which clients ask for the model.
	Alias string
	// RouteName or RouteLabels find the route that leads there; neither while that is not known yet.
	RouteName   string
	RouteLabels map[string]string
	// Addresses at which the object says that it is reached, by their names.
	Addresses []Address
	// Path is below which the model is reached at a host.
	Path string
}

// Address is one of them.
type Address struct{ Name, URL string }

// alias is the name of a model that runs in the cluster.
func alias(namespace, name string) string { return "publishers/" + namespace + "/models/" + name }

// backend looks at the object behind the model.
func (o *observer) backend(ctx context.Context) error {
	ref := o.model.Spec.ModelRef
	key := types.NamespacedName{Namespace: o.model.Namespace, Name: ref.Name}
	var err error
	switch ref.Kind {
	case v1alpha1.LLMInferenceServiceModel:
		err = o.llm(ctx, key)
	case v1alpha1.ExternalModelModel:
		return o.external(ctx, key)
	case v1alpha1.InferenceServiceModel:
		err = o.service(ctx, key)
	default:
		o.seen.Backend.Unsupported = true
	}
	o.seen.Backend.NoAPI = meta.IsNoMatchError(err)
	return absent(err)
}

func (o *observer) llm(ctx context.Context, key types.NamespacedName) error {
	b := &o.seen.Backend
	b.Path = "/" + key.Namespace + "/" + key.Name
	b.RouteLabels = map[string]string{
		"app.kubernetes.io/name": key.Name, "app.kubernetes.io/component": "llminferenceservice-router", "app.kubernetes.io/part-of": "llminferenceservice",
	}
	s := &v1alpha2.LLMInferenceService{}
	if err := o.Get(ctx, key, s); err != nil {
		return err
	}
	b.Exists = true
	b.Ready, b.Message = ready(s.Status.Conditions)
	for _, a := range s.Status.Addresses {
		b.Addresses = append(b.Addresses, Address{Name: ptr.Deref(a.Name, ""), URL: ptr.Deref(a.URL, "")})
		if b.Alias == "" && len(a.Models) > 0 {
			b.Alias = a.Models[0].Name
		}
	}
	return nil
}

func (o *observer) service(ctx context.Context, key types.NamespacedName) error {
	b := &o.seen.Backend
	b.RouteName = key.Name
	s := &v1beta1.InferenceService{}
	if err := o.Get(ctx, key, s); err != nil {
		return err
	}
	b.Exists, b.Alias = true, alias(key.Namespace, key.Name)
	b.Ready, b.Message = ready(s.Status.Conditions)
	if s.Status.URL != nil {
		b.Addresses = []Address{{URL: *s.Status.URL}}
	}
	return nil
}

// external looks for a model of both groups; that of the former group only where the other has none of the name.
func (o *observer) external(ctx context.Context, key types.NamespacedName) error {
	b := &o.seen.Backend
	b.ByRoute = true
	now := &inferencev1alpha1.ExternalModel{}
	err := o.Get(ctx, key, now)
	if err == nil {
		b.Exists, b.Alias, b.RouteName = true, cmp.Or(now.Spec.ModelName, key.Name), now.Status.HTTPRouteName
		b.Message = complaint(now.Status.Conditions)
		return nil
	}
	if absent(err) != nil {
		return err
	}
	former := &v1alpha1.ExternalModel{}
	if err := o.Get(ctx, key, former); err != nil {
		return absent(err)
	}
	b.Exists, b.Alias, b.RouteName = true, key.Name, naming.FormerModel(key.Name)
	b.Message = complaint(former.Status.Conditions)
	return nil
}

// complaint is what an object says of itself while it does not work; empty if it says nothing of the kind.
func complaint(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		return cmp.Or(strings.TrimRight(strings.Join(strings.Fields(c.Message), " "), "."), c.Reason)
	}
	return ""
}

// ready reads whether an object says that it is, and else why not.
func ready(conditions []v1beta1.Condition) (bool, string) {
	for _, c := range conditions {
		if c.Type == ConditionReady {
			return c.Status == corev1.ConditionTrue, strings.TrimRight(strings.Join(strings.Fields(c.Message), " "), ".")
		}
	}
	return false, ""
}

// preferred are the names of addresses that lead through a gateway, the best first.
var preferred = []string{"gateway-external-model-routing", "gateway-external"}

// endpoint is where clients reach the model: where the object says, as far as the route answers there, or else at a host of
// the route or of the gateway.
func endpoint(seen *Seen) string {
	var hosts []string
	for _, h := range seen.Route.Spec.Hostnames {
		hosts = append(hosts, string(h))
	}
	var fitting []Address
	for _, a := range seen.Backend.Addresses {
		if u, err := url.Parse(a.URL); err == nil && u.Host != "" && leadsTo(hosts, u.Hostname()) {
			fitting = append(fitting, a)
		}
	}
	slices.SortStableFunc(fitting, func(a, b Address) int { return cmp.Or(preference(a)-preference(b), plain(a)-plain(b)) })
	if len(fitting) > 0 {
		return fitting[0].URL
	}
	for _, h := range hosts {
		if h != "" && h[0] != '*' {
			return seen.Entrance.at(h) + seen.Backend.Path
		}
	}
	if len(seen.Entrances) > 0 {
		return seen.Entrances[0].at(seen.Entrances[0].host) + seen.Backend.Path
	}
	return ""
}

// leadsTo tells whether a route with these hosts takes requests for one. A route without hosts takes all that come to the gateway,
// to which the name of a Service does not lead: what goes there is checked by nobody.
func leadsTo(hosts []string, host string) bool {
	if len(hosts) == 0 {
		return !strings.HasSuffix(host, ".svc") && !strings.Contains(host, ".svc.")
	}
	return slices.ContainsFunc(hosts, func(h string) bool { return covers(h, host) })
}

func preference(a Address) int {
	if i := slices.Index(preferred, a.Name); i >= 0 {
		return i
	}
	return len(preferred)
}

// plain puts addresses without TLS last.
func plain(a Address) int {
	if strings.HasPrefix(a.URL, "https://") {
		return 0
	}
	return 1
}

// covers tells whether a host of a route, which may begin with a star, means a host.
func covers(pattern, host string) bool {
	if rest, many := strings.CutPrefix(pattern, "*"); many {
		return strings.HasSuffix(host, rest) && len(host) > len(rest)
	}
	return strings.EqualFold(pattern, host)
}
