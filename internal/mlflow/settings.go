// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/modelplane/modelplane/internal/mlflow/access"
	"github.com/modelplane/modelplane/internal/mlflow/module"
)

// Settings are what the platform says of all MLflow objects. They hold for the life of the process.
type Settings struct {
	// Namespace of everything that has one.
	Namespace string
	// Image of servers that name none.
	Image string
	// GatewayName and GatewayNamespace are the parent of the server's route.
	GatewayName, GatewayNamespace string
	// URL is where people reach the gateway; empty while nobody said it.
	URL string
	// SectionTitle is where the console of OpenShift lists the server.
	SectionTitle string
	// NotOpenShift leaves OpenShift out of account, also where its APIs are served.
	NotOpenShift bool
	// Module makes every MLflow wait for the platform's module, which also says how it is shown to people.
	Module bool
	// RolePrefix is what the names of the roles for its users begin with.
	RolePrefix string
}

// Environment variables that settings are taken from, in the names that installations have.
const (
	EnvRelatedImage     = "RELATED_IMAGE_ODH_MLFLOW_IMAGE"
	EnvImage            = "MLFLOW_IMAGE"
	EnvGatewayName      = "GATEWAY_NAME"
	EnvGatewayNamespace = "GATEWAY_NAMESPACE"
	EnvURL              = "MLFLOW_URL"
	EnvSectionTitle     = "SECTION_TITLE"
	EnvNamespace        = "APPLICATIONS_NAMESPACE"
)

// FromEnv reads the settings of a manager that runs in a namespace.
func FromEnv(getenv func(string) string, namespace string) Settings {
	return Settings{
		Namespace:        cmp.Or(getenv(EnvNamespace), namespace),
		Image:            cmp.Or(getenv(EnvRelatedImage), getenv(EnvImage)),
		GatewayName:      getenv(EnvGatewayName),
		GatewayNamespace: getenv(EnvGatewayNamespace),
		URL:              getenv(EnvURL),
		SectionTitle:     getenv(EnvSectionTitle),
		Module:           getenv(module.EnvEnabled) == "true",
		RolePrefix:       getenv(access.EnvPrefix),
	}
}

func (s Settings) withDefaults() Settings {
	s.GatewayName = cmp.Or(s.GatewayName, "data-science-gateway")
	s.GatewayNamespace = cmp.Or(s.GatewayNamespace, "openshift-ingress")
	s.SectionTitle = cmp.Or(s.SectionTitle, "MLflow")
	s.RolePrefix = cmp.Or(s.RolePrefix, access.DefaultPrefix)
	s.URL = strings.TrimRight(s.URL, "/")
	return s
}

// origin is scheme and host of the URL, as browsers send it; empty if it has none.
func (s Settings) origin() string {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
