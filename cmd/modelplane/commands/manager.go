// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/version"
)

// managerFlags is what the command line says, before it is understood.
type managerFlags struct {
	enable     []string
	kubeconfig string
	qps        float32
	burst      int
	certSource string
	log        process.LogOptions
	options    manager.Options

	// Understood by check.
	handler slog.Handler
}

func newManagerCommand() *cobra.Command {
	var f managerFlags
	c := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers and webhooks",
		Long: "Run the controllers and webhooks.\n\n" +
			"A flag that is not given is taken from the environment: --log-level from " + command.EnvName("log-level") +
			", and so on.",
		Args: cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error {
			if err := command.FromEnv(c.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return f.check()
		},
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	f.register(c)
	return c
}

func (f *managerFlags) register(c *cobra.Command) {
	flags, o := c.Flags(), &f.options
	known := domains.Names()
	flags.StringSliceVar(&f.enable, "enable", known, "domains to serve, separated by commas")
	flags.StringVar(&o.Namespace, "namespace", "",
		"the manager's own namespace (default POD_NAMESPACE, the pod's namespace, or "+defaultNamespace+")")
	flags.StringSliceVar(&o.WatchNamespaces, "watch-namespace", nil,
		"namespaces whose objects are looked after, separated by commas or given several times (default: all)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the cluster (default KUBECONFIG, the pod's account, or ~/.kube/config)")
	flags.Float32Var(&f.qps, "kube-api-qps", 500, "requests per second to the API server, per kind; it protects itself as well; -1: no limit")
	flags.IntVar(&f.burst, "kube-api-burst", 1000, "requests to the API server at once, per kind")
	flags.BoolVar(&o.LeaderElection, "leader-elect", true, "let one of several replicas reconcile")
	flags.IntVar(&o.Workers, "workers", 10, "objects of one kind reconciled at the same time")

	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0: off")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "address of /metrics, over HTTPS, for those whom the API server permits; 0: off")
	flags.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "", "directory with tls.crt and tls.key for metrics (default: the webhook certificate)")
	flags.StringVar(&o.MetricsService, "metrics-service", "modelplane-metrics", "Service that leads to the metrics endpoint; the certificate is good for it")
	flags.StringVar(&o.ProfilingAddress, "profiling-bind-address", "0", "address of /debug/pprof/; 0: off")
	flags.BoolVar(&o.ProfilingAllowRemote, "profiling-allow-remote", false, "permit a profiling address that other machines can reach")

	flags.StringVar(&o.WebhookHost, "webhook-host", "", "address that webhooks listen on (default all)")
	flags.IntVar(&o.WebhookPort, "webhook-port", 9443, "port that webhooks listen on")
	flags.StringVar(&o.WebhookService, "webhook-service", "modelplane-webhook", "Service through which the API server reaches the webhooks")
	flags.StringSliceVar(&o.WebhookAliases, "webhook-alias", nil,
		"further Services that lead to the webhooks, by whose names configurations of an earlier installation call them; the certificate is good for them")
	flags.StringVar(&o.WebhookURL, "webhook-url", "", "https://host:port at which the API server reaches the webhooks of a manager outside the cluster")
	flags.StringVar(&f.certSource, "webhook-cert-source", string(certs.Self), "where webhook certificates come from: self, dir or cert-manager")
	flags.StringVar(&o.CertDir, "webhook-cert-dir", "", "directory with tls.crt and tls.key (and ca.crt) for dir and cert-manager")
	flags.StringVar(&o.WebhookClientCA, "webhook-client-ca", "",
		"file with the certificate authorities of the API server's client certificate, without which admission is refused (default: anybody may ask)")
	flags.StringSliceVar(&o.WebhookClientNames, "webhook-client-names", nil,
		"names in client certificates that may ask for admission (default: any that --webhook-client-ca has signed)")
	flags.BoolVar(&o.HTTP2, "enable-http2", false, "offer HTTP/2 for webhooks and metrics")

	flags.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.log.Format, "log-format", "json", "json or text")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay", 5*time.Second, "how long webhooks are still accepted after the signal to stop")
	flags.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", 25*time.Second, "bound on the whole shutdown")
}

// check understands the flags; whatever it refuses is a wrong call.
func (f *managerFlags) check() error {
	if f.options.Namespace == "" {
		f.options.Namespace = ownNamespace(os.Getenv, os.ReadFile)
	}
	f.options.PodUID = os.Getenv("POD_UID")
	f.options.CertSource = certs.Source(f.certSource)
	var err error
	if f.enable, err = manager.Wanted(domains.Names(), f.enable); err != nil {
		return err
	}
	f.log.Detail = manager.Detail
	if f.handler, err = process.NewLogHandler(os.Stderr, f.log); err != nil {
		return err
	}
	if f.burst < 1 {
		return fmt.Errorf("--kube-api-burst must be at least 1, not %d", f.burst)
	}
	return f.options.Validate()
}

func (f *managerFlags) run(ctx context.Context) error {
	log := setLog(f.handler)
	f.options.Log = log
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	cfg, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = f.qps, f.burst
	cfg.UserAgent = "modelplane-manager/" + version.Get().Version
	f.options.Cache = engine.CacheOptions(f.options.Scope())
	all, err := domains.All()
	if err != nil {
		return err
	}
	enabled, err := manager.Select(all, f.enable)
	if err != nil {
		return err
	}
	log.Info("Starting", "version", version.Get().Version, "domains", manager.Names(enabled),
		"namespace", f.options.Namespace)
	frugal()
	if err := manager.Run(ctx, cfg, f.options, enabled); err != nil {
		log.Error(err, "Stopped because of a failure")
		return &command.Failure{Err: err, Logged: true}
	}
	log.Info("Stopped")
	return nil
}

const (
	defaultNamespace = "modelplane-system"
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

func ownNamespace(getenv func(string) string, readFile func(string) ([]byte, error)) string {
	if namespace := getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	if data, err := readFile(podNamespaceFile); err == nil && len(data) > 0 {
		return strings.TrimSpace(string(data))
	}
	return defaultNamespace
}

// restConfig finds the cluster: the flag, KUBECONFIG, the pod's account, the file in the home directory, in that order.
func restConfig(path string) (*rest.Config, error) {
	if path == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		cfg, err := rest.InClusterConfig()
		if err == nil || !errors.Is(err, rest.ErrNotInCluster) {
			return cfg, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster to talk to: give --kubeconfig, set KUBECONFIG, or run inside a cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return cfg, nil
}

// frugal lets the heap grow by half before it is collected, not to the double.
// Most of it are caches, which stay; the processor time is a few percent more.
func frugal() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}
