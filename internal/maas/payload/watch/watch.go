// SPDX-License-Identifier: Apache-2.0

// Package watch feeds the payload processor's directory from Kubernetes: ExternalModels of both kinds, ExternalProviders, and
// Secrets that are labelled for it, in the namespaces of one tenant and nowhere else. Which those are may change while it runs. It writes nothing. APIs that a cluster does not have
// yet are waited for without holding up the rest.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
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
	maas "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
)

// SecretLabel and its value mark the Secrets that the processor may see.
const (
	SecretLabel      = "inference.llm-d.ai/ipp-managed"
	SecretLabelValue = "true"
)

// Watcher keeps a table as the API server describes it.
type Watcher struct {
	table *directory.Table
	log   *slog.Logger
	// core, inference and former are clients of the groups that are read.
	core, inference, former cache.Getter
	// always are the namespaces that are watched whatever the file says.
	always []string
	file   string

	mu    sync.Mutex
	known map[string]*namespace
}

// namespace is what is watched in one.
type namespace struct {
	sources []*source
	// first tells that it was there at the start: the process is not ready without it. Of one that comes later the others do not
	// have to know.
	first bool
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// source is one kind in one namespace.
type source struct {
	what     string
	informer cache.SharedIndexInformer
	absent   atomic.Bool // the cluster does not have the API
	failed   atomic.Pointer[string]
}

// New prepares to watch namespaces, and those that a file names, if there is one.
func New(cfg *rest.Config, namespaces []string, file string, table *directory.Table, log *slog.Logger) (*Watcher, error) {
	w := &Watcher{table: table, log: log, always: namespaces, file: file, known: map[string]*namespace{}}
	var err error
	if w.core, err = clientFor(cfg, corev1.SchemeGroupVersion, "/api", corev1.AddToScheme); err != nil {
		return nil, err
	}
	if w.inference, err = clientFor(cfg, v1alpha1.GroupVersion, "/apis", v1alpha1.AddToScheme); err != nil {
		return nil, err
	}
	if w.former, err = clientFor(cfg, maas.GroupVersion, "/apis", maas.AddToScheme); err != nil {
		return nil, err
	}
	wanted, err := w.wanted()
	if err != nil {
		log.Warn("The file of namespaces cannot be read; it is read when it is there", "file", file, "err", err.Error())
		wanted = namespaces
	}
	for _, name := range wanted {
		ns, err := w.prepare(name)
		if err != nil {
			return nil, err
		}
		ns.first = true
		w.known[name] = ns
	}
	return w, nil
}

// prepare makes what watches a namespace.
func (w *Watcher) prepare(name string) (*namespace, error) {
	labelled := SecretLabel + "=" + SecretLabelValue
	ns := &namespace{}
	for _, kind := range []struct {
		from               cache.Getter
		resource, selector string
		of                 runtime.Object
		handle             cache.ResourceEventHandler
	}{
		{w.inference, "externalproviders", "", &v1alpha1.ExternalProvider{}, handler(w.putProvider, w.removeProvider)},
		{w.inference, "externalmodels", "", &v1alpha1.ExternalModel{}, handler(w.putModel, w.removeModel)},
		{w.former, "externalmodels", "", &maas.ExternalModel{}, handler(w.putFormer, w.removeFormer)},
		{w.core, "secrets", labelled, &corev1.Secret{}, handler(w.putSecret, w.removeSecret)},
	} {
		s, err := newSource(kind.from, kind.resource, name, kind.selector, kind.of, kind.handle)
		if err != nil {
			return nil, err
		}
		ns.sources = append(ns.sources, s)
	}
	return ns, nil
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

func newSource(from cache.Getter, resource, namespace, selector string, of runtime.Object, handle cache.ResourceEventHandler) (*source, error) {
	s := &source{what: resource + " of namespace " + namespace}
	list := cache.NewFilteredListWatchFromClient(from, resource, namespace, func(o *metav1.ListOptions) { o.LabelSelector = selector })
	s.informer = cache.NewSharedIndexInformer(list, of, 0, cache.Indexers{})
	if err := s.informer.SetTransform(trim); err != nil {
		return nil, err
	}
	if err := s.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		s.absent.Store(apierrors.IsNotFound(err))
		if !apierrors.IsNotFound(err) {
			text := err.Error()
			s.failed.Store(&text)
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	}); err != nil {
		return nil, err
	}
	_, err := s.informer.AddEventHandler(handle)
	return s, err
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
	w.mu.Lock()
	for _, ns := range w.known {
		ns.start(ctx)
	}
	w.mu.Unlock()
	defer w.end()
	if w.file == "" {
		<-ctx.Done()
		return nil
	}
	return w.follow(ctx)
}

func (ns *namespace) start(ctx context.Context) {
	ctx, ns.stop = context.WithCancel(ctx)
	for _, s := range ns.sources {
		ns.done.Go(func() { s.informer.RunWithContext(ctx) })
	}
}

// end waits for everything that was started.
func (w *Watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ns := range w.known {
		ns.stop()
		ns.done.Wait()
	}
}

// Ready says what is not known yet of what was there at the start.
func (w *Watcher) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		if ns := w.known[name]; ns.first {
			missing = append(missing, ns.missing()...)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not known yet: %s", strings.Join(missing, "; "))
	}
	return nil
}

func (ns *namespace) missing() []string {
	var out []string
	for _, s := range ns.sources {
		if s.informer.HasSynced() || s.absent.Load() {
			continue
		}
		text := s.what
		if failed := s.failed.Load(); failed != nil {
			text += ": " + *failed
		}
		out = append(out, text)
	}
	return out
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

// putFormer takes an ExternalModel of the former kind, which is its own provider: that of Anthropic speaks messages, those of Azure
// chat completions, and all others what OpenAI speaks.
func (w *Watcher) putFormer(m *maas.ExternalModel) {
	key := keyOf(m)
	p := directory.Provider{
		Name: m.Name, Kind: m.Spec.Provider, Endpoint: m.Spec.Endpoint, TargetModel: m.Spec.TargetModel, Weight: 1, Config: map[string]string{},
		Auth: directory.Auth{Type: string(v1alpha1.AuthAPIKey), Secret: directory.Key{Namespace: m.Namespace, Name: m.Spec.CredentialRef.Name}},
	}
	switch p.Kind {
	case "anthropic":
		p.Format, p.Path = "messages", "/v1/messages"
	case "azure", "azure-openai":
		p.Format, p.Path = "openai-chat", "/openai/v1/chat/completions"
	}
	w.table.PutFormer(key, directory.Former{Created: m.CreationTimestamp.Time, Provider: p})
}

func (w *Watcher) removeFormer(m *maas.ExternalModel) { w.table.RemoveFormer(keyOf(m)) }
