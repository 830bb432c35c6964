// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
)

type flags struct {
	graph, name      string
	address, metrics string
	tls, auth        bool
	certificates     string // a directory
	limits           Limits
	delay, timeout   time.Duration
	log              process.LogOptions
	handler          slog.Handler
}

// NewCommand is the command router.
func NewCommand() *cobra.Command {
	f := &flags{certificates: "/etc/tls/private"}
	c := &cobra.Command{
		Use:   "router",
		Short: "Run the graph of an InferenceGraph",
		Long: "Answers requests by calling the services of a graph. PROPAGATE_HEADERS in the environment has names of headers that services get, " +
			"separated by commas: names, names with stars, or regular expressions for whole names.",
		Args: cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error {
			if err := command.FromEnv(c.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return f.check()
		},
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	set := c.Flags()
	set.StringVar(&f.graph, "graph-json", "", "the spec of an InferenceGraph as JSON, with a serviceUrl in every step that leads to a service")
	set.BoolVar(&f.tls, "enable-tls", false, "answer with TLS, with "+f.certificates+"/tls.crt and tls.key, which are read again when they change")
	set.BoolVar(&f.auth, "enable-auth", false, "let only those call who have a token of Kubernetes and may get the InferenceGraph")
	set.StringVar(&f.name, "inferencegraph-name", "", "the InferenceGraph, in the namespace of the pod, that callers must be allowed to get with --enable-auth")
	set.StringVar(&f.address, "bind-address", ":8080", "where requests are answered, and /readyz")
	set.StringVar(&f.metrics, "metrics-bind-address", ":2112", "where metrics and /healthz are served; 0: nowhere")
	set.Int64Var(&f.limits.Body, "max-body-bytes", 0, "how large a request or a reply may be; 0: a quarter of --max-pending-bytes")
	set.Int64Var(&f.limits.Pending, "max-pending-bytes", 0, "memory that all requests being handled, and replies to them, take together; 0: half of what the container may take, at most 256 MiB")
	set.IntVar(&f.limits.Requests, "max-requests", 1000, "requests that are handled at the same time; more are refused")
	set.DurationVar(&f.delay, "shutdown-delay", 5*time.Second, "how long requests are still taken after SIGTERM, until everybody knows that this replica goes")
	set.DurationVar(&f.timeout, "shutdown-timeout", 0, "how long the end may take, with that delay; 0: the delay, and what the graph allows for a request")
	set.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	set.StringVar(&f.log.Format, "log-format", "json", "json or text")
	return c
}

func (f *flags) check() error {
	if f.limits.Body < 0 || f.limits.Pending < 0 || f.limits.Requests < 1 || f.delay < 0 || f.timeout != 0 && f.timeout < f.delay {
		return errors.New("--max-body-bytes and --max-pending-bytes must not be negative, --max-requests at least 1, and --shutdown-timeout not shorter than --shutdown-delay")
	}
	var err error
	f.handler, err = process.NewLogHandler(os.Stderr, f.log)
	return err
}

func (f *flags) run(ctx context.Context) error {
	graph, err := Parse(f.graph)
	if err != nil {
		return err
	}
	log := process.SetLog(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	container := containerMemory("/")
	f.limits = f.limits.complete(container)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.limits.heap(container))
	}
	var access *Access
	if f.auth {
		api, err := apiServer(os.Getenv)
		if err != nil {
			return err
		}
		if access, err = NewAccess(api, accountDir, f.name); err != nil {
			return err
		}
		if !f.tls {
			log.Warn("Tokens come in the clear: --enable-auth is on and --enable-tls is not")
		}
	}
	return f.serve(ctx, graph, access, os.Getenv("PROPAGATE_HEADERS"), log)
}

// encrypted is how the router speaks TLS, nil where it does not.
func (f *flags) encrypted(log *slog.Logger) (*tls.Config, error) {
	if !f.tls {
		return nil, nil
	}
	certificate, err := process.LoadCertificateFiles(filepath.Join(f.certificates, "tls.crt"), filepath.Join(f.certificates, "tls.key"), log)
	if err != nil {
		return nil, err
	}
	return process.TLS(certificate.Get), nil
}

// lastWords is how long an answer may take that is made when a request has run out of time; longestEnd how long requests
// without a limit are waited for.
const (
	lastWords  = 5 * time.Second
	longestEnd = 10 * time.Minute
)

// serve answers until the context ends.
func (f *flags) serve(ctx context.Context, graph *Graph, access *Access, headers string, log *slog.Logger) error {
	encrypted, err := f.encrypted(log)
	if err != nil {
		return err
	}
	registry := process.NewRegistry("router")
	router := New(graph, headers, f.limits, registry, log)
	write, end := time.Duration(-1), longestEnd
	if router.time > 0 {
		write = router.time + lastWords
		end = min(end, f.delay+write)
	}
	if f.timeout > 0 {
		end = f.timeout
	}
	var tasks []func(context.Context) error
	if graph.leavesBy("https") {
		router.caller.sidecar.look(ctx, sidecarAddress)
		tasks = append(tasks, func(ctx context.Context) error {
			router.caller.sidecar.watch(ctx, sidecarAddress, sidecarAgain)
			return nil
		})
	}
	read := seconds(graph.Timeouts.ServerRead, time.Minute)
	return process.Program{
		Log: log,
		Servers: []process.Server{{
			Name: "router", Address: f.address, Handler: ready(process.Stopping(ctx), router.Guard(access)), TLS: encrypted,
			// Bodies are bounded by the budget. Headers may be as large as they may elsewhere.
			Limits: process.Limits{
				Header: read, Read: read, Write: write, Idle: seconds(graph.Timeouts.ServerIdle, 3*time.Minute),
				HeaderBytes: http.DefaultMaxHeaderBytes, Body: -1,
			},
		}},
		Aside: []process.Server{{Name: "metrics", Address: f.metrics, Handler: aside(process.Metrics(registry, nil, log), log)}},
		Tasks: tasks, Delay: f.delay, Timeout: end,
	}.Run(ctx)
}

// ready answers kubelets, and leaves everything else to the graph.
func ready(stopping process.Check, graph http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path != "/readyz":
			graph.ServeHTTP(w, req)
		case stopping(req) != nil:
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
		}
	})
}

// aside is what is for those who run the router.
func aside(metrics http.Handler, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.Handle("/healthz", process.Health{}.Handler(log))
	return mux
}
