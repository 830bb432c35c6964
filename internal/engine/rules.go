// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Rules are the permissions that the engine and the given controllers need, no
// more: the chart's role is written from them.
func Rules(scheme *runtime.Scheme, controllers ...Controller) ([]rbacv1.PolicyRule, error) {
	need := grants{}
	need.grant(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "create", "patch")
	need.grant(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, "list", "watch")
	need.grant(schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}, "list", "watch")
	for _, c := range controllers {
		if err := need.controller(scheme, c); err != nil {
			return nil, err
		}
	}
	return need.rules(), nil
}

// HomeRules are the permissions that controllers with a HomeName need in the
// manager's own namespace beyond Rules: on that one object each.
func HomeRules(scheme *runtime.Scheme, controllers ...Controller) ([]rbacv1.PolicyRule, error) {
	var out []rbacv1.PolicyRule
	for _, c := range controllers {
		if c.Spec().HomeName == "" {
			continue
		}
		gvk, err := apiutil.GVKForObject(c.Object(), scheme)
		if err != nil {
			return nil, err
		}
		need := grants{}
		need.objects(resourceOf(gvk, c.Spec().Resource), c)
		for _, rule := range need.rules() {
			rule.ResourceNames = []string{c.Spec().HomeName}
			out = append(out, rule)
		}
	}
	return out, nil
}

// grants collects verbs by resource.
type grants map[schema.GroupResource]map[string]bool

func (g grants) grant(r schema.GroupResource, verbs ...string) {
	if g[r] == nil {
		g[r] = map[string]bool{}
	}
	for _, v := range verbs {
		g[r][v] = true
	}
}

func (g grants) controller(scheme *runtime.Scheme, c Controller) error {
	gvk, err := apiutil.GVKForObject(c.Object(), scheme)
	if err != nil {
		return err
	}
	if c.Spec().HomeName == "" {
		g.objects(resourceOf(gvk, c.Spec().Resource), c)
	}
	if c.Spec().FarReaching { // to be told when a namespace goes and comes back
		g.grant(schema.GroupResource{Resource: "namespaces"}, "list", "watch")
	}
	for _, k := range c.Spec().Children {
		gvk, err := apiutil.GVKForObject(k.Object, scheme)
		if err != nil {
			return err
		}
		g.grant(resourceOf(gvk, k.Resource), "get", "list", "watch", "create", "patch", "delete")
		if k.Restricted {
			g.grant(sub(resourceOf(gvk, k.Resource), "restricted"), "create")
		}
	}
	for _, in := range c.Spec().Inputs {
		gvk, err := apiutil.GVKForObject(in.Object, scheme)
		if err != nil {
			return err
		}
		g.grant(resourceOf(gvk, in.Resource), "list", "watch")
		if in.MetadataOnly { // its content is read on demand
			g.grant(resourceOf(gvk, in.Resource), "get")
		}
	}
	return nil
}

// objects are what a controller does with the objects that it looks after.
func (g grants) objects(own schema.GroupResource, c Controller) {
	g.grant(own, "list", "watch")
	if !c.Spec().NoStatus {
		g.grant(sub(own, "status"), "patch")
	}
	if c.Spec().HomeName == "" {
		// Children block their owner's deletion, which needs this where
		// OwnerReferencesPermissionEnforcement is on.
		g.grant(sub(own, "finalizers"), "update")
	}
	if c.Finalizes() || len(c.Spec().OldFinalizers) > 0 || c.Spec().FarReaching || c.Spec().RemovesAnnotations || c.Spec().SetsLabels {
		g.grant(own, "patch")
	}
	if c.Spec().FarReaching { // before an orphan is removed
		g.grant(own, "get")
	}
	if c.Spec().DeletesSelf {
		g.grant(own, "delete")
	}
}

func resourceOf(gvk schema.GroupVersionKind, plural string) schema.GroupResource {
	if plural != "" {
		return schema.GroupResource{Group: gvk.Group, Resource: plural}
	}
	guess, _ := meta.UnsafeGuessKindToResource(gvk)
	return guess.GroupResource()
}

func sub(r schema.GroupResource, name string) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource + "/" + name}
}

// rules groups resources of the same API group with the same verbs, in a
// stable order.
func (g grants) rules() []rbacv1.PolicyRule {
	merged := map[[2]string][]string{} // group and verbs, resources
	for r, verbs := range g {
		names := make([]string, 0, len(verbs))
		for v := range verbs {
			names = append(names, v)
		}
		slices.Sort(names)
		key := [2]string{r.Group, strings.Join(names, ",")}
		merged[key] = append(merged[key], r.Resource)
	}
	out := make([]rbacv1.PolicyRule, 0, len(merged))
	for key, resources := range merged {
		slices.Sort(resources)
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{key[0]}, Resources: resources, Verbs: strings.Split(key[1], ",")})
	}
	slices.SortFunc(out, func(a, b rbacv1.PolicyRule) int {
		if c := strings.Compare(a.APIGroups[0], b.APIGroups[0]); c != 0 {
			return c
		}
		return strings.Compare(strings.Join(a.Resources, ","), strings.Join(b.Resources, ","))
	})
	return out
}
