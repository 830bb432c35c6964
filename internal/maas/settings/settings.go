// SPDX-License-Identifier: Apache-2.0

// Package settings is what the platform says of all models as a service. It holds for the life of the process.
package settings

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/modelplane/modelplane/internal/maas/naming"
)

// Settings are what the platform says.
type Settings struct {
	// Namespace of the manager.
	Namespace string
	// GatewayName and GatewayNamespace are the gateway of the default tenant; gateways of all tenants are in that namespace.
	GatewayName, GatewayNamespace string
	// InfraNamespace is where the services of tenants run.
	InfraNamespace string
	// SubscriptionNamespace is where policies and subscriptions of the default tenant are.
	SubscriptionNamespace string
	// TenantNamespace is the only one in which AITenants are accepted.
	TenantNamespace string
	// OnlyDefault leaves policies and subscriptions alone that are in namespaces of other tenants.
	OnlyDefault bool
	// MetadataTTL and AuthorizationTTL are for how many seconds a gateway believes what it was told of a caller.
	MetadataTTL, AuthorizationTTL int
	// Audience of tokens of Kubernetes that callers may show.
	Audience string
}

// Environment variables that settings are taken from, in the names of the flags that installations have.
const (
	EnvGatewayName           = "MAAS_GATEWAY_NAME"
	EnvGatewayNamespace      = "MAAS_GATEWAY_NAMESPACE"
	EnvInfraNamespace        = "MAAS_INFRA_NAMESPACE"
	EnvSubscriptionNamespace = "MAAS_SUBSCRIPTION_NAMESPACE"
	EnvTenantNamespace       = "MAAS_AITENANT_NAMESPACE"
	EnvDiscovery             = "MAAS_ENABLE_TENANT_NAMESPACE_DISCOVERY"
	EnvMetadataTTL           = "MAAS_METADATA_CACHE_TTL"
	EnvAuthorizationTTL      = "MAAS_AUTHZ_CACHE_TTL"
	EnvAudience              = "MAAS_CLUSTER_AUDIENCE"
)

// auto lets the namespace of the manager decide.
const auto = "AUTO"

// infraOf are the namespaces that known installations have for the services of tenants.
var infraOf = map[string]string{"opendatahub": "odh-ai-gateway-infra", "redhat-ods-applications": "redhat-ai-gateway-infra"}

// FromEnv reads the settings of a manager that runs in a namespace.
func FromEnv(getenv func(string) string, namespace string) (Settings, error) {
	s := Settings{
		Namespace:             namespace,
		GatewayName:           getenv(EnvGatewayName),
		GatewayNamespace:      getenv(EnvGatewayNamespace),
		InfraNamespace:        getenv(EnvInfraNamespace),
		SubscriptionNamespace: getenv(EnvSubscriptionNamespace),
		TenantNamespace:       getenv(EnvTenantNamespace),
		OnlyDefault:           getenv(EnvDiscovery) == "false",
		Audience:              getenv(EnvAudience),
	}
	var err error
	if s.MetadataTTL, err = seconds(getenv, EnvMetadataTTL); err != nil {
		return s, err
	}
	if s.AuthorizationTTL, err = seconds(getenv, EnvAuthorizationTTL); err != nil {
		return s, err
	}
	return s.WithDefaults(), nil
}

// seconds reads a number that may be zero; -1 stands for none.
func seconds(getenv func(string) string, name string) (int, error) {
	text := getenv(name)
	if text == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q: it must be a number of seconds, zero or more", name, text)
	}
	return n, nil
}

// Default is what holds where nobody says anything.
func Default(namespace string) Settings {
	return Settings{Namespace: namespace, MetadataTTL: -1, AuthorizationTTL: -1}.WithDefaults()
}

// WithDefaults fills in what is empty. What was authorized is never believed for longer than what it was decided by.
func (s Settings) WithDefaults() Settings {
	const ttl = 60
	s.Namespace = cmp.Or(s.Namespace, "default")
	s.GatewayName = cmp.Or(s.GatewayName, "maas-default-gateway")
	s.GatewayNamespace = cmp.Or(s.GatewayNamespace, "openshift-ingress")
	s.SubscriptionNamespace = cmp.Or(s.SubscriptionNamespace, naming.DefaultTenant)
	s.TenantNamespace = cmp.Or(s.TenantNamespace, "ai-tenants")
	s.Audience = cmp.Or(s.Audience, "https://kubernetes.default.svc")
	if s.InfraNamespace == "" || s.InfraNamespace == auto {
		s.InfraNamespace = cmp.Or(infraOf[s.Namespace], s.Namespace)
	}
	if s.MetadataTTL < 0 {
		s.MetadataTTL = ttl
	}
	if s.AuthorizationTTL < 0 {
		s.AuthorizationTTL = ttl
	}
	s.AuthorizationTTL = min(s.AuthorizationTTL, s.MetadataTTL)
	return s
}
