// SPDX-License-Identifier: Apache-2.0

package external

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// models is the kind ExternalModel.
type models struct{ *Settings }

type modelSeen struct {
	Gateway   gateways.Seen // that of the platform, by which providers go
	Doors     doors
	Providers map[string]*v1alpha1.ExternalProvider
	Secrets   map[string]secretSeen // with which the model itself signs in, where it does not as its provider says
	Rival     *claim                // has the name of the model
	Routes    map[string]*unstructured.Unstructured
	NoRoutes  bool // the Gateway API is missing
}

// Observe implements engine.Kind.
func (m models) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.ExternalModel) (modelSeen, error) {
	seen := modelSeen{Providers: map[string]*v1alpha1.ExternalProvider{}, Secrets: map[string]secretSeen{}, NoRoutes: !r.HasAPI(gateways.HTTPRoute.GroupKind())}
	for _, ref := range obj.Spec.ExternalProviderRefs {
		p := &v1alpha1.ExternalProvider{}
		err := r.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: ref.Ref.Name}, p)
		if client.IgnoreNotFound(err) != nil {
			return seen, err
		}
		if err == nil {
			seen.Providers[ref.Ref.Name] = p
		}
	}
	var err error
	for _, name := range ownSecrets(obj) {
		if seen.Secrets[name], err = readSecret(ctx, r, client.ObjectKey{Namespace: obj.Namespace, Name: name}); err != nil {
			return seen, err
		}
	}
	if seen.Gateway, err = gateways.Observe(ctx, r, m.Gateway); err != nil {
		return seen, err
	}
	if seen.Doors, err = m.doorsOf(ctx, r, client.ObjectKeyFromObject(obj)); err != nil {
		return seen, err
	}
	if seen.Rival, err = m.rivalOf(ctx, r, obj); err != nil {
		return seen, err
	}
	seen.Routes, err = liveRoutes(ctx, r, obj.Namespace, namesOf(obj.Name, len(obj.Spec.ExternalProviderRefs)))
	return seen, err
}

// namesOf are those that the routes of a model may have.
func namesOf(name string, providers int) []string {
	out := []string{name}
	for n := 2; n <= 1+providers/mostRules; n++ {
		out = append(out, fmt.Sprintf("%s-%d", name, n))
	}
	return out
}

func liveRoutes(ctx context.Context, r engine.Reader, namespace string, names []string) (map[string]*unstructured.Unstructured, error) {
	out := map[string]*unstructured.Unstructured{}
	if !r.HasAPI(gateways.HTTPRoute.GroupKind()) {
		return out, nil
	}
	for _, name := range names {
		u := gateways.Foreign(gateways.HTTPRoute)
		u.SetNamespace(namespace)
		u.SetName(name)
		err := r.Child(ctx, u)
		if gateways.Absent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[name] = u
	}
	return out, nil
}

// Plan implements engine.Kind.
func (m models) Plan(obj *v1alpha1.ExternalModel, seen modelSeen) engine.Plan {
	used := inUse(obj)
	if p := m.invalid(obj, used, seen); p != nil {
		// A route that leads elsewhere than asked for does not stay.
		return engine.Plan{Problem: p, Status: &v1alpha1.ExternalModelStatus{Phase: v1alpha1.PhaseFailed}}
	}
	if p := missing(obj, used, seen); p != nil {
		return engine.Plan{KeepChildren: keeps(seen.Routes, seen.Doors.Open), Problem: p, Status: &v1alpha1.ExternalModelStatus{Phase: v1alpha1.PhasePending, HTTPRouteName: written(obj.Name, seen.Routes)}}
	}
	wanted := routes(modelMeta(obj), seen.Doors.Open, m.rules(obj, used, seen))
	plan := engine.Plan{}
	for _, w := range wanted {
		plan.Children = append(plan.Children, engine.Child{Object: w})
	}
	status := &v1alpha1.ExternalModelStatus{HTTPRouteName: obj.Name, Phase: v1alpha1.PhaseReady}
	if p := cmp.Or(notReady(used, seen), withoutKey(obj, seen)); p != nil {
		plan.Problem, status.Phase = p, v1alpha1.PhasePending
	} else if a := answered(wanted, seen.Routes, seen.Doors.Open); a != nil {
		status.Phase = v1alpha1.PhasePending
		plan.Problem = routeProblem(a)
		if a.Refused {
			status.Phase = v1alpha1.PhaseFailed
		}
	} else {
		status.Conditions = []metav1.Condition{ready(fmt.Sprintf("Requests for the model %q are led to %s.", modelName(obj), strings.Join(used, ", ")))}
	}
	plan.Status = status
	return plan
}

// withoutKey is a Secret of the model itself from which no key can be taken.
func withoutKey(obj *v1alpha1.ExternalModel, seen modelSeen) *engine.Problem {
	for _, name := range ownSecrets(obj) {
		if p := seen.Secrets[name].problem(obj.Namespace, name); p != nil {
			return p
		}
	}
	return nil
}

// ownSecrets are the names of Secrets with which the model signs in otherwise than its providers say.
func ownSecrets(obj *v1alpha1.ExternalModel) []string {
	var out []string
	for _, ref := range obj.Spec.ExternalProviderRefs {
		if ref.Auth != nil && ptr.Deref(ref.Weight, 1) > 0 && !slices.Contains(out, ref.Auth.SecretRef.Name) {
			out = append(out, ref.Auth.SecretRef.Name)
		}
	}
	return out
}

// notReady is a provider that does not work, or has not said yet that it does.
func notReady(used []string, seen modelSeen) *engine.Problem {
	for _, name := range used {
		switch c := meta.FindStatusCondition(seen.Providers[name].Status.Conditions, "Ready"); {
		case c == nil:
			return engine.WaitFor("ProviderNotReady", "ExternalProvider %s has not said yet whether it can be asked. Look at its status if this stays.", name)
		case c.Status != metav1.ConditionTrue:
			return engine.WaitFor("ProviderNotReady", "ExternalProvider %s cannot be asked: %s", name, c.Message)
		}
	}
	return nil
}

// routeProblem is a route that was not taken.
func routeProblem(a *gateways.Answer) *engine.Problem {
	if a.Refused {
		return engine.WaitFor("RouteRefused", "%s", a.Message)
	}
	return engine.WaitFor("RoutePending", "%s", a.Message)
}

// written is the name of the route if there is one.
func written(name string, live map[string]*unstructured.Unstructured) string {
	if live[name] == nil {
		return ""
	}
	return name
}

func modelMeta(obj *v1alpha1.ExternalModel) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name, Labels: map[string]string{
		"app.kubernetes.io/managed-by": "modelplane", "app.kubernetes.io/component": "external-model"}}
}

// inUse are the names of the providers that get requests, each once, in their order.
func inUse(obj *v1alpha1.ExternalModel) []string {
	var out []string
	for _, ref := range obj.Spec.ExternalProviderRefs {
		if ptr.Deref(ref.Weight, 1) > 0 && !slices.Contains(out, ref.Ref.Name) {
			out = append(out, ref.Ref.Name)
		}
	}
	return out
}

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// formats are the APIs of providers that the payload processor speaks.
var formats = []string{"openai-chat", "openai-completions", "openai-embeddings", "openai-responses", "messages", "vertex-messages"}

// invalid is what only a change of the model, or of a provider, mends.
func (models) invalid(obj *v1alpha1.ExternalModel, used []string, seen modelSeen) *engine.Problem {
	if len(used) == 0 {
		return engine.MustChange("NoProvider", "Every provider of the model has the weight 0. Give one of spec.externalProviderRefs another weight.")
	}
	if p := taken(obj, seen.Rival); p != nil {
		return p
	}
	for i, ref := range obj.Spec.ExternalProviderRefs {
		if !slices.Contains(formats, ref.APIFormat) {
			return engine.MustChange("ProviderUnsupported", "The payload processor does not speak the API %q in spec.externalProviderRefs[%d].apiFormat. It speaks %s.", shortened(ref.APIFormat), i, strings.Join(formats, ", "))
		}
		if ref.Auth != nil {
			if p := signsIn(*ref.Auth); p != nil {
				return p
			}
		}
		provider := seen.Providers[ref.Ref.Name]
		if provider == nil {
			continue
		}
		config := maps.Clone(provider.Spec.Config)
		if config == nil {
			config = map[string]string{}
		}
		maps.Copy(config, ref.Config)
		for _, found := range placeholder.FindAllStringSubmatch(ref.Path, -1) {
			if config[found[1]] == "" {
				return engine.MustChange("PlaceholderUnknown", "The path in spec.externalProviderRefs[%d] has the placeholder {%s}, which neither its config nor that of ExternalProvider %s has. Add the key to one of them.",
					i, found[1], ref.Ref.Name)
			}
		}
	}
	return nil
}

// missing is what must come first.
func missing(obj *v1alpha1.ExternalModel, used []string, seen modelSeen) *engine.Problem {
	var absent []string
	for _, name := range used {
		if seen.Providers[name] == nil {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		return engine.WaitFor("ProviderMissing", "ExternalProvider %s does not exist in namespace %s. Create it.", strings.Join(absent, ", "), obj.Namespace)
	}
	for _, name := range used {
		if _, p := endpointOf(seen.Providers[name].Spec.Endpoint, seen.Providers[name].Annotations); p != nil {
			return engine.WaitFor("ProviderInvalid", "ExternalProvider %s cannot be used: %s", name, p.Message)
		}
	}
	return noDoor(seen.NoRoutes, seen.Doors)
}

// noDoor is the problem of a model that no gateway leads to.
func noDoor(noRoutes bool, through doors) *engine.Problem {
	if noRoutes {
		return engine.WaitFor("GatewayAPIMissing", "The cluster does not serve HTTPRoutes of the Gateway API, by which the model would be reached. Install the Gateway API; nothing needs a restart.")
	}
	if len(through.Open) == 0 {
		return engine.WaitFor("TenantMissing", "The model has no gateway: AITenant %s does not exist, is being deleted, or has not got its gateway yet. Create it, or name another one in spec.tenantRef of the MaaSModelRef.",
			strings.Join(through.Shut, ", "))
	}
	for _, d := range through.Open {
		if !d.Exists {
			return engine.WaitFor("GatewayMissing", "Gateway %s, through which the model would be reached, does not exist. Create it.", d.Key)
		}
	}
	return nil
}

// rules lead each provider's requests to it, as the payload processor chose, and what it said nothing of to the first one.
// The first rules of a gateway are the most exact ones, so that they stand in that order.
func (models) rules(obj *v1alpha1.ExternalModel, used []string, seen modelSeen) []any {
	name := modelName(obj)
	var out []any
	for _, provider := range used {
		b := backendOf(seen.Providers[provider], seen.Gateway.Flavour)
		out = append(out, rule(b, byHeaders(byPath(obj.Namespace, obj.Name), HeaderProvider, provider), byHeaders(nil, HeaderProvider, provider, HeaderModel, name)))
	}
	first := backendOf(seen.Providers[used[0]], seen.Gateway.Flavour)
	return slices.Insert(out, min(len(out), mostRules-1), any(rule(first, byPath(obj.Namespace, obj.Name), byHeaders(nil, HeaderModel, name))))
}

func backendOf(p *v1alpha1.ExternalProvider, flavour gateways.Flavour) backend {
	at, _ := endpointOf(p.Spec.Endpoint, p.Annotations)
	return backend{flavour: cmp.Or(flavour, gateways.Other), endpoint: at, meta: providerMeta(p)}
}
