// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"net/url"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
)

// privateMode is that of mounted keys.
const privateMode int32 = 0o600

// dataDir is where the file of an embedded database lies.
const dataDir = "/data"

// databaseArgs name the database. A password is never among them: everybody who lists processes would see it.
func (p *planner) databaseArgs() []string {
	args := []string{"--embedmd-database-type=" + p.database.kind}
	switch p.database.kind {
	case sqlite:
		return append(args, "--embedmd-database-dsn="+dataDir+"/registry.db")
	case postgres:
		args = append(args, "--embedmd-database-dsn="+literal(p.postgresAddress()))
	case mysql:
		if p.database.passwordSecret == nil {
			args = append(args, "--embedmd-database-dsn="+literal(p.mysqlUser()+p.mysqlAddress()))
		}
	}
	for _, f := range p.files() {
		args = append(args, f.flag+"="+f.path())
	}
	switch {
	case p.database.generated:
	case p.database.kind == postgres:
		if verifies(p.spec.Postgres) {
			args = append(args, "--embedmd-database-ssl-verify-server-cert=true")
		}
	case p.database.kind == mysql:
		s := p.spec.MySQL
		if ptr.Deref(s.SSLCipher, "") != "" {
			args = append(args, "--embedmd-database-ssl-cipher="+literal(*s.SSLCipher))
		}
		if s.VerifyServerCert != nil {
			args = append(args, "--embedmd-database-ssl-verify-server-cert="+strconv.FormatBool(*s.VerifyServerCert))
		}
	}
	return args
}

// verifies tells whether the flag is needed without which the known server would check less than it is asked to. With an
// authority to trust and without the flag, it checks what verify-ca asks for and no more.
func verifies(s *v1beta1.Postgres) bool {
	root := s.SSLRootCertificateConfigMap != nil || s.SSLRootCertificateSecret != nil
	return s.SSLMode == v1beta1.SSLVerifyFull || s.SSLMode == v1beta1.SSLVerifyCA && !root
}

// literal keeps Kubernetes from taking a text for a reference to a variable.
func literal(text string) string { return strings.ReplaceAll(text, "$(", "$$(") }

// postgresAddress has user and database in it, in whichever characters they are; the driver takes the password from its own variable.
func (p *planner) postgresAddress() string {
	u := url.URL{Scheme: "postgresql", Host: p.database.address(), Path: "/" + p.database.name, RawPath: "/" + url.PathEscape(p.database.name)}
	if p.database.user != "" {
		u.User = url.User(p.database.user)
	}
	mode := v1beta1.SSLDisable
	if !p.database.generated && p.spec.Postgres.SSLMode != "" {
		mode = p.spec.Postgres.SSLMode
	}
	u.RawQuery = "sslmode=" + string(mode)
	return u.String()
}

func (p *planner) mysqlUser() string { return p.database.user }

func (p *planner) mysqlAddress() string {
	return "@tcp(" + p.database.address() + ")/" + url.PathEscape(p.database.name) + "?charset=utf8mb4"
}

// env hands passwords over. MySQL's driver has no variable for it, so that the whole address is in one, in which
// Kubernetes puts the password.
func (p *planner) env() []corev1.EnvVar {
	var env []corev1.EnvVar
	secret := func(name string, ref *v1beta1.SecretKey) {
		if ref != nil {
			env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: keyOf(ref)}})
		}
	}
	switch p.database.kind {
	case postgres:
		secret("PGPASSWORD", p.database.passwordSecret)
		if !p.database.generated {
			secret("PGSSLPASSWORD", p.spec.Postgres.SSLPasswordSecret)
		}
	case mysql:
		if p.database.passwordSecret == nil {
			break
		}
		secret("MYSQL_PASSWORD", p.database.passwordSecret)
		env = append(env, corev1.EnvVar{
			Name: "MR_EMBEDMD_DATABASE_DSN", Value: literal(p.mysqlUser()) + ":$(MYSQL_PASSWORD)" + literal(p.mysqlAddress()),
		})
	}
	return env
}

func keyOf(ref *v1beta1.SecretKey) *corev1.SecretKeySelector {
	return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name}, Key: ref.Key}
}

// file is a certificate or key that the server reads, or a directory of them.
type file struct {
	flag, volume, dir, key string
	source                 corev1.VolumeSource
}

func (f file) path() string {
	if f.key == "" {
		return f.dir + "/"
	}
	return path.Join(f.dir, f.key)
}

// files are those of the connection to the database.
func (p *planner) files() []file {
	switch {
	case p.database.generated || p.database.kind == sqlite:
		return nil
	case p.database.kind == postgres:
		s := p.spec.Postgres
		return fileList("postgres", s.SSLCertificateSecret, s.SSLKeySecret, s.SSLRootCertificateConfigMap, s.SSLRootCertificateSecret)
	}
	s := p.spec.MySQL
	out := fileList("mysql", s.SSLCertificateSecret, s.SSLKeySecret, s.SSLRootCertificateConfigMap, s.SSLRootCertificateSecret)
	all := file{flag: "--embedmd-database-ssl-ca", volume: "mysql-ssl-rootcerts", dir: "/etc/mysql_ssl_rootcerts"}
	switch {
	case ptr.Deref(s.SSLRootCertificatesConfigMapName, "") != "":
		all.source = configMapVolume(*s.SSLRootCertificatesConfigMapName)
	case ptr.Deref(s.SSLRootCertificatesSecretName, "") != "":
		all.source = secretVolume(*s.SSLRootCertificatesSecretName)
	default:
		return out
	}
	return append(out, all)
}

func fileList(kind string, cert, key *v1beta1.SecretKey, rootConfig *v1beta1.ConfigMapKey, rootSecret *v1beta1.SecretKey) []file {
	var out []file
	add := func(part, flag, key string, source corev1.VolumeSource) {
		out = append(out, file{flag: "--embedmd-database-ssl-" + flag, volume: kind + "-ssl-" + part, dir: "/etc/" + kind + "_ssl_" + part, key: key, source: source})
	}
	if cert != nil {
		add("cert", "cert", cert.Key, secretVolume(cert.Name))
	}
	if key != nil {
		add("key", "key", key.Key, secretVolume(key.Name))
	}
	switch {
	case rootConfig != nil:
		add("rootcert", "root-cert", rootConfig.Key, configMapVolume(rootConfig.Name))
	case rootSecret != nil:
		add("rootcert", "root-cert", rootSecret.Key, secretVolume(rootSecret.Name))
	}
	return out
}

// databaseFiles are the volumes of the connection, or of an embedded database, and where they are mounted.
func (p *planner) databaseFiles() ([]corev1.Volume, []corev1.VolumeMount) {
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	for _, f := range p.files() {
		volumes = append(volumes, corev1.Volume{Name: f.volume, VolumeSource: f.source})
		mounts = append(mounts, corev1.VolumeMount{Name: f.volume, MountPath: f.dir, ReadOnly: true})
	}
	if p.database.kind == sqlite {
		volumes = append(volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(p.registry)}}})
		volumes = append(volumes, corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		mounts = append(mounts, corev1.VolumeMount{Name: "data", MountPath: dataDir}, corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"})
	}
	return volumes, mounts
}

func secretVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: ptr.To(privateMode)}}
}

func configMapVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, DefaultMode: ptr.To(privateMode)}}
}
