// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"crypto/tls"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
)

// caKey is where a Secret has what others must trust.
const caKey = "ca.crt"

// TLS is what a server proves its name with.
type TLS struct {
	// Own is the pair that the Secret is to hold; nil when the platform or the user makes it.
	Own *certs.Pair
	// RenewAt is when our own pair is to be replaced.
	RenewAt time.Time
	// Roots say where others find what they must trust, in the words of a ServiceMonitor; nil if nobody says.
	Roots map[string]any
	// Broken is set when a Secret that is not ours has no pair in it.
	Broken bool
}

// LookAgain is how long the pair is good for; zero if there is none of ours.
func (t TLS) LookAgain(now time.Time) time.Duration {
	if t.RenewAt.IsZero() {
		return 0
	}
	return max(t.RenewAt.Sub(now), time.Second)
}

// Server is who has a certificate.
type Server struct {
	// Owner is the object that it is run for.
	Owner types.UID
	// Service by whose name it is called inside the cluster.
	Service client.ObjectKey
	// Secret with the certificate, in the same namespace.
	Secret string
	// OpenShift makes certificates itself.
	OpenShift bool
}

// hosts are the names under which the server is called inside the cluster.
func (s Server) hosts() []string {
	near := s.Service.Name + "." + s.Service.Namespace
	return []string{s.Service.Name, near, near + ".svc", near + ".svc.cluster.local", "localhost"}
}

// ReadTLS looks at the Secret of a server. On OpenShift the platform makes it; one that somebody made is taken as it is; without
// a cluster, where there are no pairs, nothing secret is made.
func ReadTLS(ctx context.Context, r engine.Reader, pairs *certs.Pairs, now time.Time, s Server) (TLS, error) {
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: s.Service.Namespace, Name: s.Secret}
	found, err := Exists(r.GetUncached(ctx, key, secret))
	if err != nil {
		return TLS{}, err
	}
	switch theirs := s.OpenShift || found && secret.Labels[engine.LabelOwner] == ""; {
	case theirs:
		_, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		roots := rootsIn(secret)
		if s.OpenShift {
			roots = rootsOfServices()
		}
		return TLS{Broken: found && err != nil, Roots: roots}, nil
	case pairs == nil:
		return TLS{Own: &certs.Pair{Roots: []byte{}, Certificate: []byte{}, Key: []byte{}}, Roots: rootsInSecret(s.Secret)}, nil
	}
	have, err := ownPair(ctx, r, key, secret)
	if err != nil {
		return TLS{}, err
	}
	pair, at, err := pairs.Take(s.Owner, s.Service.Name, now, s.hosts(), have)
	return TLS{Own: &pair, RenewAt: at, Roots: rootsInSecret(s.Secret)}, err
}

// ReadGivenTLS looks at a Secret that a user names, of which nothing is ours.
func ReadGivenTLS(ctx context.Context, r engine.Reader, key client.ObjectKey) (TLS, error) {
	secret := &corev1.Secret{}
	_, err := Exists(r.GetUncached(ctx, key, secret))
	return TLS{Roots: rootsIn(secret)}, err
}

// rootsIn a Secret that somebody made, who need not have put any there.
func rootsIn(secret *corev1.Secret) map[string]any {
	if len(secret.Data[caKey]) == 0 {
		return nil
	}
	return rootsInSecret(secret.Name)
}

// ownPair is what our Secret holds. One that was deleted counts as such also while it is remembered: whoever deleted it wants
// another key.
func ownPair(ctx context.Context, r engine.Reader, key client.ObjectKey, secret *corev1.Secret) (certs.Pair, error) {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	head.Namespace, head.Name = key.Namespace, key.Name
	if found, err := Exists(r.Child(ctx, head)); err != nil || !found {
		return certs.Pair{}, err
	}
	return certs.Pair{Roots: secret.Data[caKey], Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}, nil
}

// Certificate is the Secret that our own pair is kept in.
func Certificate(meta metav1.ObjectMeta, pair *certs.Pair) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{caKey: pair.Roots, corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key},
	}
}
