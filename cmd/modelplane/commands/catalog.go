// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/modelregistry/access"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/version"
)

type catalogFlags struct {
	catalog.Options
	tlsCert, tlsKey string
	authorize       string
	log             process.LogOptions
	handler         slog.Handler
}

func newCatalogCommand() *cobra.Command {
	var f catalogFlags
	c := &cobra.Command{
		Use:   "catalog",
		Short: "Show models, MCP servers and agents that people may choose from, over HTTP",
		Long: "Show models, MCP servers, agents and serving runtimes that people may choose from, over HTTP.\n\n" +
			"They are read from files and from Hugging Face, and read again when the files change. There is no database; " +
			"variables that name one are not used.\n\nA flag that is not given is taken from the environment: --log-level from " +
			command.EnvName("log-level") + ", and so on.",
		Args: cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) (err error) {
			if err := command.FromEnv(c.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if (f.tlsCert == "") != (f.tlsKey == "") {
				return errors.New("--tls-cert-file and --tls-key-file go together")
			}
			f.handler, err = process.NewLogHandler(os.Stderr, f.log)
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringVarP(&f.Listen, "listen", "l", "0.0.0.0:8080", "address of the API, /healthz and /readyz")
	flags.StringArrayVar(&f.Paths, "catalogs-path", []string{"sources.yaml"},
		"file that lists sources; several times for several, of which later ones change what earlier ones say")
	flags.StringArrayVar(&f.Performance, "performance-metrics", nil, "directory with measurements of models; several times for several")
	flags.StringVar(&f.tlsCert, "tls-cert-file", "", "file with the certificate of this server, for HTTPS; read again when it changes")
	flags.StringVar(&f.tlsKey, "tls-key-file", "", "file with the key of that certificate")
	flags.StringVar(&f.authorize, "authorize-service", "",
		"namespace/name of a Service: only those may read who may get it, shown by a Kubernetes token (default: everybody may)")
	flags.StringVar(&f.Metrics, "metrics-bind-address", "0", "another address of /metrics, for whoever reaches it; 0: off")
	flags.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.log.Format, "log-format", "json", "json or text")
	flags.DurationVar(&f.Delay, "shutdown-delay", 5*time.Second, "how long requests are still accepted after the signal to stop")
	flags.DurationVar(&f.Timeout, "shutdown-timeout", 25*time.Second, "bound on the whole shutdown")
	return c
}

func (f *catalogFlags) run(ctx context.Context) error {
	f.Log, f.Getenv = process.SetLog(f.handler), os.Getenv
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	frugal()
	if unused := ofDatabase(os.Environ()); len(unused) > 0 {
		f.Log.Info("The catalog has no database and elects no leader; these variables are not used", "variables", unused)
	}
	if err := f.protect(); err != nil {
		return err
	}
	f.Log.Info("Starting", "version", version.Get().Version, "sources", f.Paths)
	if err := catalog.Run(ctx, f.Options); err != nil {
		f.Log.Error("Stopped because of a failure", "err", err.Error())
		return &command.Failure{Err: err, Logged: true}
	}
	f.Log.Info("Stopped")
	return nil
}

// protect is what keeps others out, where that is wanted.
func (f *catalogFlags) protect() error {
	if f.tlsCert != "" {
		certificate, err := process.LoadCertificateFiles(f.tlsCert, f.tlsKey, f.Log)
		if err != nil {
			return err
		}
		f.TLS = process.TLS(certificate.Get)
	}
	if f.authorize == "" {
		return nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("--authorize-service needs a Kubernetes to ask: %w", err)
	}
	reviewer, err := access.New(config, f.authorize)
	if err != nil {
		return err
	}
	f.Authorize = reviewer.May
	return nil
}

// ofDatabase are names of variables that Deployments of other catalogs set.
func ofDatabase(environment []string) []string {
	var out []string
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if slices.Contains([]string{"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGSSLMODE"}, name) || strings.HasPrefix(name, "CATALOG_LEADER_") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
