// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/maas/enforce"
	"github.com/modelplane/modelplane/internal/maas/enforce/builtin"
	"github.com/modelplane/modelplane/internal/maas/payload"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
	"github.com/modelplane/modelplane/internal/maas/payload/watch"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/maas/selection/feed"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/version"
)

type payloadFlags struct {
	payload.Options
	configFile      string
	namespaces      []string
	namespacesFile  string
	kubeconfig      string
	tlsCert, tlsKey string
	insecure        bool
	decide          builtin.Flags
	log             process.LogOptions
	handler         slog.Handler
}

func newPayloadCommand() *cobra.Command {
	var f payloadFlags
	c := &cobra.Command{
		Use:   "payload-processing",
		Short: "Look at requests for models and at their answers on their way through a gateway",
		Long: "Look at requests for models and at their answers on their way through a gateway: a server of Envoy's external processing " +
			"that finds a model's provider, translates between APIs, signs in, and reads what answers cost.\n\n" +
			"A PayloadProcessorConfig says which plugins there are and in which order.\n\nA flag that is not given is taken from the " +
			"environment: --log-level from " + command.EnvName("log-level") + ", and so on.",
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

func (f *payloadFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.configFile, "config-file", "", "file with a PayloadProcessorConfig (required)")
	flags.StringSliceVar(&f.namespaces, "tenant-namespace", nil,
		"namespaces whose ExternalModels, ExternalProviders and labelled Secrets are known, separated by commas or given several times (default TENANT_NAMESPACE)")
	flags.StringVar(&f.namespacesFile, "namespaces-file", "",
		"file with more such namespaces, one in each line; read again when it changes")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the cluster (default KUBECONFIG, the pod's account, or ~/.kube/config)")

	flags.StringVar(&f.Listen, "listen", ":9004", "address for Envoy")
	flags.StringVar(&f.tlsCert, "tls-cert-file", "", "file with the certificate of this server; read again when it changes (default TLS_CERT, or a certificate of its own that nobody vouches for)")
	flags.StringVar(&f.tlsKey, "tls-key-file", "", "file with the key of that certificate (default TLS_KEY)")
	flags.BoolVar(&f.insecure, "insecure", false, "speak without TLS; keys of providers then cross the network in the open")
	flags.StringVar(&f.Metrics, "metrics-bind-address", ":9005", "address of /metrics, for whoever reaches it; 0: off")
	flags.StringVar(&f.Health, "health-probe-bind-address", ":9006", "address of /healthz and /readyz; 0: off")

	flags.IntVar(&f.Bounds.Body, "max-body", 8<<20, "bytes of a request's body at most; a longer one gets 413")
	flags.Int64Var(&f.Bounds.Held, "max-held", 128<<20, "bytes of all bodies that are held at the same time; more get 503")
	flags.DurationVar(&f.Bounds.Patience, "body-timeout", time.Minute, "how long a request may take to arrive with its body; then it gets 408")
	flags.Uint32Var(&f.Streams, "max-streams", 4096, "requests of one connection that are under way at the same time")
	flags.DurationVar(&f.World.DecideTimeout, "decide-timeout", 5*time.Second, "how long a decision about a request may take; the request is denied then")

	f.decide.Register(flags)

	flags.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.log.Format, "log-format", "json", "json or text")
	flags.DurationVar(&f.Delay, "shutdown-delay", 5*time.Second, "how long requests are still accepted after the signal to stop")
	flags.DurationVar(&f.Timeout, "shutdown-timeout", 5*time.Minute, "bound on the whole shutdown; answers that are under way have as long")
}

// check understands the flags and the configuration; whatever it refuses is a wrong call.
func (f *payloadFlags) check() (err error) {
	if f.handler, err = process.NewLogHandler(os.Stderr, f.log); err != nil {
		return err
	}
	if f.configFile == "" {
		return errors.New("--config-file must name a PayloadProcessorConfig")
	}
	if f.Config, err = os.ReadFile(f.configFile); err != nil {
		return fmt.Errorf("read the configuration of the plugins: %w", err)
	}
	if f.tlsCert == "" && f.tlsKey == "" {
		f.tlsCert, f.tlsKey = os.Getenv("TLS_CERT"), os.Getenv("TLS_KEY")
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return errors.New("--tls-cert-file and --tls-key-file go together")
	}
	if namespace := os.Getenv("TENANT_NAMESPACE"); len(f.namespaces) == 0 && namespace != "" {
		f.namespaces = []string{namespace}
	}
	if len(f.namespaces) == 0 && f.namespacesFile == "" {
		return errors.New("--tenant-namespace must name at least one namespace; Secrets of others are not read")
	}
	f.World.Cluster = os.Getenv("CLUSTER_NAME")
	f.World.Directory = directory.New()
	if f.Decides() {
		if err := f.decide.Check(f.tlsCert, f.namespaces, os.Getenv); err != nil {
			return err
		}
		f.World.Enforcer = (*enforce.Enforcer)(nil) // the configuration is looked at before its parts are made
	}
	return f.Options.Check()
}

func (f *payloadFlags) run(ctx context.Context) error {
	setLog(f.handler)
	f.Log = slog.New(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	if err := f.certificate(); err != nil {
		return err
	}
	cfg, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	cfg.UserAgent = "modelplane-payload-processing/" + version.Get().Version
	table := directory.New()
	f.World.Directory = table
	watcher, err := watch.New(cfg, f.namespaces, f.namespacesFile, table, f.Log)
	if err != nil {
		return err
	}
	f.Tasks, f.Ready = append(f.Tasks, watcher.Run), watcher.Ready
	if f.Decides() {
		if err := f.decides(cfg); err != nil {
			return err
		}
	}
	frugal()
	f.Log.Info("Starting", "version", version.Get().Version, "namespaces", f.namespaces)
	if err := payload.Run(ctx, f.Options); err != nil {
		f.Log.Error("Stopped because of a failure", "err", err.Error())
		return &command.Failure{Err: err, Logged: true}
	}
	f.Log.Info("Stopped")
	return nil
}

// decides makes what the plugin maas-enforcement asks.
func (f *payloadFlags) decides(cfg *rest.Config) error {
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("prepare to talk to the API server: %w", err)
	}
	index := selection.NewIndex()
	watched, err := feed.New(objects, f.decide.Namespace, index, f.Log)
	if err != nil {
		return err
	}
	f.Registry = process.NewRegistry("payload-processing")
	parts, err := builtin.New(f.decide, cfg, index, watched, f.Registry, f.Log)
	if err != nil {
		return err
	}
	f.World.Enforcer, f.Tasks = parts, append(f.Tasks, parts.Tasks...)
	known := f.Ready
	f.Ready = func() error { return errors.Join(parts.Ready(), known()) }
	return nil
}

// certificate is the one of the files, or one of our own.
func (f *payloadFlags) certificate() error {
	switch {
	case f.insecure:
		f.Log.Warn("Speaking without TLS")
		return nil
	case f.tlsCert == "":
		own, err := payload.SelfSigned(time.Now())
		f.Certificate = own
		f.Log.Warn("Serving a certificate that nobody vouches for; give one with --tls-cert-file and --tls-key-file")
		return err
	}
	certificate, err := process.LoadCertificateFiles(f.tlsCert, f.tlsKey, f.Log)
	if err != nil {
		return err
	}
	f.Certificate = certificate.Get
	return nil
}
