// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"cmp"
	"strings"
)

// Images of what others make, for where nobody names one. They are pinned: a restart must not bring another version.
const (
	defaultPostgres = "quay.io/sclorg/postgresql-16-c9s:20250214"
	defaultProxy    = "quay.io/brancz/kube-rbac-proxy:v0.19.1"
)

// Settings are what the platform says of the catalog. They hold for the life of the process.
type Settings struct {
	// Namespace of the manager, and its version.
	Namespace, Version string
	// CatalogNamespace is the only one in which a Catalog may be; any if empty.
	CatalogNamespace string
	// Image of the server; empty stands for OwnImage, which is the one that the manager comes from.
	Image, OwnImage string
	// ProxyImage is that of a proxy before the server. Without it, a server of our own image asks Kubernetes itself.
	ProxyImage string
	// PostgresImage, PostgresUser and PostgresDatabase are those of the database that other images need. SkipDatabase leaves
	// it to the user.
	PostgresImage, PostgresUser, PostgresDatabase string
	SkipDatabase                                  bool
	// DataImage has files with the entries of the platform's own sources, BenchmarkImage measurements of models.
	DataImage, BenchmarkImage string
	// Domain of the address at which people reach the catalog; that of the cluster if empty.
	Domain string
	// GatewayDomain is where people reach the gateway; empty means that there is none.
	GatewayDomain, GatewayName, GatewayNamespace string
	// RouteNamespace is where the route to the gateway is made.
	RouteNamespace string
	// IngressClass of the Ingress; the cluster's default if empty.
	IngressClass string
	// NotOpenShift leaves OpenShift out of account, also where its APIs are served.
	NotOpenShift bool
}

// FromEnv reads the settings of a manager that runs in a namespace, from the variables that installations have.
func FromEnv(getenv func(string) string, namespace string) Settings {
	return Settings{
		Namespace:        namespace,
		CatalogNamespace: getenv("REGISTRIES_NAMESPACE"),
		Image:            getenv("RELATED_IMAGE_ODH_MODEL_REGISTRY_IMAGE"),
		OwnImage:         getenv("MODELPLANE_IMAGE"),
		ProxyImage:       getenv("RELATED_IMAGE_ODH_KUBE_RBAC_PROXY_IMAGE"),
		PostgresImage:    getenv("RELATED_IMAGE_POSTGRESQL_16_IMAGE"),
		PostgresUser:     getenv("CATALOG_POSTGRES_USER"),
		PostgresDatabase: getenv("CATALOG_POSTGRES_DATABASE"),
		SkipDatabase:     getenv("SKIP_MODEL_CATALOG_DB_CREATION") == "true",
		DataImage:        getenv("RELATED_IMAGE_ODH_MODEL_METADATA_COLLECTION_IMAGE"),
		BenchmarkImage:   getenv("RELATED_IMAGE_ODH_MODEL_PERFORMANCE_DATA_IMAGE"),
		Domain:           getenv("DEFAULT_DOMAIN"),
		GatewayDomain:    getenv("GATEWAY_DOMAIN"),
		GatewayName:      cmp.Or(getenv("MODEL_REGISTRY_GATEWAY_NAME"), getenv("GATEWAY_NAME")),
		GatewayNamespace: cmp.Or(getenv("MODEL_REGISTRY_GATEWAY_NAMESPACE"), getenv("GATEWAY_NAMESPACE")),
		RouteNamespace:   getenv("HTTPROUTE_NAMESPACE"),
		IngressClass:     getenv("MODEL_REGISTRY_INGRESS_CLASS"),
	}
}

func (s Settings) withDefaults() Settings {
	s.PostgresImage = cmp.Or(s.PostgresImage, defaultPostgres)
	s.PostgresUser = cmp.Or(s.PostgresUser, "catalog_user")
	s.PostgresDatabase = cmp.Or(s.PostgresDatabase, "model_catalog")
	s.GatewayName = cmp.Or(s.GatewayName, "data-science-gateway")
	s.GatewayNamespace = cmp.Or(s.GatewayNamespace, "openshift-ingress")
	s.RouteNamespace = cmp.Or(s.RouteNamespace, s.Namespace)
	s.GatewayDomain = strings.Trim(s.GatewayDomain, "/")
	return s
}

// image of the server.
func (s Settings) image() string { return cmp.Or(s.Image, s.OwnImage) }

// own tells whether the server is our own, which needs no database.
func (s Settings) own() bool { return s.image() == s.OwnImage }

// proxyImage is that of the proxy container; empty if the server does its work.
func (s Settings) proxyImage() string {
	if s.ProxyImage == "" && !s.own() {
		return defaultProxy
	}
	return s.ProxyImage
}
