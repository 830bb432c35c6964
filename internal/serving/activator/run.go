// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/serving/activation"
)

// Options are what a replica is told.
type Options struct {
	Log  *slog.Logger
	Kube *rest.Config
	// Namespace and Service are those of the activator's own Service, by which replicas find each other; its Lease and the
	// Secret with their key have the same name.
	Namespace, Service string
	// Name tells the replica from others, Address is where these reach it.
	Name, Address string
	// WatchNamespaces are those of the services; empty: all.
	WatchNamespaces []string

	Listen, Peers, Health, Metrics string

	Tuning
	// Hold is how long a request waits for a pod at most; PerService and Total how many may wait.
	Hold              time.Duration
	PerService, Total int64

	Delay, Timeout time.Duration
}

// Check refuses what cannot be meant.
func (o Options) Check() error {
	switch {
	case o.Namespace == "" || o.Service == "":
		return errors.New("--namespace and --service must say where the activator's own Service is")
	case o.Address == "":
		return errors.New("--address must say where other replicas reach this one; in a pod it is POD_IP")
	case o.Window < time.Second || o.Window > time.Hour:
		return errors.New("--stable-window must be between 1s and 1h")
	case o.Panic < time.Second || o.Panic > o.Window:
		return errors.New("--panic-window must be at least 1s, and not more than --stable-window")
	case o.Idle < 0 || o.DownDelay < 0 || o.DownDelay > time.Hour || o.Hold < time.Second:
		return errors.New("--idle and --scale-down-delay must not be negative, --scale-down-delay at most 1h, and --hold-timeout at least 1s")
	case o.PerService < 1 || o.Total < 1:
		return errors.New("--max-held and --max-held-per-service must be at least 1")
	}
	return nil
}

// clients are the parts of the API that the activator uses.
type clients struct {
	core    *coreclient.CoreV1Client
	slices  *discoveryclient.DiscoveryV1Client
	apps    *appsclient.AppsV1Client
	leases  *coordinationclient.CoordinationV1Client
	options Options
}

func newClients(o Options) (*clients, error) {
	c := &clients{options: o}
	var errs [4]error
	c.core, errs[0] = coreclient.NewForConfig(o.Kube)
	c.slices, errs[1] = discoveryclient.NewForConfig(o.Kube)
	c.apps, errs[2] = appsclient.NewForConfig(o.Kube)
	c.leases, errs[3] = coordinationclient.NewForConfig(o.Kube)
	return c, errors.Join(errs[:]...)
}

// idleConnection is longer than gateways keep connections that they do not use, so that none is closed under a request.
const idleConnection = 2 * time.Hour

// Run serves until the context ends. What it knows of services it goes on learning until the last request is answered.
func Run(ctx context.Context, o Options) error {
	c, err := newClients(o)
	if err != nil {
		return fmt.Errorf("prepare to talk to the API server: %w", err)
	}
	key, err := c.key(ctx)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	registry := process.NewRegistry("activator")
	s := &scales{deployments: c.apps, log: o.Log}
	own := func() []byte { return key }
	known := newTable(&bounds{perService: o.PerService, total: o.Total}, s.wake, own)
	m := newMetrics(registry, known)
	s.metrics = m
	me := newReplica(known, own)
	others := &peers{own: o.Address, self: self{me}, key: own, client: &http.Client{Timeout: 2 * look}}
	informers, err := c.informers(newWatcher(known, others, m, o.Log))
	if err != nil {
		return err
	}
	synced := start(life, informers)
	lead := &leader{table: known, peers: others, scales: s, tuning: o.Tuning, metrics: m, log: o.Log}
	health := process.Health{Ready: map[string]process.Check{
		"stopping": process.Stopping(ctx),
		"services": func(*http.Request) error {
			if !synced() {
				return errors.New("not all services are known yet")
			}
			return nil
		},
	}}
	return process.Program{
		Log: o.Log,
		Servers: []process.Server{{Name: "requests", Address: o.Listen, Handler: newProxy(known, o.Hold, others.owner, m, o.Log), H2C: true,
			Limits: process.Limits{Read: -1, Write: -1, Body: -1, Idle: idleConnection, HeaderBytes: headerBytes}}},
		Aside: []process.Server{
			{Name: "peers", Address: o.Peers, Handler: me.handler()},
			{Name: "health", Address: o.Health, Handler: health.Handler(o.Log)},
			{Name: "metrics", Address: o.Metrics, Handler: process.Metrics(registry, nil, o.Log)},
		},
		Tasks: []func(context.Context) error{func(ctx context.Context) error { return c.elect(ctx, lead, synced) }},
		Delay: o.Delay, Timeout: o.Timeout,
	}.Run(ctx)
}

// informers watch the Services and EndpointSlices that are ours, and the activator's own.
func (c *clients) informers(w *watcher) ([]*informer, error) {
	namespaces := c.options.WatchNamespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	ours := labels.Set{activation.Label: activation.LabelValue}.String()
	var out []*informer
	var errs []error
	add := func(i *informer, err error) { out, errs = append(out, i), append(errs, err) }
	for _, ns := range namespaces {
		add(newInformer(c.core.RESTClient(), "services", ns, ours, &corev1.Service{}, trimService, handler(w.putService, w.removeService)))
		add(newInformer(c.slices.RESTClient(), "endpointslices", ns, ours, &discoveryv1.EndpointSlice{}, trimSlice, handler(w.putSlice, w.removeSlice)))
	}
	own := labels.Set{discoveryv1.LabelServiceName: c.options.Service}.String()
	add(newInformer(c.slices.RESTClient(), "endpointslices", c.options.Namespace, own, &discoveryv1.EndpointSlice{}, trimSlice, handler(w.putOwn, w.removeOwn)))
	return out, errors.Join(errs...)
}

// A leader that is gone is missed only by those who would scale between one and many, so that it need not be fast.
const (
	leaseLasts  = 20 * time.Second
	leaseRenews = 15 * time.Second
	leaseTries  = 4 * time.Second
)

// elect leads whenever this replica is the one to lead.
func (c *clients) elect(ctx context.Context, l *leader, synced func() bool) error {
	if !cache.WaitForCacheSync(ctx.Done(), synced) {
		return nil // asked to stop
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: c.options.Namespace, Name: c.options.Service},
		Client:     c.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.options.Name},
	}
	for ctx.Err() == nil {
		var ended = make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: leaseLasts, RenewDeadline: leaseRenews, RetryPeriod: leaseTries, ReleaseOnCancel: true, Name: c.options.Service,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					defer close(ended)
					l.log.Info("Leading")
					l.metrics.leading.Set(1)
					defer l.metrics.leading.Set(0)
					l.lead(ctx)
				},
				OnStoppedLeading: func() { l.log.Info("Not leading any more") },
			},
		})
		if err != nil {
			return fmt.Errorf("prepare the election of a leader: %w", err)
		}
		elector.Run(ctx)
		if ctx.Err() == nil {
			<-ended // the next term begins when this one is over
		}
	}
	return nil
}

// secretKey is where the Secret holds what replicas know each other by.
const secretKey = "key"

// key reads what replicas know each other by, and makes it if this is the first of them. The Secret itself is the
// installation's to make.
func (c *clients) key(ctx context.Context) ([]byte, error) {
	secrets := c.core.Secrets(c.options.Namespace)
	for {
		secret, err := secrets.Get(ctx, c.options.Service, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the key of the replicas: %w", err)
		}
		if key := secret.Data[secretKey]; len(key) > 0 {
			return key, nil
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[secretKey] = []byte(rand.Text())
		if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: "modelplane-activator"}); err != nil && !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("write the key of the replicas: %w", err)
		}
	}
}
