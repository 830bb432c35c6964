// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
)

// legacyStore is the database of objects that are older than the rule that wants one.
const legacyStore = "sqlite:////mlflow/mlflow.db"

// defaultDestination is where a server that serves artifacts puts them if nothing else is said.
const defaultDestination = "file:///mlflow/artifacts"

// store is one database of a spec: an address, or where it is kept.
type store struct {
	field string
	uri   string
	from  *corev1.SecretKeySelector
}

func (s store) given() bool { return s.uri != "" || s.from != nil }

// backendOf, replicaOf and registryOf are the databases of a spec, as it says them.
func backendOf(spec *mlflowv1.MLflowSpec) store {
	s := store{field: "backendStoreUri", uri: ptr.Deref(spec.BackendStoreURI, ""), from: spec.BackendStoreURIFrom}
	if !s.given() {
		s.uri = legacyStore
	}
	return s
}

func replicaOf(spec *mlflowv1.MLflowSpec) store {
	return store{field: "readReplicaBackendStoreUri", uri: ptr.Deref(spec.ReadReplicaBackendStoreURI, ""), from: spec.ReadReplicaBackendStoreURIFrom}
}

func registryOf(spec *mlflowv1.MLflowSpec) store {
	s := store{field: "registryStoreUri", uri: ptr.Deref(spec.RegistryStoreURI, ""), from: spec.RegistryStoreURIFrom}
	if s.given() {
		return s
	}
	return backendOf(spec)
}

// storesOf are all databases of a spec.
func storesOf(spec *mlflowv1.MLflowSpec) []store {
	all := []store{backendOf(spec), registryOf(spec)}
	if r := replicaOf(spec); r.given() {
		all = append(all, r)
	}
	return all
}

// dialect is the first part of an address: sqlite of sqlite+pysqlite:///x.
func dialect(uri string) string {
	scheme, _, found := strings.Cut(uri, "://")
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(scheme, "+")
	return strings.ToLower(name)
}

// opensTLS tells whether an address leaves it to the environment how PostgreSQL is reached.
func opensTLS(uri string) bool {
	if dialect(uri) != "postgresql" {
		return false
	}
	_, query, _ := strings.Cut(uri, "?")
	values, err := url.ParseQuery(query)
	return err != nil || !values.Has("sslmode")
}

// destination is where the server puts artifacts, empty if it serves none.
func destination(spec *mlflowv1.MLflowSpec) string {
	if !ptr.Deref(spec.ServeArtifacts, false) {
		return ""
	}
	if to := ptr.Deref(spec.ArtifactsDestination, ""); to != "" {
		return to
	}
	return defaultDestination
}
