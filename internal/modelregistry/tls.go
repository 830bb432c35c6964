// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"context"
	"crypto/tls"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
)

// caKey is where a Secret has what others must trust.
const caKey = "ca.crt"

// TLS is what the proxy proves its name with, where the user does not say it.
type TLS struct {
	// Own is the pair that the Secret is to hold; nil when the platform or the user makes it.
	Own *certs.Pair
	// RenewAt is when our own pair is to be replaced.
	RenewAt time.Time
	// Broken is set when a Secret that is not ours has no pair in it.
	Broken bool
}

// hostsOf are the names under which a registry is called inside the cluster.
func hostsOf(m *v1beta1.ModelRegistry) []string {
	name := m.Name + "." + m.Namespace
	return []string{m.Name, name, name + ".svc", name + ".svc.cluster.local", "localhost"}
}

// readTLS looks at the Secret of the proxy. On OpenShift the platform makes it; one that somebody made is taken as it is;
// without a cluster nothing secret is made.
func (o *observer) readTLS(ctx context.Context) error {
	proxy := proxyOf(&o.registry.Spec, o.seen.OpenShift)
	if proxy == nil || proxy.TLSCertificateSecret != nil {
		return nil
	}
	secret := &corev1.Secret{}
	found, err := exists(o.GetUncached(ctx, o.key(o.registry.Name+proxySuffix), secret))
	if err != nil {
		return err
	}
	theirs := o.seen.OpenShift || found && secret.Labels[engine.LabelOwner] == ""
	switch {
	case theirs:
		_, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		o.seen.TLS.Broken = found && err != nil
		return nil
	case o.pairs == nil:
		o.seen.TLS.Own = &certs.Pair{Roots: []byte{}, Certificate: []byte{}, Key: []byte{}}
		return nil
	}
	have, err := o.ownPair(ctx, secret)
	if err != nil {
		return err
	}
	pair, at, err := o.pairs.Take(o.registry.UID, o.registry.Name, o.seen.Now, hostsOf(o.registry), have)
	o.seen.TLS = TLS{Own: &pair, RenewAt: at}
	return err
}

// ownPair is what our Secret holds. One that was deleted counts as such also while it is remembered: whoever deleted it
// wants another key.
func (o *observer) ownPair(ctx context.Context, secret *corev1.Secret) (certs.Pair, error) {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	head.Namespace, head.Name = o.registry.Namespace, o.registry.Name+proxySuffix
	if found, err := exists(o.Child(ctx, head)); err != nil || !found {
		return certs.Pair{}, err
	}
	return certs.Pair{Roots: secret.Data[caKey], Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}, nil
}

// certificate is the Secret that our own pair is kept in.
func (p *planner) certificate() *corev1.Secret {
	pair := p.seen.TLS.Own
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: p.meta(p.name() + proxySuffix), Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{caKey: pair.Roots, corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key},
	}
}
