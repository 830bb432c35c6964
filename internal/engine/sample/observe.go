// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

// Seen is everything that the decision depends on.
type Seen struct {
	// From and Secret are the copied values, nil while their sources are absent.
	From, Secret *string
	// Deployment is the live one, nil while there is none.
	Deployment *appsv1.Deployment
}

// Observe implements engine.Kind.
func (Kind) Observe(ctx context.Context, r engine.Reader, s *Sample) (Seen, error) {
	seen := Seen{}
	if s.Spec.From != "" {
		cm := &corev1.ConfigMap{}
		if err := r.GetUncached(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.From}, cm); client.IgnoreNotFound(err) != nil {
			return seen, err
		} else if err == nil {
			value := cm.Data["value"]
			seen.From = &value
		}
	}
	if s.Spec.SecretFrom != "" {
		secret := &corev1.Secret{}
		if err := r.GetUncached(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.SecretFrom}, secret); client.IgnoreNotFound(err) != nil {
			return seen, err
		} else if err == nil {
			value := string(secret.Data["value"])
			seen.Secret = &value
		}
	}
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = s.Namespace, s.Name
	if err := r.Child(ctx, d); client.IgnoreNotFound(err) != nil {
		return seen, err
	} else if err == nil {
		seen.Deployment = d
	}
	return seen, nil
}
