// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/modelregistry/access"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
)

// defaultFile is where everything is kept when no database is named.
const defaultFile = "model-registry.db"

// flags of the command. Their names are those of the known server.
type flags struct {
	host      string
	port      int
	datastore string
	database  store.Config
	// roots are two flags for one thing.
	rootCert, ca string

	tlsCert, tlsKey string
	authorize       string
	metrics         string
	drain           time.Duration
	lastWordsFile   string
	log             process.LogOptions
	handler         slog.Handler
}

// New is the command that serves a registry, under the name by which it is called.
func New(name string) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   name,
		Short: "Serve a model registry",
		Long: "Serves the REST API of model registries from PostgreSQL, MySQL or a SQLite file. Without --embedmd-database-dsn everything is kept in the file " +
			defaultFile + " of the working directory. Flags can be given as variables that begin with MR_ or MODELPLANE_; a password as PGPASSWORD or MYSQL_PASSWORD.",
		Example: "  modelplane registry --embedmd-database-type=postgres --embedmd-database-dsn='postgresql://registry@db:5432/registry?sslmode=verify-full'",
		Args:    cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error { return f.check(c.Flags()) },
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	f.register(c.Flags())
	return c
}

func (f *flags) register(set *pflag.FlagSet) {
	set.StringVarP(&f.host, "hostname", "n", "localhost", "where to listen: 0.0.0.0 for all addresses of the machine")
	set.IntVarP(&f.port, "port", "p", 8080, "port to listen on")
	set.StringVar(&f.datastore, "datastore-type", "embedmd", "how entities are stored; there is one way")
	d := &f.database
	set.StringVar(&d.Type, "embedmd-database-type", "", "postgres, mysql or sqlite (default: mysql with an address, else sqlite)")
	set.StringVar(&d.DSN, "embedmd-database-dsn", "", "address of the database: an address or key=value for PostgreSQL, user@tcp(host:port)/database for MySQL, a file for SQLite")
	set.StringVar(&d.Certificate, "embedmd-database-ssl-cert", "", "file with the certificate that is shown to the database")
	set.StringVar(&d.Key, "embedmd-database-ssl-key", "", "file with the key of that certificate")
	set.StringVar(&f.rootCert, "embedmd-database-ssl-root-cert", "", "file with the authorities that may have signed the certificate of the database")
	set.StringVar(&f.ca, "embedmd-database-ssl-ca", "", "the same, as a file or a directory of files")
	set.StringVar(&d.Ciphers, "embedmd-database-ssl-cipher", "", "cipher suites for the connection to the database, with colons between them")
	set.BoolVar(&d.Verify, "embedmd-database-ssl-verify-server-cert", false, "check the certificate and the name of the database; an sslmode that does so is kept without it")
	set.StringVar(&f.tlsCert, "tls-cert-file", "", "file with the certificate of this server, for HTTPS; read again when it changes")
	set.StringVar(&f.tlsKey, "tls-key-file", "", "file with the key of that certificate")
	set.StringVar(&f.authorize, "authorize-service", "", "namespace/name of a Service: only those may call who may get it, shown by a Kubernetes token (default: everybody may)")
	set.StringVar(&f.metrics, "metrics-bind-address", "0", "where metrics are shown without authentication as well, beside /metrics for those who may call; 0 for nowhere")
	set.DurationVar(&f.drain, "shutdown-delay", 0, "how long to go on answering when asked to stop, while clients are led elsewhere")
	set.StringVar(&f.lastWordsFile, "termination-log", "/dev/termination-log", "file for the reason of a failure, if it exists")
	set.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	set.StringVar(&f.log.Format, "log-format", "json", "json or text")
	for _, former := range []string{"config", "v", "logtostderr", "alsologtostderr", "stderrthreshold", "vmodule", "log_dir", "log_file"} {
		set.String(former, "", "of the known server; has no effect")
		set.Lookup(former).Hidden, set.Lookup(former).NoOptDefVal = true, "true"
	}
}

// check understands the flags; whatever it refuses is a wrong call.
func (f *flags) check(set *pflag.FlagSet) error {
	if err := command.FromEnv(set, os.LookupEnv); err != nil {
		return err
	}
	if err := fromKnownEnv(set, os.LookupEnv); err != nil {
		return err
	}
	f.database.MySQLPassword = os.Getenv("MYSQL_PASSWORD")
	f.database.Roots = f.rootCert
	if f.database.Roots == "" {
		f.database.Roots = f.ca
	}
	switch {
	case f.database.Type != "":
	case f.database.DSN != "":
		f.database.Type = "mysql"
	default:
		f.database.Type, f.database.DSN = "sqlite", defaultFile
	}
	var err error
	if f.handler, err = process.NewLogHandler(os.Stderr, f.log); err != nil {
		return err
	}
	switch {
	case f.datastore != "embedmd":
		return fmt.Errorf("--datastore-type %q is unknown; use embedmd", f.datastore)
	case f.port < 1 || f.port > 65535:
		return fmt.Errorf("--port %d is none; use 1 to 65535", f.port)
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return errors.New("--tls-cert-file and --tls-key-file go together")
	case (f.database.Certificate == "") != (f.database.Key == ""):
		return errors.New("--embedmd-database-ssl-cert and --embedmd-database-ssl-key go together")
	}
	return nil
}

// fromKnownEnv gives flags the value of the variable that the known server has for them.
func fromKnownEnv(set *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	set.VisitAll(func(flag *pflag.Flag) {
		name := "MR_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value, ok := lookup(name)
		if flag.Changed || flag.Hidden || !ok || failed != nil {
			return
		}
		if err := set.Set(flag.Name, value); err != nil {
			failed = fmt.Errorf("environment variable %s has a value that --%s cannot have", name, flag.Name) // which may be a secret
		}
	})
	return failed
}

// stopTime bounds how long the end may take.
const stopTime = 25 * time.Second

func (f *flags) run(ctx context.Context) error {
	log := process.SetLog(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	api := NewAPI(log)
	metrics := process.NewRegistry("registry")
	show := process.Metrics(metrics, nil, log)
	handler, err := f.guard(NewMetrics(api, metrics).handler(show), api, log)
	if err != nil {
		return err
	}
	server := process.Server{Name: "the registry", Address: net.JoinHostPort(f.host, strconv.Itoa(f.port)), Handler: handler, Limits: process.Limits{Body: maxBody}}
	if f.tlsCert != "" {
		certificate, err := process.LoadCertificateFiles(f.tlsCert, f.tlsKey, log)
		if err != nil {
			return err
		}
		server.TLS = process.TLS(certificate.Get)
	}
	opening := &opening{config: f.database, log: log, metrics: metrics}
	err = process.Program{
		Log: log, Servers: []process.Server{server}, Delay: f.drain, Timeout: stopTime,
		Aside: []process.Server{{Name: "metrics", Address: f.metrics, Handler: show}},
		Tasks: []func(context.Context) error{func(ctx context.Context) error { return opening.run(ctx, api) }},
	}.Run(ctx)
	if s := api.store.Load(); s != nil {
		return errors.Join(err, s.Close())
	}
	if opening.last == nil {
		return err
	}
	f.lastWords(opening.last)
	if err == nil { // it was asked to stop because it never was ready
		err = fmt.Errorf("the database cannot be used: %w", opening.last)
	}
	return err
}

// maxBody is the most that a client may send: values of a megabyte, and what stands around them.
const maxBody = 4 << 20

// guard lets only those through who may call, if that is wanted. Health is for everybody.
func (f *flags) guard(next http.Handler, api *API, log *slog.Logger) (http.Handler, error) {
	if f.authorize == "" {
		return next, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("--authorize-service needs a Kubernetes to ask: %w", err)
	}
	reviewer, err := access.New(config, f.authorize)
	if err != nil {
		return nil, err
	}
	open := func(req *http.Request) bool {
		return healthPath(req.URL.Path) != "" || req.Method == http.MethodOptions
	}
	return reviewer.Handler(next, open, api.tell, func(err error) { log.Error("It could not be told who may call", "err", err.Error()) }), nil
}

// lastWords leaves the reason of a failure where the kubelet reads it. A file that is not there is not made.
func (f *flags) lastWords(reason error) {
	file, err := os.OpenFile(f.lastWordsFile, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return
	}
	_, _ = file.WriteString("The database cannot be used: " + reason.Error()) // there is nobody else to tell
	_ = file.Close()
}

// opening tries to reach the database until it is there.
type opening struct {
	config  store.Config
	log     *slog.Logger
	metrics *prometheus.Registry
	last    error
}

// How often it is tried, with pauses of 1, 2, 3 … seconds: a database that refuses us less often than one that is not there.
const (
	attempts        = 25
	refusedAttempts = 3
)

func (o *opening) run(ctx context.Context, api *API) error {
	for attempt := range attempts {
		s, err := store.Open(ctx, o.config)
		if err == nil {
			o.log.Info("The database is ready", "type", o.config.Type)
			o.last = nil
			o.metrics.MustRegister(collectors.NewDBStatsCollector(s.DB(), "registry"))
			api.Use(s)
			return nil
		}
		if ctx.Err() != nil {
			if o.last == nil {
				o.last = err
			}
			return ctx.Err()
		}
		o.last = err
		o.log.Warn("The database cannot be used yet", "err", err.Error(), "attempt", attempt+1)
		if attempt+1 >= refusedAttempts && store.Refused(err) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(attempt+1) * time.Second):
		}
	}
	// Tools look for these words in the log.
	return fmt.Errorf("{{ALERT}} error connecting to datastore: %w", o.last)
}

// NewProbe is a command that asks whether a server is well, for containers in which there is no other program.
func NewProbe() *cobra.Command {
	var address string
	c := &cobra.Command{
		Use: "probe", Short: "Ask a server of this machine whether it is well", Args: cobra.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), healthTime+time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s", address, answer.Status)
			}
			return nil
		},
	}
	c.Flags().StringVar(&address, "url", "http://127.0.0.1:8080/readyz/health", "what to ask")
	return c
}
