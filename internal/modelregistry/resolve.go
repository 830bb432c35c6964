// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"
	"fmt"
	"net"
	"strconv"

	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
)

// Ports that a spec need not name.
const (
	defaultRestPort     = 8080
	defaultProxyPort    = 8443
	defaultRoutePort    = 443
	defaultPostgresPort = 5432
	defaultMySQLPort    = 3306
)

// What a generated database is called, and who signs in there.
const (
	generatedUser     = "modelregistry"
	generatedDatabase = "model_registry"
)

// Kinds of databases.
const (
	postgres = "postgres"
	mysql    = "mysql"
	sqlite   = "sqlite"
)

// database is where a registry keeps its data, as its spec says it.
type database struct {
	kind string
	// generated databases run for this registry alone.
	generated      bool
	host, name     string
	port           int32
	user           string
	passwordSecret *v1beta1.SecretKey
}

// databaseOf is the database of a registry; nil if it has none. PostgreSQL goes before MySQL where both are named.
func databaseOf(m *v1beta1.ModelRegistry) *database {
	switch {
	case m.Spec.Postgres != nil:
		return postgresOf(m.Name, m.Spec.Postgres)
	case m.Spec.MySQL != nil:
		s := m.Spec.MySQL
		return &database{kind: mysql, host: s.Host, port: ptr.Deref(s.Port, defaultMySQLPort), name: s.Database, user: s.Username, passwordSecret: s.PasswordSecret}
	case m.Annotations[AnnotationDatabase] == sqlite:
		return &database{kind: sqlite}
	}
	return nil
}

func postgresOf(registry string, s *v1beta1.Postgres) *database {
	if generates(s) {
		return &database{
			kind: postgres, generated: true, host: registry + postgresSuffix, port: defaultPostgresPort, name: generatedDatabase,
			user: generatedUser, passwordSecret: &v1beta1.SecretKey{Name: registry + credentialsSuffix, Key: keyPassword},
		}
	}
	return &database{
		kind: postgres, host: cmp.Or(s.Host, s.HostAddress), port: ptr.Deref(s.Port, defaultPostgresPort), name: s.Database,
		user: s.Username, passwordSecret: s.PasswordSecret,
	}
}

// generates tells whether a database is to be run for the registry.
func generates(s *v1beta1.Postgres) bool { return s != nil && ptr.Deref(s.GenerateDeployment, false) }

func (d *database) address() string { return net.JoinHostPort(d.host, strconv.Itoa(int(d.port))) }

// identity names what is lost sight of when a registry is given another database.
func (d *database) identity() string {
	switch {
	case d == nil:
		return "none"
	case d.kind == sqlite:
		return "sqlite"
	case d.generated:
		return "generated"
	}
	return fmt.Sprintf("%s/%s/%s", d.kind, d.address(), d.name)
}

// String is how a person is told which database it is.
func (d *database) String() string {
	switch {
	case d.kind == sqlite:
		return "the SQLite file of the registry"
	case d.generated:
		return "the generated database " + d.host
	case d.kind == mysql:
		return fmt.Sprintf("MySQL %s, database %s", d.address(), d.name)
	}
	return fmt.Sprintf("PostgreSQL %s, database %s", d.address(), d.name)
}

// proxyOf is the proxy before the server, as it is carried out today; nil if there is none. On OpenShift there is always
// one.
func proxyOf(spec *v1beta1.ModelRegistrySpec, openShift bool) *v1beta1.KubeRBACProxy {
	out := &v1beta1.KubeRBACProxy{}
	switch {
	case spec.KubeRBACProxy != nil:
		*out = *spec.KubeRBACProxy
	case spec.OAuthProxy != nil:
		*out = *fromOAuth(spec.OAuthProxy)
	case !openShift:
		return nil
	}
	out.Port = ptr.To(positive(out.Port, defaultProxyPort))
	out.RoutePort = ptr.To(positive(out.RoutePort, defaultRoutePort))
	out.ServiceRoute = cmp.Or(out.ServiceRoute, v1beta1.Enabled)
	return out
}

// fromOAuth is what became of the former proxy. Its image is that of another program.
func fromOAuth(p *v1beta1.OAuthProxy) *v1beta1.KubeRBACProxy {
	out := v1beta1.KubeRBACProxy(*p)
	out.Image = ""
	return &out
}

// positive is a port, or the default for one that is absent or zero.
func positive(port *int32, otherwise int32) int32 { return cmp.Or(ptr.Deref(port, 0), otherwise) }

// replicasOf is the number of pods that a registry asks for. A file is for one pod only.
func replicasOf(m *v1beta1.ModelRegistry) int32 {
	if d := databaseOf(m); d != nil && d.kind == sqlite {
		return 1
	}
	n, err := strconv.ParseInt(m.Annotations[AnnotationReplicas], 10, 32)
	if err != nil || n < 1 {
		return 1
	}
	return int32(n)
}
