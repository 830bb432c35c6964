// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/config"
)

// Getter reads one object.
type Getter interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
}

// Gather reads the secrets that Inject needs for a source, and no others.
func Gather(ctx context.Context, g Getter, namespace, serviceAccount string, annotations map[string]string, s Source, cfg *config.Config) (Secrets, error) {
	if !NeedsSecrets(s, annotations, cfg) {
		return Secrets{}, nil
	}
	if s.Spec == nil || len(s.URIs) > 0 {
		return GatherAccount(ctx, g, namespace, serviceAccount, annotations, cfg)
	}
	name := secretName(annotations, cfg.Credentials)
	secret, err := getSecret(ctx, g, namespace, name)
	named := s.Spec.StorageKey != nil && *s.Spec.StorageKey != ""
	switch {
	case apierrors.IsNotFound(err) && !named: // the defaults need not exist
		return Secrets{}, nil
	case apierrors.IsNotFound(err):
		return Secrets{}, fmt.Errorf("storage.key: there is no Secret %s in namespace %s to find key %s in; create it, or name another in annotation %s",
			name, namespace, *s.Spec.StorageKey, cfg.Credentials.StorageSecretNameAnnotation)
	case err != nil:
		return Secrets{}, fmt.Errorf("read the storage Secret %s in namespace %s: %w", name, namespace, err)
	}
	return Secrets{Secrets: map[string]*corev1.Secret{name: secret}}, nil
}

// NeedsSecrets tells whether Gather reads any.
func NeedsSecrets(s Source, annotations map[string]string, cfg *config.Config) bool {
	in := Injection{Source: s, Annotations: annotations}
	return !in.pulled() && needsCredentials(s, cfg.StorageInitializer)
}

// needsCredentials is true when anything is downloaded.
func needsCredentials(s Source, cfg config.StorageInitializer) bool {
	for _, m := range s.models() {
		mode, uri, err := ociMode(m.Uri, cfg)
		if err == nil && (mode == config.OCIFetch || mode == "" && schemeOf(uri) != schemePVC) {
			return true
		}
	}
	return false
}

// GatherAccount reads a service account and the secrets that count for a pod of
// it. An account that does not exist has none; a secret that does not is a
// mistake that would show as a failed download only.
func GatherAccount(ctx context.Context, g Getter, namespace, name string, annotations map[string]string, cfg *config.Config) (Secrets, error) {
	if name == "" {
		name = "default"
	}
	account := &corev1.ServiceAccount{}
	err := g.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, account)
	if apierrors.IsNotFound(err) {
		return Secrets{}, nil
	}
	if err != nil {
		return Secrets{}, fmt.Errorf("read ServiceAccount %s in namespace %s: %w", name, namespace, err)
	}
	out := Secrets{ServiceAccount: account, Secrets: map[string]*corev1.Secret{}}
	for _, secretName := range accountSecrets(account, annotations, cfg.Credentials) {
		if out.Secrets[secretName] != nil {
			continue
		}
		secret, err := getSecret(ctx, g, namespace, secretName)
		switch {
		case apierrors.IsNotFound(err):
			return Secrets{}, fmt.Errorf("there is no Secret %s in namespace %s, which %s names; create it, or remove the name",
				secretName, namespace, namedBy(account, annotations, cfg.Credentials))
		case err != nil:
			return Secrets{}, fmt.Errorf("read Secret %s in namespace %s: %w", secretName, namespace, err)
		}
		out.Secrets[secretName] = secret
	}
	return out, nil
}

// namedBy says for a person where the name of a secret comes from.
func namedBy(account *corev1.ServiceAccount, annotations map[string]string, cfg config.Credentials) string {
	if annotations[cfg.StorageSecretNameAnnotation] != "" {
		return "annotation " + cfg.StorageSecretNameAnnotation
	}
	return "ServiceAccount " + account.Name
}

func getSecret(ctx context.Context, g Getter, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := g.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	return secret, err
}
