// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Inputs are what the server reads when it starts.
type Inputs struct {
	// Missing are Secrets and ConfigMaps that it cannot start without.
	Missing []string
	// Checksum is of everything that the server reads, and Password of what a generated database reads.
	Checksum, Password string
}

// source is a Secret or ConfigMap, or one key of it.
type source struct{ kind, name, key string }

func (s source) String() string {
	if s.key == "" {
		return s.kind + " " + s.name
	}
	return fmt.Sprintf("key %s of %s %s", s.key, s.kind, s.name)
}

func fromSecret(ref *v1beta1.SecretKey) []source {
	if ref == nil {
		return nil
	}
	return []source{{"Secret", ref.Name, ref.Key}}
}

func fromConfigMap(ref *v1beta1.ConfigMapKey) []source {
	if ref == nil {
		return nil
	}
	return []source{{"ConfigMap", ref.Name, ref.Key}}
}

// sourcesOf are those that the database connection of a registry reads.
func sourcesOf(m *v1beta1.ModelRegistry) []source {
	var out []source
	if d := databaseOf(m); d != nil {
		out = fromSecret(d.passwordSecret)
	}
	switch p, s := m.Spec.Postgres, m.Spec.MySQL; {
	case generates(p):
	case p != nil:
		out = append(out, slices.Concat(fromSecret(p.SSLCertificateSecret), fromSecret(p.SSLKeySecret), fromSecret(p.SSLPasswordSecret))...)
		out = append(out, rootOf(p.SSLRootCertificateConfigMap, p.SSLRootCertificateSecret)...)
	case s != nil:
		out = append(out, slices.Concat(fromSecret(s.SSLCertificateSecret), fromSecret(s.SSLKeySecret))...)
		out = append(out, rootOf(s.SSLRootCertificateConfigMap, s.SSLRootCertificateSecret)...)
		switch {
		case ptr.Deref(s.SSLRootCertificatesConfigMapName, "") != "":
			out = append(out, source{kind: "ConfigMap", name: *s.SSLRootCertificatesConfigMapName})
		case ptr.Deref(s.SSLRootCertificatesSecretName, "") != "":
			out = append(out, source{kind: "Secret", name: *s.SSLRootCertificatesSecretName})
		}
	}
	return out
}

// rootOf are the authorities to trust: those of the ConfigMap go first.
func rootOf(config *v1beta1.ConfigMapKey, secret *v1beta1.SecretKey) []source {
	if config != nil {
		return fromConfigMap(config)
	}
	return fromSecret(secret)
}

// readInputs reads what the server will read, finds out what is missing, and sums it up so that a change of it shows.
// Certificates of the proxy are read by itself whenever they change.
func (o *observer) readInputs(ctx context.Context) error {
	sum, sources := sha256.New(), sourcesOf(o.registry)
	for _, s := range sources {
		if o.seen.Credentials.Wanted && s.name == o.registry.Name+credentialsSuffix {
			// The same before and after the Secret is there, so that pods need not be made twice.
			fmt.Fprintf(sum, "%s %s %s\n", o.registry.UID, o.seen.Credentials.User, o.password)
			o.seen.Inputs.Password = hex.EncodeToString(sum.Sum(nil)[:16])
			continue
		}
		uid, data, err := o.readSource(ctx, s)
		if err != nil {
			return err
		}
		if uid == "" || len(data) == 0 {
			o.seen.Inputs.Missing = append(o.seen.Inputs.Missing, s.String())
		}
		// The UID, which only those know who may read the Secret's metadata, keeps others from trying out passwords.
		fmt.Fprintf(sum, "%s %s\n", s, uid)
		for _, key := range slices.Sorted(maps.Keys(data)) {
			fmt.Fprintf(sum, "%s %d ", key, len(data[key]))
			sum.Write(data[key])
		}
	}
	for _, s := range proxySources(o.registry) {
		uid, data, err := o.readSource(ctx, s)
		if err != nil {
			return err
		}
		if uid == "" || len(data) == 0 {
			o.seen.Inputs.Missing = append(o.seen.Inputs.Missing, s.String())
		}
	}
	if len(sources) > 0 {
		o.seen.Inputs.Checksum = hex.EncodeToString(sum.Sum(nil)[:16])
	}
	return nil
}

// proxySources are certificate and key that a user gives the proxy.
func proxySources(m *v1beta1.ModelRegistry) []source {
	proxy := proxyOf(&m.Spec, false)
	if proxy == nil {
		return nil
	}
	return slices.Concat(fromSecret(proxy.TLSCertificateSecret), fromSecret(proxy.TLSKeySecret))
}

// readSource reads a Secret or ConfigMap, or the one key of it; one that is not there has no UID.
func (o *observer) readSource(ctx context.Context, s source) (uid string, data map[string][]byte, err error) {
	var obj client.Object = &corev1.Secret{}
	if s.kind == "ConfigMap" {
		obj = &corev1.ConfigMap{}
	}
	found, err := platform.Exists(o.GetUncached(ctx, o.key(s.name), obj))
	if err != nil || !found {
		return "", nil, err
	}
	switch obj := obj.(type) {
	case *corev1.Secret:
		data = obj.Data
	case *corev1.ConfigMap:
		data = map[string][]byte{}
		for key, value := range obj.Data {
			data[key] = []byte(value)
		}
		maps.Copy(data, obj.BinaryData)
	}
	if s.key != "" {
		value, ok := data[s.key]
		data = map[string][]byte{}
		if ok {
			data[s.key] = value
		}
	}
	uid = cmp.Or(string(obj.GetUID()), s.name) // without a cluster there is none
	return uid, data, nil
}

// Credentials are those of a generated database.
type Credentials struct {
	// Wanted tells whether there is to be such a database.
	Wanted bool
	// User who signs in.
	User string
	// New is the password to make where there is none, or when it is deleted just now; empty without a cluster.
	New string
	// Broken is set when the Secret lacks user or password.
	Broken bool
}

// readCredentials finds out who signs in to a generated database, and makes a password if it has none.
func (o *observer) readCredentials(ctx context.Context) error {
	if !generates(o.registry.Spec.Postgres) {
		return nil
	}
	o.seen.Credentials = Credentials{Wanted: true, User: generatedUser}
	secret := &corev1.Secret{}
	found, err := platform.Exists(o.GetUncached(ctx, o.key(o.registry.Name+credentialsSuffix), secret))
	if err != nil {
		return err
	}
	o.password = string(secret.Data[keyPassword])
	o.seen.Credentials.New = o.secrets.next(o.registry.UID, o.password)
	if !found {
		o.password = o.seen.Credentials.New
		return nil
	}
	user := strings.TrimSpace(string(secret.Data[keyUsername]))
	o.seen.Credentials.Broken = user == "" || len(secret.Data[keyPassword]) == 0
	if user != "" {
		o.seen.Credentials.User = user
	}
	return nil
}

// passwords remembers the next password of each database, until the cluster is seen to have it: a look that comes too early
// must not make another one.
type passwords struct {
	mu   sync.Mutex
	made map[types.UID]string
}

// next is the password that a database gets when its Secret is made, always another one than it has.
func (p *passwords) next(uid types.UID, have string) string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil {
		p.made = map[types.UID]string{}
	}
	if p.made[uid] == have || p.made[uid] == "" {
		raw := make([]byte, 24)
		_, _ = rand.Read(raw) // never fails
		p.made[uid] = base64.RawURLEncoding.EncodeToString(raw)
	}
	return p.made[uid]
}
