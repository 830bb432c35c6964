// SPDX-License-Identifier: Apache-2.0

// Package manager is the long-running process: leader election, health, metrics, profiling, webhooks and their
// certificates, and an orderly end. Controllers and admission come in as domains; what they do is not known here, and
// nothing here reads or writes their objects, but to have them stored in the present version of their kind.
//
// Memory: the process keeps what its caches hold and little else. Options.Cache decides what that is. Set GOMEMLIMIT
// to about nine tenths of the container's memory limit, so that the collector works harder before the kernel steps in.
package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/process"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=system
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=modelplane-manager,verbs=get;update,namespace=system
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Run serves the domains until the context ends, which is a clean stop, or something fails, which is an error. Losing
// the lease is a failure: the caller ends the process, so that nothing half-led goes on.
func Run(ctx context.Context, cfg *rest.Config, opts Options, domains []Domain) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	if err := confine(opts.WatchNamespaces, domains); err != nil {
		return err
	}
	registerMetrics()
	keeper, err := newKeeper(cfg, opts)
	if err != nil {
		return err
	}
	server := newDrainingServer(ctx, opts, tlsOptions(opts, keeper.GetCertificate))
	mgr, err := newManager(ctx, cfg, opts, domains, keeper, server)
	if err != nil {
		return err
	}
	server.reader = admission.FromClient(mgr.GetClient())
	if err := addDomains(ctx, mgr, server, opts, domains); err != nil {
		return err
	}
	return start(ctx, mgr, keeper, opts.ShutdownTimeout)
}

// addDomains registers webhooks and controllers. Conversion is served for every kind in the scheme, enabled or not,
// since the API server cannot even list a kind that nobody converts.
func addDomains(ctx context.Context, mgr ctrl.Manager, server *drainingServer, opts Options, domains []Domain) error {
	server.registerConversion(conversion.NewWebhookHandler(mgr.GetScheme(), mgr.GetConverterRegistry()))
	var controllers []engine.Controller
	for _, d := range domains {
		controllers = append(controllers, d.Controllers...)
		if err := admission.Register(server, mgr.GetScheme(), d.Admission...); err != nil {
			return fmt.Errorf("set up the webhooks of %s: %w", d.Name, err)
		}
		if err := admission.RegisterGuards(server, mgr.GetScheme(), d.Guards...); err != nil {
			return fmt.Errorf("set up the webhooks of %s: %w", d.Name, err)
		}
		admission.RegisterHooks(server, d.Hooks...)
		if d.Setup == nil {
			continue
		}
		if err := d.Setup(ctx, mgr, SetupOptions{Namespace: opts.Namespace, Workers: opts.Workers, Watched: opts.Scope().Namespaces}); err != nil {
			return fmt.Errorf("set up %s: %w", d.Name, err)
		}
	}
	if len(controllers) == 0 {
		return nil
	}
	if err := addStored(mgr, opts, domains); err != nil {
		return err
	}
	e, err := engine.New(mgr, opts.Scope())
	if err != nil {
		return err
	}
	return e.Add(ctx, controllers...)
}

// start runs the manager with the certificates beside it. These come first and go last: the manager's own caches may
// wait for a conversion webhook, and requests in flight are answered to the end.
func start(ctx context.Context, mgr ctrl.Manager, keeper *certs.Keeper, grace time.Duration) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	kept := make(chan error, 1)
	go func() {
		err := keeper.Run(keeping)
		if err != nil {
			stop(fmt.Errorf("keep certificates: %w", err))
		}
		kept <- err
	}()
	err := engine.Start(ctx, mgr, grace)
	release()
	if failure := <-kept; failure != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

func newKeeper(cfg *rest.Config, opts Options) (*certs.Keeper, error) {
	base, err := opts.webhookURL()
	if err != nil {
		return nil, err
	}
	return certs.New(cfg, certs.Options{
		Source:    opts.CertSource,
		Namespace: opts.Namespace,
		Service:   opts.WebhookService,
		Former:    opts.WebhookAliases,
		Aliases:   []string{opts.MetricsService},
		URL:       base,
		Dir:       opts.CertDir,
		Lifetimes: opts.CertLifetimes,
		Clock:     opts.CertClock,
		Log:       opts.Log.WithName("certs"),
	})
}

// newManager puts the process together. Controller names need not be unique in the process, because a process may run
// a manager more than once, one after the other.
func newManager(ctx context.Context, cfg *rest.Config, opts Options, domains []Domain, keeper *certs.Keeper,
	server *drainingServer) (ctrl.Manager, error) {
	scheme, err := newScheme(domains)
	if err != nil {
		return nil, err
	}
	lock, err := newLock(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("prepare leader election: %w", err)
	}
	var elected resourcelock.Interface
	if lock != nil {
		elected, server.ended = lock, lock.giveUp
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                              scheme,
		Logger:                              quietStop(ctx, opts.Log),
		Cache:                               opts.Cache,
		Controller:                          config.Controller{MaxConcurrentReconciles: opts.Workers, SkipNameValidation: ptr.To(true)},
		LeaderElection:                      opts.LeaderElection,
		LeaderElectionReleaseOnCancel:       true,
		LeaderElectionResourceLockInterface: elected,
		LeaseDuration:                       nonZero(opts.Lease.Duration),
		RenewDeadline:                       nonZero(opts.Lease.RenewDeadline),
		RetryPeriod:                         nonZero(opts.Lease.RetryPeriod),
		HealthProbeBindAddress:              off,
		Metrics:                             metricsserver.Options{BindAddress: off},
		WebhookServer:                       server,
		GracefulShutdownTimeout:             &opts.ShutdownTimeout,
	})
	if err != nil {
		return nil, err
	}
	mgr.GetWebhookServer() // registers it as a runnable
	health, err := checks(ctx, mgr, keeper, server)
	if err != nil {
		return nil, err
	}
	return mgr, addServers(mgr, opts, health, keeper.GetCertificate)
}

func newScheme(domains []Domain) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	adders := []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme}
	for _, d := range domains {
		if d.AddToScheme != nil {
			adders = append(adders, d.AddToScheme)
		}
	}
	for _, add := range adders {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register types: %w", err)
		}
	}
	return scheme, nil
}

// getCertificate fits tls.Config.
type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// tlsConfig is the one place that decides how this process speaks TLS.
func tlsConfig(opts Options, get getCertificate) *tls.Config {
	c := process.TLS(get)
	if opts.HTTP2 {
		c.NextProtos = append([]string{"h2"}, c.NextProtos...)
	}
	return c
}

// tlsOptions is tlsConfig as controller-runtime takes it.
func tlsOptions(opts Options, get getCertificate) []func(*tls.Config) {
	return []func(*tls.Config){func(c *tls.Config) {
		wanted := tlsConfig(opts, get)
		c.MinVersion, c.GetCertificate, c.NextProtos = wanted.MinVersion, wanted.GetCertificate, wanted.NextProtos
	}}
}

// checks decide when a replica is ready: it has certificates that the API server trusts, it answers webhooks, its
// caches are filled, and nobody asked it to stop.
func checks(ctx context.Context, mgr ctrl.Manager, keeper *certs.Keeper, server *drainingServer) (process.Health, error) {
	var synced atomic.Bool
	if err := mgr.Add(afterCaches(func() { synced.Store(true) })); err != nil {
		return process.Health{}, err
	}
	ready := map[string]process.Check{
		"certificates": keeper.Check,
		"webhooks": func(req *http.Request) error {
			// Without a certificate the handshake of the check itself would fail, and fill the log.
			if _, err := keeper.GetCertificate(nil); err != nil {
				return err
			}
			return server.StartedChecker()(req)
		},
		"caches": func(*http.Request) error {
			if !synced.Load() {
				return errors.New("the caches are still being filled")
			}
			return nil
		},
		"shutdown": process.Stopping(ctx),
	}
	alive := func(*http.Request) error { return nil }
	return process.Health{Live: map[string]process.Check{"ping": alive}, Ready: ready}, nil
}

// afterCaches is called on every replica once the caches that were asked for before the start are filled.
type afterCaches func()

func (f afterCaches) Start(context.Context) error { f(); return nil }

func (f afterCaches) NeedLeaderElection() bool { return false }

func nonZero[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

var registerMetrics = sync.OnceFunc(func() { metrics.Registry.MustRegister(process.BuildInfo("manager")) })
