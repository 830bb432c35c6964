// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"
	"strings"
)

// Images of what others make, for where nobody names one. They are pinned: a restart must not bring another version.
const (
	defaultPostgres = "quay.io/sclorg/postgresql-16-c9s:20250214"
	defaultProxy    = "quay.io/brancz/kube-rbac-proxy:v0.19.1"
)

// Settings are what the platform says of all registries. They hold for the life of the process.
type Settings struct {
	// Namespace of the manager.
	Namespace string
	// RegistriesNamespace is the only one in which registries may be; any if empty.
	RegistriesNamespace string
	// Image of servers that name none; empty stands for OwnImage, which is the one that the manager comes from.
	Image, OwnImage string
	// ProxyImage is that of the proxy before servers, and PostgresImage that of generated databases. Without a proxy,
	// servers of our own image ask Kubernetes themselves.
	ProxyImage, PostgresImage string
	// Domain of the addresses at which people reach registries; that of the cluster if empty.
	Domain string
	// GatewayDomain is where people reach the gateway; empty means that there is none.
	GatewayDomain, GatewayName, GatewayNamespace string
	// RouteNamespace is where routes to the gateway are made.
	RouteNamespace string
	// IngressClass of Ingresses; the cluster's default if empty.
	IngressClass string
	// NotOpenShift leaves OpenShift out of account, also where its APIs are served.
	NotOpenShift bool
}

// Environment variables that settings are taken from, most of them in the names that installations have.
const (
	EnvOwnImage         = "MODELPLANE_IMAGE"
	EnvImage            = "RELATED_IMAGE_ODH_MODEL_REGISTRY_IMAGE"
	EnvProxyImage       = "RELATED_IMAGE_ODH_KUBE_RBAC_PROXY_IMAGE"
	EnvPostgresImage    = "RELATED_IMAGE_POSTGRESQL_16_IMAGE"
	EnvNamespace        = "REGISTRIES_NAMESPACE"
	EnvDomain           = "DEFAULT_DOMAIN"
	EnvGatewayDomain    = "GATEWAY_DOMAIN"
	EnvGatewayName      = "GATEWAY_NAME"
	EnvGatewayNamespace = "GATEWAY_NAMESPACE"
	EnvRouteNamespace   = "HTTPROUTE_NAMESPACE"
	EnvIngressClass     = "MODEL_REGISTRY_INGRESS_CLASS"
	// The gateway of registries, where it is another than that of MLflow.
	envOwnGatewayName      = "MODEL_REGISTRY_GATEWAY_NAME"
	envOwnGatewayNamespace = "MODEL_REGISTRY_GATEWAY_NAMESPACE"
)

// FromEnv reads the settings of a manager that runs in a namespace.
func FromEnv(getenv func(string) string, namespace string) Settings {
	return Settings{
		Namespace:           namespace,
		RegistriesNamespace: getenv(EnvNamespace),
		Image:               getenv(EnvImage),
		OwnImage:            getenv(EnvOwnImage),
		ProxyImage:          getenv(EnvProxyImage),
		PostgresImage:       getenv(EnvPostgresImage),
		Domain:              getenv(EnvDomain),
		GatewayDomain:       getenv(EnvGatewayDomain),
		GatewayName:         cmp.Or(getenv(envOwnGatewayName), getenv(EnvGatewayName)),
		GatewayNamespace:    cmp.Or(getenv(envOwnGatewayNamespace), getenv(EnvGatewayNamespace)),
		RouteNamespace:      getenv(EnvRouteNamespace),
		IngressClass:        getenv(EnvIngressClass),
	}
}

func (s Settings) withDefaults() Settings {
	s.GatewayName = cmp.Or(s.GatewayName, "data-science-gateway")
	s.GatewayNamespace = cmp.Or(s.GatewayNamespace, "openshift-ingress")
	s.RouteNamespace = cmp.Or(s.RouteNamespace, s.Namespace)
	s.PostgresImage = cmp.Or(s.PostgresImage, defaultPostgres)
	s.GatewayDomain = strings.Trim(s.GatewayDomain, "/")
	return s
}
