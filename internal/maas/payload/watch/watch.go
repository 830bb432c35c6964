// SPDX-License-Identifier: Apache-2.0

// Package watch feeds the payload processor's directory from Kubernetes: ExternalModels, ExternalProviders, and Secrets that
// are labelled for it, in the namespaces of one tenant and nowhere else. It writes nothing. APIs that a cluster does not have
// yet are waited for without holding up the rest.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
)

// SecretLabel and its value mark the Secrets that the processor may see.
const (
	SecretLabel      = "inference.llm-d.ai/ipp-managed"
	SecretLabelValue = "true"
)

// Watcher keeps a table as the API server describes it.
type Watcher struct {
	table   *directory.Table
	log     *slog.Logger
	sources []*source
}

// source is one kind in one namespace.
type source struct {
	what     string
	informer cache.SharedIndexInformer
	absent   atomic.Bool // the cluster does not have the API
	failed   atomic.Pointer[string]
}

// New prepares to watch namespaces.
func New(cfg *rest.Config, namespaces []string, table *directory.Table, log *slog.Logger) (*Watcher, error) {
	w := &Watcher{table: table, log: log}
	core, err := clientFor(cfg, corev1.SchemeGroupVersion, "/api", corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	inference, err := clientFor(cfg, v1alpha1.GroupVersion, "/apis", v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	labelled := SecretLabel + "=" + SecretLabelValue
	for _, ns := range namespaces {
		for _, add := range []error{
			w.add(inference, "externalproviders", ns, "", &v1alpha1.ExternalProvider{}, handler(w.putProvider, w.removeProvider)),
			w.add(inference, "externalmodels", ns, "", &v1alpha1.ExternalModel{}, handler(w.putModel, w.removeModel)),
			w.add(core, "secrets", ns, labelled, &corev1.Secret{}, handler(w.putSecret, w.removeSecret)),
		} {
			if add != nil {
				return nil, add
			}
		}
	}
	return w, nil
}

func clientFor(cfg *rest.Config, version schema.GroupVersion, path string, add func(*runtime.Scheme) error) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &version, path, serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("prepare to talk to the API server: %w", err)
	}
	return client, nil
}

func (w *Watcher) add(from cache.Getter, resource, namespace, selector string, of runtime.Object, handle cache.ResourceEventHandler) error {
	s := &source{what: resource + " of namespace " + namespace}
	list := cache.NewFilteredListWatchFromClient(from, resource, namespace, func(o *metav1.ListOptions) { o.LabelSelector = selector })
	s.informer = cache.NewSharedIndexInformer(list, of, 0, cache.Indexers{})
	if err := s.informer.SetTransform(trim); err != nil {
		return err
	}
	if err := s.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		s.absent.Store(apierrors.IsNotFound(err))
		if !apierrors.IsNotFound(err) {
			text := err.Error()
			s.failed.Store(&text)
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	}); err != nil {
		return err
	}
	if _, err := s.informer.AddEventHandler(handle); err != nil {
		return err
	}
	w.sources = append(w.sources, s)
	return nil
}

// trim leaves what the directory is made of. What an apply left behind in an annotation may hold a Secret once more.
func trim(obj any) (any, error) {
	if o, is := obj.(metav1.Object); is {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
	}
	return obj, nil
}

// Run watches until the context ends.
func (w *Watcher) Run(ctx context.Context) error {
	for _, s := range w.sources {
		go s.informer.RunWithContext(ctx)
	}
	<-ctx.Done()
	return nil
}

// Ready says what is not known yet.
func (w *Watcher) Ready() error {
	var missing []string
	for _, s := range w.sources {
		if s.informer.HasSynced() || s.absent.Load() {
			continue
		}
		text := s.what
		if failed := s.failed.Load(); failed != nil {
			text += ": " + *failed
		}
		missing = append(missing, text)
	}
	if len(missing) > 0 {
		return fmt.Errorf("not known yet: %s", strings.Join(missing, "; "))
	}
	return nil
}

// handler calls put for what is there and remove for what is gone.
func handler[T any](put, remove func(T)) cache.ResourceEventHandler {
	call := func(do func(T)) func(any) {
		return func(obj any) {
			if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
				obj = gone.Obj
			}
			if o, is := obj.(T); is {
				do(o)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call(put), UpdateFunc: func(_, now any) { call(put)(now) }, DeleteFunc: call(remove)}
}

func keyOf(o metav1.Object) directory.Key {
	return directory.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func authOf(namespace string, a v1alpha1.Auth) directory.Auth {
	return directory.Auth{Type: string(a.Type), Secret: directory.Key{Namespace: namespace, Name: a.SecretRef.Name}}
}

func (w *Watcher) putProvider(p *v1alpha1.ExternalProvider) {
	w.table.PutProvider(keyOf(p), directory.ProviderSpec{
		Kind: p.Spec.Provider, Endpoint: p.Spec.Endpoint, Auth: authOf(p.Namespace, p.Spec.Auth), Config: p.Spec.Config,
	})
}

func (w *Watcher) removeProvider(p *v1alpha1.ExternalProvider) { w.table.RemoveProvider(keyOf(p)) }

func (w *Watcher) putModel(m *v1alpha1.ExternalModel) {
	spec := directory.ModelSpec{Name: m.Spec.ModelName, Created: m.CreationTimestamp.Time}
	for _, r := range m.Spec.ExternalProviderRefs {
		ref := directory.ProviderRef{
			Provider: r.Ref.Name, TargetModel: r.TargetModel, Format: r.APIFormat, Path: r.Path, Weight: 1, Config: r.Config,
		}
		if r.Weight != nil {
			ref.Weight = *r.Weight
		}
		if r.Auth != nil {
			auth := authOf(m.Namespace, *r.Auth)
			ref.Auth = &auth
		}
		spec.Refs = append(spec.Refs, ref)
	}
	w.table.PutModel(keyOf(m), spec)
}

func (w *Watcher) removeModel(m *v1alpha1.ExternalModel) { w.table.RemoveModel(keyOf(m)) }

func (w *Watcher) putSecret(s *corev1.Secret) { w.table.PutSecret(keyOf(s), s.Data) }

func (w *Watcher) removeSecret(s *corev1.Secret) { w.table.RemoveSecret(keyOf(s)) }
