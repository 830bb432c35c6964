// SPDX-License-Identifier: Apache-2.0

// Package naming holds the names, labels and annotations by which the rooms of models as a service, and tools of others, know
// what belongs to what. It decides nothing and reads nothing.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// ManagedBy is the value of LabelManagedBy on everything that is generated.
const ManagedBy = "maas-controller"

// Labels of generated objects.
const (
	LabelManagedBy      = "app.kubernetes.io/managed-by"
	LabelPartOf         = "app.kubernetes.io/part-of"
	LabelComponent      = "app.kubernetes.io/component"
	LabelModel          = "maas.opendatahub.io/model"
	LabelModelNamespace = "maas.opendatahub.io/model-namespace"
)

// Labels and annotations of what belongs to a tenant.
const (
	LabelTenantName      = "maas.opendatahub.io/tenant-name"
	LabelTenantNamespace = "maas.opendatahub.io/tenant-namespace"
	LabelManagedByTenant = "maas.opendatahub.io/managed-by-aitenant"
	LabelGatewayAccess   = "maas.opendatahub.io/gateway-access"
	LabelTenant          = "ai-gateway.opendatahub.io/tenant"
	LabelTenantInstance  = "maas.opendatahub.io/tenant-instance"
	LabelClaim           = "maas.opendatahub.io/gateway-claim"

	AnnotationTenantName      = "maas.opendatahub.io/aitenant-name"
	AnnotationTenantNamespace = "maas.opendatahub.io/aitenant-namespace"
	AnnotationCreatedBy       = "maas.opendatahub.io/created-by-aitenant"
	AnnotationTenantUID       = "maas.opendatahub.io/aitenant-uid"
	AnnotationKeysRevoked     = "maas.opendatahub.io/api-keys-revoked"
	AnnotationSelectorLabels  = "maas.opendatahub.io/gateway-selector-labels"
)

const (
	// AnnotationSubscriptions of a rate limit policy lists the subscriptions that it limits, as sorted namespace/name.
	AnnotationSubscriptions = "maas.opendatahub.io/subscriptions"
	// Managed with the value "false", as an annotation or a label of a generated object, leaves the object to its user.
	Managed = "opendatahub.io/managed"
	// AnnotationEnforcement of a MaasTenantConfig says who enforces policies and subscriptions of the tenant: "kuadrant" or
	// "built-in". Without it, it is Kuadrant where the cluster has its APIs.
	AnnotationEnforcement = "modelplane.dev/enforcement"
)

// LabelGateway of a claim is the name of the gateway that is claimed, and LabelChecked of a MaasTenantConfig is the UID of the
// claim on the gateway that the tenant moves to, once requests there are checked.
const (
	LabelGateway = "modelplane.dev/gateway"
	LabelChecked = "modelplane.dev/checked-claim"
)

// LabelPass of a Secret with a pass is the period that it is the newest of.
const LabelPass = "modelplane.dev/pass-period"

// LabelSecret of a Secret, with the value "true", lets the payload processor read it; it sees no others.
const LabelSecret = "inference.llm-d.ai/ipp-managed"

// Finalizers that other controllers of these kinds left on existing objects.
const (
	FinalizerAuthPolicy   = "maas.opendatahub.io/authpolicy-cleanup"
	FinalizerSubscription = "maas.opendatahub.io/subscription-cleanup"
	FinalizerModel        = "maas.opendatahub.io/model-cleanup"
	FinalizerAITenant     = "maas.opendatahub.io/aitenant-cleanup"
	FinalizerTenantConfig = "maas.opendatahub.io/tenant-cleanup"
)

// OldManager is the field manager of the controller that existing objects come from.
const OldManager = "manager"

// DefaultTenant is the AITenant whose objects have no suffix.
const DefaultTenant = "models-as-a-service"

// TenantNamespacePrefix is before the names of tenants in those of their namespaces.
const TenantNamespacePrefix = "ai-tenant-"

// OfTenant is the name of an object of a tenant: the base alone for the default one.
func OfTenant(base, tenant string) string {
	if tenant == "" || tenant == DefaultTenant {
		return base
	}
	return base + "-" + tenant
}

// OfferedPaths are those of a tenant's API that people may ask for through a gateway. Whatever is not among them is not
// reached: neither what gateways and jobs ask, nor the list of tenants.
func OfferedPaths() []string {
	return []string{"/v1/models", "/v1/subscriptions", "/v1/api-keys", "/v1/model", "/v1/usage"}
}

// TenantNamespace is where the policies and subscriptions of a tenant are.
func TenantNamespace(tenant, ofDefault string) string {
	if tenant == DefaultTenant {
		return ofDefault
	}
	return TenantNamespacePrefix + tenant
}

// TenantOf is the tenant whose place a namespace is, whether or not there is such a tenant; empty if it can be none's.
func TenantOf(namespace, ofDefault string) string {
	if namespace == ofDefault {
		return DefaultTenant
	}
	name, ok := strings.CutPrefix(namespace, TenantNamespacePrefix)
	if !ok || name == DefaultTenant {
		return ""
	}
	return name
}

// GatewayAuthPolicy is the name of the policy that asks everybody at a gateway for credentials.
func GatewayAuthPolicy(gateway string, isDefault bool) string {
	if isDefault {
		return "maas-gateway-auth"
	}
	return gateway + "-maas-auth"
}

// GatewayDeny is the name of the policy that lets nobody have tokens at a tenant's gateway.
func GatewayDeny(tenant string) string { return OfTenant("gateway-default-deny", tenant) }

// RateLimitPolicy is the name of the policy with the limits of a model.
func RateLimitPolicy(model string) string { return within("maas-trlp-"+model, model) }

// FormerModel is the name of what is made for a former ExternalModel.
func FormerModel(name string) string { return within("maas-"+name, name) }

// SubscriptionKey is how a selected subscription is known at the gateway.
func SubscriptionKey(namespace, name, modelNamespace, model string) string {
	return namespace + "/" + name + "@" + modelNamespace + "/" + model
}

// LimitKey is the name of a subscription's limit on a model, as tools know it. Hyphens make it ambiguous: two subscriptions
// can have the same one.
func LimitKey(namespace, name, model string) string {
	return namespace + "-" + name + "-" + model + "-tokens"
}

// DistinctLimitKey is one that only one subscription and model has.
func DistinctLimitKey(namespace, name, modelNamespace, model string) string {
	return LimitKey(namespace, name, model) + "-" + Digest(SubscriptionKey(namespace, name, modelNamespace, model))
}

// Digest is a short name for a text.
func Digest(text string) string {
	const digits = 8
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}

// within shortens a name that is too long for an object.
func within(name, of string) string {
	const most = 253
	if len(name) <= most {
		return name
	}
	suffix := "-" + Digest(of)
	return name[:most-len(suffix)] + suffix
}
