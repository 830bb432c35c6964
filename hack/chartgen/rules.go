// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-tools/pkg/genall"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/controller-tools/pkg/rbac"
)

// marked reads the RBAC markers of a package: what its code needs everywhere and what it needs in its own namespace.
func marked(pkg string) (everywhere, here []rbacv1.PolicyRule, err error) {
	roots, err := loader.LoadRoots(pkg)
	if err != nil {
		return nil, nil, fmt.Errorf("load %s: %w", pkg, err)
	}
	registry := &markers.Registry{}
	if err := (rbac.Generator{}).RegisterMarkers(registry); err != nil {
		return nil, nil, err
	}
	roles, err := rbac.GenerateRoles(&genall.GenerationContext{
		Collector: &markers.Collector{Registry: registry}, Roots: roots,
	}, "any")
	if err != nil {
		return nil, nil, fmt.Errorf("read the RBAC markers of %s: %w", pkg, err)
	}
	for _, role := range roles {
		switch r := role.(type) {
		case rbacv1.ClusterRole:
			everywhere = append(everywhere, r.Rules...)
		case rbacv1.Role:
			here = append(here, r.Rules...)
		}
	}
	if len(everywhere)+len(here) == 0 {
		return nil, nil, fmt.Errorf("%s has no +kubebuilder:rbac marker", pkg)
	}
	return everywhere, here, nil
}

// grant is the smallest permission that RBAC knows.
type grant struct{ group, resource, name, verb string }

// grants takes rules apart, so that what two rooms ask for is granted once.
type grants map[grant]bool

func grantsOf(rules ...rbacv1.PolicyRule) grants {
	out := grants{}
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						out[grant{group, resource, name, verb}] = true
					}
				}
			}
		}
	}
	return out
}

// split moves what matches into a set of its own.
func (g grants) split(match func(grant) bool) (matched, rest grants) {
	matched, rest = grants{}, grants{}
	for one := range g {
		if match(one) {
			matched[one] = true
		} else {
			rest[one] = true
		}
	}
	return matched, rest
}

// rules puts grants together again: resources of one group with the same verbs and names share a rule.
func (g grants) rules() []rbacv1.PolicyRule {
	_, needed := g.split(func(one grant) bool {
		return one.name != "" && g[grant{one.group, one.resource, "", one.verb}] // granted for every name anyway
	})
	all := slices.Collect(maps.Keys(needed))
	all = gather(all, func(one *grant) *string { return &one.verb })
	all = gather(all, func(one *grant) *string { return &one.name })
	all = gather(all, func(one *grant) *string { return &one.resource })
	out := make([]rbacv1.PolicyRule, 0, len(all))
	for _, one := range all {
		rule := rbacv1.PolicyRule{
			APIGroups: []string{one.group}, Resources: strings.Split(one.resource, ","), Verbs: strings.Split(one.verb, ","),
		}
		if one.name != "" {
			rule.ResourceNames = strings.Split(one.name, ",")
		}
		out = append(out, rule)
	}
	return out
}

// gather joins the values of one field where all other fields are the same.
func gather(in []grant, field func(*grant) *string) []grant {
	found := map[grant][]string{}
	for _, one := range in {
		value := *field(&one)
		*field(&one) = ""
		found[one] = append(found[one], value)
	}
	out := make([]grant, 0, len(found))
	for one, values := range found {
		slices.Sort(values)
		*field(&one) = strings.Join(values, ",")
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b grant) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.resource, b.resource),
			strings.Compare(a.name, b.name), strings.Compare(a.verb, b.verb))
	})
	return out
}
