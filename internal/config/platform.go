// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader is the part of the engine's reader that the configuration is read through, so that whoever asked is woken when
// it changes.
type Reader interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
	GetUncached(ctx context.Context, key client.ObjectKey, obj client.Object) error
}

// Platform is the configuration as decisions read it.
type Platform struct {
	// Namespace is where the ConfigMap lives. Empty means wherever one is found, which is right without a cluster.
	Namespace string
	lastGood  *LastGood
}

// NewPlatform has read nothing yet.
func NewPlatform() *Platform { return &Platform{lastGood: NewLastGood()} }

// Read returns the configuration that holds and the namespace it lives in.
func (p *Platform) Read(ctx context.Context, r Reader) (*Config, string, error) {
	cm, err := p.find(ctx, r)
	if err != nil {
		return nil, "", err
	}
	cfg, _ := p.lastGood.Read(cm) // what is wrong with it is told by the Watcher, on the ConfigMap itself
	if cm == nil {
		return cfg, p.Namespace, nil
	}
	return cfg, cm.Namespace, nil
}

func (p *Platform) find(ctx context.Context, r Reader) (*corev1.ConfigMap, error) {
	if p.Namespace != "" {
		return Content(ctx, r, p.Namespace, Name)
	}
	list := &corev1.ConfigMapList{}
	if err := r.List(ctx, list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == Name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// Content reads a ConfigMap in full, nil if there is none of that name.
func Content(ctx context.Context, r Reader, namespace, name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	err := r.GetUncached(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cm, err
}
