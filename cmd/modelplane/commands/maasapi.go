// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/modelplane/modelplane/internal/maas/api"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/version"
)

type maasFlags struct {
	api.Program
	port       int
	kubeconfig string
	log        process.LogOptions
	handler    slog.Handler
}

// known are flags whose variable the known server calls otherwise than by their name in capitals.
var known = map[string]string{
	"name": "INSTANCE_NAME", "subscription-namespace": "MAAS_SUBSCRIPTION_NAMESPACE", "debug": "DEBUG_MODE", "aitenant-name": "AITENANT_NAME",
}

func newMaaSCommand() *cobra.Command {
	var f maasFlags
	c := &cobra.Command{
		Use:   "maas-api",
		Short: "Serve the API of Models as a Service: keys, models and subscriptions",
		Long: "Serve the API of Models as a Service: keys, models and subscriptions.\n\n" +
			"The address of the database is the key DB_CONNECTION_URL of the Secret maas-db-config in --namespace, or that variable, or the file " +
			"--database-url-file: postgresql://… or, for one replica, sqlite:// and a path.\n\n" +
			"A flag that is not given is taken from the environment: --tenant-name from TENANT_NAME or " + command.EnvName("tenant-name") + ", and so on.",
		Example: "  modelplane maas-api --secure --tls-cert=/tls/tls.crt --tls-key=/tls/tls.key --tenant-name=acme",
		Args:    cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error { return f.check(c.Flags()) },
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	f.register(c.Flags())
	return c
}

func (f *maasFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.Namespace, "namespace", "maas-api", "namespace of this server, in which its Secret is")
	set.StringVar(&f.Name, "name", "", "what this server is called (default: --gateway-name)")
	set.StringVar(&f.GatewayName, "gateway-name", "maas-default-gateway", "Gateway through which the tenant's models are reached")
	set.StringVar(&f.GatewayNamespace, "gateway-namespace", "openshift-ingress", "namespace of that Gateway")
	set.StringVar(&f.SubscriptionNamespace, "subscription-namespace", "models-as-a-service", "namespace of subscriptions and auth policies; MAAS_SUBSCRIPTION_NAMESPACE")
	set.StringVar(&f.TenantName, "tenant-name", "models-as-a-service", "tenant whose keys these are")
	set.StringVar(&f.Address, "address", "", "where to listen (default: :8443 with --secure, else :8080)")
	set.IntVar(&f.port, "port", 0, "port to listen on, without TLS")
	set.StringVar(&f.InternalAddress, "internal-address", ":8444", "where the internal routes are served, for gateways and jobs of the platform alone; 0: off")
	set.BoolVar(&f.Secure, "secure", false, "serve with TLS")
	set.StringVar(&f.TLSCert, "tls-cert", "", "file with the certificate of this server; read again when it changes")
	set.StringVar(&f.TLSKey, "tls-key", "", "file with the key of that certificate")
	set.BoolVar(&f.SelfSigned, "tls-self-signed", false, "make a certificate at the start")
	set.StringVar(&f.TLSMinVersion, "tls-min-version", "1.2", "1.2 or 1.3")
	set.IntVar(&f.MaxDays, "api-key-max-expiration-days", 90, "how many days a key may live")
	set.StringVar(&f.PepperFile, "api-key-pepper-file", "", "file with a secret that goes into the digests of new keys; keys from before stay valid, and without it those from after do not")
	set.IntVar(&f.AdminAnswers, "sar-cache-max-size", 8192, "how many answers to who is an administrator are remembered")
	set.IntVar(&f.DebounceSecs, "last-used-debounce-secs", 60, "the use of a key is noted at most once in so many seconds")
	set.IntVar(&f.UsageDays, "usage-retention-days", 400, "how many days usage is kept; 0: for ever")
	set.IntVar(&f.MetricsPort, "metrics-port", 9090, "port of /metrics; 0: off")
	set.StringVar(&f.DatabaseURLFile, "database-url-file", "", "file with the address of the database")
	set.IntVar(&f.MaxOpen, "db-max-open-conns", 25, "connections to the database at most")
	set.IntVar(&f.MaxIdle, "db-max-idle-conns", 0, "connections that stay open when nobody asks (default: as many)")
	set.IntVar(&f.ConnectionLifetime, "db-conn-max-lifetime-seconds", 300, "how long a connection is used")
	set.StringVar(&f.GatewayClientCA, "gateway-client-ca", "", "file with the authorities of certificates by which gateways show who they are; only then their X-MaaS headers are believed")
	set.StringSliceVar(&f.GatewayClientNames, "gateway-client-names", nil, "names in these certificates")
	set.StringVar(&f.GatewayTokenFile, "gateway-token-file", "", "file with a secret that gateways send as X-MaaS-Gateway-Token, instead of a certificate")
	set.StringVar(&f.InternalClientCA, "internal-client-ca", "", "file with the authorities of certificates of clients of the internal routes")
	set.StringSliceVar(&f.InternalClientNames, "internal-client-names", nil, "names in these certificates")
	set.StringSliceVar(&f.InternalAccounts, "internal-accounts", nil, "Kubernetes accounts whose tokens open the internal routes; * stands for any name (default: those of --namespace)")
	set.StringVar(&f.InternalKeyFile, "internal-key-file", "", "file with the keys of passes that a gateway's checker sends as X-MaaS-Pass to ask about keys and subscriptions, one on each line; read each time")
	f.OIDC.Register(set)
	set.BoolVar(&f.Debug, "debug", false, "let pages of this machine call from a browser; DEBUG_MODE")
	set.DurationVar(&f.Delay, "shutdown-delay", 5*time.Second, "how long requests are still accepted after the signal to stop")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the cluster (default KUBECONFIG, the pod's account, or ~/.kube/config)")
	set.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	set.StringVar(&f.log.Format, "log-format", "json", "json or text")
	for _, former := range []string{"aitenant-name", "aitenant-namespace", "access-check-timeout-seconds", "discovery-enable-http2"} {
		set.String(former, "", "of the known server; has no effect")
		set.Lookup(former).Hidden = true
	}
}

// check understands the flags; whatever it refuses is a wrong call.
func (f *maasFlags) check(set *pflag.FlagSet) (err error) {
	if err := command.FromEnv(set, os.LookupEnv); err != nil {
		return err
	}
	if err := fromKnownEnv(set, os.LookupEnv); err != nil {
		return err
	}
	f.DatabaseURL = os.Getenv("DB_CONNECTION_URL")
	if f.port != 0 {
		if f.Secure || f.Address != "" {
			return errors.New("--port is for a server without TLS; use --address")
		}
		f.Address = fmt.Sprintf(":%d", f.port)
	}
	if f.handler, err = process.NewLogHandler(os.Stderr, f.log); err != nil {
		return err
	}
	return f.Program.Check()
}

// fromKnownEnv gives flags the value of the variable that the known server has for them.
func fromKnownEnv(set *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	set.VisitAll(func(flag *pflag.Flag) {
		name, ok := known[flag.Name]
		if !ok {
			name = strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		}
		value, ok := lookup(name)
		if flag.Changed || !ok || value == "" || failed != nil || flag.Name == "help" || flag.Name == "kubeconfig" {
			return
		}
		if err := set.Set(flag.Name, value); err != nil {
			failed = fmt.Errorf("environment variable %s has a value that --%s cannot have", name, flag.Name)
		}
	})
	return failed
}

func (f *maasFlags) run(ctx context.Context) error {
	setLog(f.handler)
	f.Log = slog.New(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	var err error
	if f.Kube, err = restConfig(f.kubeconfig); err != nil {
		return err
	}
	f.Kube.UserAgent = "modelplane-maas-api/" + version.Get().Version
	f.Kube.QPS = -1 // how many questions are under way is bounded
	f.Log.Info("Starting", "version", version.Get().Version, "tenant", f.TenantName, "namespace", f.Namespace)
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		f.Log.Warn("OTEL_EXPORTER_OTLP_ENDPOINT has no effect: this server exports no traces")
	}
	if err := f.Program.Run(ctx); err != nil {
		f.Log.Error("Stopped because of a failure", "err", err.Error())
		return &command.Failure{Err: err, Logged: true}
	}
	f.Log.Info("Stopped")
	return nil
}
