// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/serving/activator"
	"github.com/modelplane/modelplane/internal/version"
)

type activatorFlags struct {
	activator.Options
	kubeconfig string
	log        process.LogOptions
	handler    slog.Handler
}

func newActivatorCommand() *cobra.Command {
	var f activatorFlags
	c := &cobra.Command{
		Use:   "activator",
		Short: "Scale services by their traffic, to zero and back, and hold requests while pods come",
		Long: "Scale services by their traffic, to zero and back, and hold requests while pods come.\n\n" +
			"Requests for such services go through this process. Several replicas share them; one of them decides how many pods there " +
			"are.\n\nA flag that is not given is taken from the environment: --log-level from " + command.EnvName("log-level") +
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

func (f *activatorFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.Namespace, "namespace", "", "the activator's own namespace (default POD_NAMESPACE, the pod's namespace, or "+defaultNamespace+")")
	flags.StringVar(&f.Service, "service", "modelplane-activator", "the activator's own Service, by which replicas find each other; Lease and Secret are called the same")
	flags.StringVar(&f.Address, "address", "", "where other replicas reach this one (default POD_IP)")
	flags.StringVar(&f.Name, "name", "", "what tells this replica from others (default POD_NAME, or the name of the machine)")
	flags.StringSliceVar(&f.WatchNamespaces, "watch-namespace", nil, "namespaces whose services are scaled, separated by commas or given several times (default: all)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the cluster (default KUBECONFIG, the pod's account, or ~/.kube/config)")

	flags.StringVar(&f.Listen, "listen", ":8080", "address for requests: HTTP/1.1, and HTTP/2 without TLS")
	flags.StringVar(&f.Peers, "peers-bind-address", ":8082", "address on which replicas ask each other")
	flags.StringVar(&f.Health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0: off")
	flags.StringVar(&f.Metrics, "metrics-bind-address", ":8083", "address of /metrics, for whoever reaches it; 0: off")

	flags.DurationVar(&f.Window, "stable-window", time.Minute, "how long what is counted is averaged over; no pod goes sooner")
	flags.DurationVar(&f.Panic, "panic-window", 6*time.Second, "the shorter time in which a burst shows, which brings pods at once")
	flags.DurationVar(&f.Idle, "idle", 90*time.Second, "how long no request must have come before the last pod goes, where the service does not say")
	flags.DurationVar(&f.DownDelay, "scale-down-delay", 0, "how long fewer pods must have been enough before some go")
	flags.DurationVar(&f.Hold, "hold-timeout", 5*time.Minute, "how long a request waits for a pod at most")
	flags.Int64Var(&f.PerService, "max-held-per-service", 1000, "requests for one service that wait in this replica at most")
	flags.Int64Var(&f.Total, "max-held", 10000, "requests for all services that wait in this replica at most")

	flags.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.log.Format, "log-format", "json", "json or text")
	flags.DurationVar(&f.Delay, "shutdown-delay", 15*time.Second, "how long requests are still accepted after the signal to stop")
	flags.DurationVar(&f.Timeout, "shutdown-timeout", 5*time.Minute, "bound on the whole shutdown; requests that are under way have as long")
}

// check understands the flags; whatever it refuses is a wrong call.
func (f *activatorFlags) check() (err error) {
	if f.Namespace == "" {
		f.Namespace = ownNamespace(os.Getenv, os.ReadFile)
	}
	if f.Address == "" {
		f.Address = os.Getenv("POD_IP")
	}
	if f.Name == "" {
		f.Name = os.Getenv("POD_NAME")
	}
	if f.Name == "" {
		if f.Name, err = os.Hostname(); err != nil {
			return err
		}
	}
	if f.handler, err = process.NewLogHandler(os.Stderr, f.log); err != nil {
		return err
	}
	return f.Options.Check()
}

func (f *activatorFlags) run(ctx context.Context) error {
	setLog(f.handler)
	f.Log = slog.New(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	cfg, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	cfg.UserAgent = "modelplane-activator/" + version.Get().Version
	cfg.QPS, cfg.Burst = 50, 100
	f.Kube = cfg
	frugal()
	f.Log.Info("Starting", "version", version.Get().Version, "namespace", f.Namespace, "service", f.Service)
	if err := activator.Run(ctx, f.Options); err != nil {
		f.Log.Error("Stopped because of a failure", "err", err.Error())
		return &command.Failure{Err: err, Logged: true}
	}
	f.Log.Info("Stopped")
	return nil
}
