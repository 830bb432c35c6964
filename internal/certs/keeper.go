// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=system
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=modelplane-webhook-cert,verbs=get;list;watch;update,namespace=system
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch;patch

// Source says where certificates come from.
type Source string

const (
	// Self makes, rotates and injects certificates without help.
	Self Source = "self"
	// Dir reads tls.crt, tls.key and, if present, ca.crt from a directory, and injects ca.crt.
	Dir Source = "dir"
	// CertManager reads a directory and leaves injection to cert-manager's annotation.
	CertManager Source = "cert-manager"
)

// Sources are the values a user may choose from.
var Sources = []Source{Self, Dir, CertManager}

// DefaultSecret is the Secret of self mode.
const DefaultSecret = "modelplane-webhook-cert"

// longestWait bounds how long a decision rests on timers alone: these stand still while a machine sleeps. Looking again
// reads memory only.
const longestWait = time.Hour

// Options says what to keep certificates for.
type Options struct {
	Source    Source
	Namespace string   // ours
	Secret    string   // default DefaultSecret
	Service   string   // the webhook Service in Namespace
	Former    []string // further names of that Service, by which configurations of others call the webhooks
	Aliases   []string // further Services that lead to this process, for example the metrics Service
	URL       *url.URL // set when the API server reaches the webhooks by URL instead of the Service
	Dir       string   // for Dir and CertManager
	Lifetimes Lifetimes
	Clock     clock.Clock // default the real one
	Log       logr.Logger
}

// Keeper keeps the serving certificate and the API server's trust in it.
type Keeper struct {
	opts     Options
	client   client.Client // live
	cache    cache.Cache   // our Secret and our webhook configurations, nothing else
	injector *injector
	slot     slot
	injected atomic.Bool
	wake     chan struct{}
}

// New prepares a keeper; nothing is read or written before Run.
func New(cfg *rest.Config, opts Options) (*Keeper, error) {
	if opts.Secret == "" {
		opts.Secret = DefaultSecret
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	opts.Lifetimes = opts.Lifetimes.withDefaults()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionv1.AddToScheme, apiextensionsv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	cfg = rest.CopyConfig(cfg)
	// The API server warns of a TLS Secret that is still empty, which is how ours begins.
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	mapper := newMapper()
	live, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make the client for certificates: %w", err)
	}
	cached, err := cache.New(cfg, cacheOptions(scheme, mapper, opts))
	if err != nil {
		return nil, fmt.Errorf("make the cache for certificates: %w", err)
	}
	return &Keeper{
		opts:   opts,
		client: live,
		cache:  cached,
		injector: &injector{
			client:  live,
			service: serviceRef{Namespace: opts.Namespace, Name: opts.Service},
			former:  opts.Former,
			base:    opts.URL,
			log:     opts.Log,
		},
		wake: make(chan struct{}, 1),
	}, nil
}

// newMapper knows the four kinds, which every cluster has, without asking.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	for _, kind := range []schema.GroupVersionKind{validatingKind, mutatingKind, crdKind} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	return mapper
}

// cacheOptions keeps memory small in any cluster: one Secret, and of each CRD only how it is converted.
func cacheOptions(scheme *runtime.Scheme, mapper meta.RESTMapper, opts Options) cache.Options {
	mine := cache.ByObject{Label: selector(), Transform: cache.TransformStripManagedFields()}
	crds := cache.ByObject{Label: selector(), Transform: keepConversion}
	return cache.Options{
		Scheme: scheme,
		Mapper: mapper,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{opts.Namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", opts.Secret),
				Transform:     cache.TransformStripManagedFields(),
			}}},
			&admissionv1.ValidatingWebhookConfiguration{}: mine,
			&admissionv1.MutatingWebhookConfiguration{}:   mine,
			&apiextensionsv1.CustomResourceDefinition{}:   crds,
		},
	}
}

func keepConversion(in any) (any, error) {
	crd, ok := in.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return in, nil
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, ResourceVersion: crd.ResourceVersion, Labels: crd.Labels},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Conversion: crd.Spec.Conversion},
	}, nil
}

// GetCertificate serves handshakes; it fits tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	current := k.slot.get()
	if current.cert == nil {
		return nil, ErrNoCertificate
	}
	return current.cert, nil
}

// Check is a readiness check: there is a valid certificate, and the API server has been told to trust it. Trust that is
// taken away later is repaired by Run and does not make a replica unready, since no other would do better.
func (k *Keeper) Check(*http.Request) error {
	if err := k.slot.check(k.opts.Clock.Now()); err != nil {
		return err
	}
	if !k.injected.Load() {
		return errors.New("the webhook configurations do not carry the trusted roots yet")
	}
	return nil
}

// Run keeps certificates until the context ends. It runs on every replica, leader or not, and before any cache that
// may depend on a conversion webhook.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- k.cache.Start(ctx) }()
	defer func() { cancel(); <-stopped }()

	// Files are served at once; they need no API server.
	sync := k.syncSelf
	if k.opts.Source != Self {
		files, err := k.watchDir(ctx)
		if err != nil {
			return err
		}
		sync = files.sync
	}
	if err := k.watchObjects(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if !k.cache.WaitForCacheSync(ctx) {
		return nil
	}
	return k.loop(ctx, sync)
}

// watchObjects wakes the loop on every change of the objects that matter.
func (k *Keeper) watchObjects(ctx context.Context) error {
	kinds := []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{},
		&admissionv1.MutatingWebhookConfiguration{},
		&apiextensionsv1.CustomResourceDefinition{},
	}
	if k.opts.Source == Self {
		kinds = append(kinds, &corev1.Secret{})
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { k.poke() },
		UpdateFunc: func(any, any) { k.poke() },
		DeleteFunc: func(any) { k.poke() },
	}
	for _, kind := range kinds {
		informer, err := k.cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

// poke wakes the loop; several pokes before it looks are one.
func (k *Keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// loop calls sync whenever something changed, the time it asked for has come, or it failed and some time has passed.
// Failures wait in real time, whatever the injected clock says.
func (k *Keeper) loop(ctx context.Context, sync func(context.Context) (time.Time, error)) error {
	fresh := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 9, Cap: 30 * time.Second}
	backoff := fresh
	for {
		at, err := sync(ctx)
		var retry <-chan time.Time
		switch {
		case err == nil:
			backoff = fresh
		case ctx.Err() == nil:
			delay := backoff.Step()
			k.opts.Log.Error(err, "Certificates are not up to date; trying again", "after", delay.Round(time.Millisecond))
			retry = time.After(delay)
			at = k.opts.Clock.Now().Add(longestWait)
		}
		if !k.rest(ctx, at, retry) {
			return nil
		}
	}
}

// rest waits for a change, the time or the retry, and tells whether to go on. The clock is read again once the timer
// runs: it may have jumped past the time just before.
func (k *Keeper) rest(ctx context.Context, at time.Time, retry <-chan time.Time) bool {
	timer := k.opts.Clock.NewTimer(min(at.Sub(k.opts.Clock.Now()), longestWait))
	defer timer.Stop()
	if !k.opts.Clock.Now().Before(at) {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
	case <-k.wake:
	case <-timer.C():
	case <-retry:
	}
	return ctx.Err() == nil
}

// hosts are the names and addresses under which the API server and scrapers reach this process.
func (k *Keeper) hosts() []string {
	var hosts []string
	for _, service := range slices.Concat([]string{k.opts.Service}, k.opts.Former, k.opts.Aliases) {
		if service == "" {
			continue
		}
		qualified := service + "." + k.opts.Namespace
		hosts = append(hosts, service, qualified, qualified+".svc", qualified+".svc.cluster.local")
	}
	if k.opts.URL != nil {
		hosts = append(hosts, k.opts.URL.Hostname())
	}
	return hosts
}
