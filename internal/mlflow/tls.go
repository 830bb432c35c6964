// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"context"
	"crypto/tls"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
)

// caKey is where a Secret has what others must trust.
const caKey = "ca.crt"

// TLS is what the server proves its name with.
type TLS struct {
	// Own is the pair that the Secret is to hold; nil when the platform or the user makes it.
	Own *certs.Pair
	// RenewAt is when our own pair is to be replaced.
	RenewAt time.Time
	// Certificate is the one that the server has, in PEM, as far as there is one.
	Certificate []byte
	// HasCA tells whether the Secret says what others must trust.
	HasCA bool
	// Broken is set when a Secret that is not ours has no pair in it.
	Broken bool
}

// hosts are the names under which the server is called.
func hosts(namespace string) []string {
	return []string{name, name + "." + namespace, host(namespace), host(namespace) + ".cluster.local", "localhost"}
}

func host(namespace string) string { return name + "." + namespace + ".svc" }

// readTLS looks at the Secret. Where the platform makes it, it is waited for; a user's is taken as it is; without a
// cluster nothing secret is made.
func (o *observer) readTLS(ctx context.Context) error {
	secret := &corev1.Secret{}
	found, err := exists(o.GetUncached(ctx, o.key(tlsSecret), secret))
	if err != nil {
		return err
	}
	theirs := o.seen.OpenShift || found && secret.Labels[engine.LabelOwner] == ""
	switch {
	case theirs:
		o.seen.TLS = TLS{Certificate: secret.Data[corev1.TLSCertKey], HasCA: len(secret.Data[caKey]) > 0}
		_, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		o.seen.TLS.Broken = found && err != nil
		return nil
	case o.keys == nil:
		o.seen.TLS = TLS{Own: &certs.Pair{Roots: []byte{}, Certificate: []byte{}, Key: []byte{}}, HasCA: true}
		return nil
	}
	have, err := o.ownPair(ctx, secret)
	if err != nil {
		return err
	}
	pair, at, err := o.keys.Take(o.mlflow.UID, name, o.seen.Now, hosts(o.settings.Namespace), have)
	o.seen.TLS = TLS{Own: &pair, RenewAt: at, Certificate: pair.Certificate, HasCA: true}
	return err
}

// ownPair is what our Secret holds. One that was deleted counts as such also while it is remembered: whoever deleted it
// wants another key.
func (o *observer) ownPair(ctx context.Context, secret *corev1.Secret) (certs.Pair, error) {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	head.Namespace, head.Name = o.settings.Namespace, tlsSecret
	if found, err := exists(o.Child(ctx, head)); err != nil || !found {
		return certs.Pair{}, err
	}
	return certs.Pair{Roots: secret.Data[caKey], Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}, nil
}

// secret is the one that the server's certificate is kept in.
func (p *planner) secret() *corev1.Secret {
	pair := p.seen.TLS.Own
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.seen.Settings.Namespace, Name: tlsSecret, Labels: ownLabels()},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			caKey: pair.Roots, corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key,
		},
	}
}
