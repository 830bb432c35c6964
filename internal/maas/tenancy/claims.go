// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
)

// Claim says that a tenant has a gateway to itself, and that requests there are checked for it. A tenant that moves to another
// gateway has two until no model is reached through the former one.
type Claim struct {
	Gateway types.NamespacedName
	Tenant  string
	UID     types.UID
	Since   metav1.Time
}

// Claims are those of all tenants, the oldest first.
type Claims []Claim

// ClaimInput is what ObserveClaims reads besides AITenants.
func ClaimInput() engine.Input { return engine.Input{Object: &corev1.ConfigMap{}, MetadataOnly: true} }

// ClaimName is the name of what a gateway is claimed with: of two tenants that ask for one gateway, the API server lets only one
// have it.
func ClaimName(gateway types.NamespacedName) string {
	const digits = 32
	sum := sha256.Sum256([]byte(gateway.Namespace + "/" + gateway.Name))
	return "gateway-claim-" + hex.EncodeToString(sum[:])[:digits]
}

// ObserveClaims reads the claims of tenants. What one that is gone has left belongs to nobody, and is not among them.
func ObserveClaims(ctx context.Context, r engine.Reader, s settings.Settings) (Claims, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := r.List(ctx, list, client.InNamespace(s.TenantNamespace), client.HasLabels{naming.LabelClaim}, engine.MatchingFunc(isClaim)); err != nil {
		return nil, err
	}
	var out Claims
	for i := range list.Items {
		head := &list.Items[i]
		c := Claim{Tenant: ClaimedBy(head), UID: head.UID, Since: head.CreationTimestamp}
		err := r.Get(ctx, client.ObjectKey{Namespace: s.TenantNamespace, Name: c.Tenant}, &v1alpha1.AITenant{})
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err != nil || head.DeletionTimestamp != nil {
			continue
		}
		name := head.Labels[naming.LabelGateway]
		if name == "" { // of an earlier controller
			whole := &corev1.ConfigMap{}
			if err := r.GetUncached(ctx, client.ObjectKeyFromObject(head), whole); err != nil {
				if client.IgnoreNotFound(err) == nil {
					continue
				}
				return nil, err
			}
			name = whole.Data["gatewayName"]
		}
		c.Gateway = types.NamespacedName{Namespace: s.GatewayNamespace, Name: name}
		if head.Name == ClaimName(c.Gateway) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Claim) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Gateway.Name, b.Gateway.Name))
	})
	return out, nil
}

func isClaim(obj client.Object) bool { return obj.GetLabels()[naming.LabelClaim] != "" }

// ClaimedBy is the tenant that a claim was made for, whether or not there is one.
func ClaimedBy(claim client.Object) string {
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "AITenant" {
		return owner.Name
	}
	return claim.GetLabels()[naming.LabelTenantName]
}

// Of are the claims of one tenant.
func (c Claims) Of(tenant string) Claims {
	return slices.DeleteFunc(slices.Clone(c), func(c Claim) bool { return c.Tenant != tenant })
}

// On is the claim on a gateway.
func (c Claims) On(gateway types.NamespacedName) (Claim, bool) {
	i := slices.IndexFunc(c, func(c Claim) bool { return c.Gateway == gateway })
	if i < 0 {
		return Claim{}, false
	}
	return c[i], true
}

// Suffix is behind the names of what a tenant has at a gateway, if it has something of the name at another one, too. The gateway
// that it has had longest goes by the names that are known.
func (c Claims) Suffix(gateway types.NamespacedName, tenant string) string {
	if own := c.Of(tenant); len(own) > 1 && own[0].Gateway != gateway {
		return "-" + naming.Digest(gateway.Name)
	}
	return ""
}

// Wanted is the gateway that a tenant asks for.
func Wanted(ai *v1alpha1.AITenant, s settings.Settings) types.NamespacedName {
	name := ai.Name
	if name == naming.DefaultTenant {
		name = s.GatewayName
	}
	if ai.Spec.Gateway != nil {
		name = cmp.Or(ai.Spec.Gateway.Name, name)
	}
	return types.NamespacedName{Namespace: s.GatewayNamespace, Name: name}
}

// Held is the gateway through which the models of a tenant are reached while it asks for another one; empty if it is none. There
// requests go on being checked until they are checked at the other, and no model is reached through it any more.
func (c Claims) Held(ai *v1alpha1.AITenant, s settings.Settings) types.NamespacedName {
	ref := ai.Status.GatewayRef
	if ref == nil || ref.Name == "" {
		return types.NamespacedName{}
	}
	held := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, s.GatewayNamespace), Name: ref.Name}
	if claim, found := c.On(held); !found || claim.Tenant != ai.Name || held == Wanted(ai, s) {
		return types.NamespacedName{}
	}
	return held
}
