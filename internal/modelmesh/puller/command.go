// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
)

// What the mesh may have under way at the same time, and the most files of a model.
const (
	calls = 256
	files = 100_000
)

type flags struct {
	settings Settings
	log      process.LogOptions
	handler  slog.Handler
}

// NewCommand is the command mesh-puller.
func NewCommand() *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "mesh-puller",
		Short: "Fetch models for a runtime of a mesh",
		Long: "Stands between the mesh and a model runtime: fetches a model's files before the runtime loads it, and removes them when it is " +
			"unloaded. PORT, MODEL_SERVER_ENDPOINT, ROOT_MODEL_DIR, STORAGE_CONFIG_DIR and PVC_MOUNTS_DIR in the environment say what is where.",
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
	set.IntVar(&f.settings.Pulls, "pulls", 4, "models that are fetched at the same time")
	set.IntVar(&f.settings.Parallel, "parallel", 4, "requests that are under way at the same time for one model")
	set.StringVar(&f.settings.Metrics, "metrics-bind-address", ":11881", "where /metrics is shown, to whoever reaches it; 0: nowhere")
	set.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	set.StringVar(&f.log.Format, "log-format", "json", "json or text")
	return c
}

func (f *flags) check() error {
	pulls, parallel, metrics := f.settings.Pulls, f.settings.Parallel, f.settings.Metrics
	if pulls < 1 || pulls > 256 || parallel < 1 || parallel > 256 {
		return errors.New("--pulls and --parallel must be from 1 to 256")
	}
	var err error
	if f.settings, err = readSettings(os.Getenv); err != nil {
		return err
	}
	f.settings.Pulls, f.settings.Parallel, f.settings.Metrics = pulls, parallel, metrics
	f.handler, err = process.NewLogHandler(os.Stderr, f.log)
	return err
}

func (f *flags) run(ctx context.Context) error {
	log := process.SetLog(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	listener, err := net.Listen("tcp", net.JoinHostPort("localhost", strconv.Itoa(f.settings.Port)))
	if err != nil {
		return fmt.Errorf("listen for the mesh: %w", err)
	}
	return Serve(ctx, f.settings, listener, log)
}

// endTime is how long loads that are under way may take after the process was asked to stop.
const endTime = 25 * time.Second

// Serve answers until the context ends, and then what is still under way.
func Serve(ctx context.Context, s Settings, listener net.Listener, log *slog.Logger) error {
	connection, err := grpc.NewClient(s.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}))
	if err != nil {
		return fmt.Errorf("prepare the connection to the runtime: %w", err)
	}
	defer connection.Close() //nolint:errcheck // nothing is sent any more
	options := fetch.Options{Parallel: s.Parallel, Limits: dest.Limits{Files: files}, Env: os.Getenv}
	server := grpc.NewServer(grpc.MaxConcurrentStreams(calls), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime: 5 * time.Second, PermitWithoutStream: true,
	}))
	puller := New(s, wire.NewModelRuntimeClient(connection), options, log)
	wire.RegisterModelRuntimeServer(server, puller)
	healthpb.RegisterHealthServer(server, health.NewServer())
	log.Info("Serving", "what", "the mesh", "address", listener.Addr().String(), "runtime", s.Endpoint)
	return process.Program{
		Log: log,
		Aside: []process.Server{{
			Name: "metrics (--metrics-bind-address)", Address: s.Metrics, Handler: process.Metrics(puller.metrics.registry, nil, log), Dispensable: true,
		}},
		Tasks:   []func(context.Context) error{func(ctx context.Context) error { return answer(ctx, server, listener) }},
		Timeout: endTime + time.Second,
	}.Run(ctx)
}

// answer serves until the context ends, and then what is under way, for a while.
func answer(ctx context.Context, server *grpc.Server, listener net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the mesh: %w", err)
	case <-ctx.Done():
	}
	timer := time.AfterFunc(endTime, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	return nil
}
