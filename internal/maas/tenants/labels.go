// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// selectorLabels are the labels that a namespace must have for its routes to be taken by a gateway.
func selectorLabels(seen gateways.Seen) map[string]string {
	out := map[string]string{}
	for _, item := range seen.Listeners {
		listener, _ := item.(map[string]any)
		allowed, _ := listener["allowedRoutes"].(map[string]any)
		namespaces, _ := allowed["namespaces"].(map[string]any)
		if from, _ := namespaces["from"].(string); from != "Selector" {
			continue
		}
		selector, _ := namespaces["selector"].(map[string]any)
		match, _ := selector["matchLabels"].(map[string]any)
		for key, value := range match {
			if text, ok := value.(string); ok {
				out[key] = text
			}
		}
	}
	return out
}

// wanted is one label of the namespace of the services, with the tenant whose gateway asks for it.
type wanted struct {
	Value  string `json:"value"`
	Tenant string `json:"tenant"`
}

// disagreement is a label that the gateways of two tenants want to be different.
type disagreement struct {
	Label, Mine, Theirs, Tenant string
}

// agreed are the labels that the gateways of all tenants ask for. Where two disagree, the default tenant has its way, and then
// the first by name.
func (p *Platform) agreed(ctx context.Context, r engine.Reader) (map[string]wanted, error) {
	list := &v1alpha1.AITenantList{}
	if err := r.List(ctx, list, client.InNamespace(p.TenantNamespace)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.AITenant) int {
		return cmp.Or(rank(a.Name)-rank(b.Name), cmp.Compare(a.Name, b.Name))
	})
	out := map[string]wanted{}
	for i := range list.Items {
		t := &list.Items[i]
		if t.DeletionTimestamp != nil {
			continue
		}
		seen, err := gateways.Observe(ctx, r, p.gatewayKey(t))
		if err != nil {
			return nil, err
		}
		for key, value := range selectorLabels(seen) {
			if _, taken := out[key]; !taken {
				out[key] = wanted{Value: value, Tenant: t.Name}
			}
		}
	}
	return out, nil
}

func rank(tenant string) int {
	if tenant == naming.DefaultTenant {
		return 0
	}
	return 1
}

// disagreement finds a label that this tenant's gateway does not get.
func (p *Platform) disagreement(ctx context.Context, r engine.Reader, obj *v1alpha1.AITenant, seen gateways.Seen) (*disagreement, error) {
	mine := selectorLabels(seen)
	if len(mine) == 0 {
		return nil, nil
	}
	all, err := p.agreed(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(mine)) {
		if has, found := all[key]; found && has.Value != mine[key] && has.Tenant != obj.Name {
			return &disagreement{Label: key, Mine: mine[key], Theirs: has.Value, Tenant: has.Tenant}, nil
		}
	}
	return nil, nil
}

// ownership says in an annotation which tenant a label is there for.
func ownership(all map[string]wanted) string {
	raw, err := json.Marshal(all)
	if err != nil {
		return "{}" // texts always encode
	}
	return string(raw)
}
