// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/modelplane/modelplane/internal/maas/payload/config"
	"github.com/modelplane/modelplane/internal/maas/payload/plugins"
	"github.com/modelplane/modelplane/internal/process"
)

// Options are what a processor is told.
type Options struct {
	Log *slog.Logger
	// Config is a PayloadProcessorConfig.
	Config []byte
	World  plugins.World
	Bounds Bounds
	// Streams is how many requests of one connection of Envoy may be under way.
	Streams uint32

	// Listen is where Envoy asks; Certificate is nil for a server without TLS.
	Listen, Health, Metrics string
	Certificate             func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Registry                *prometheus.Registry // nil: a new one

	// Tasks feed the processor and take its reports, until its last answer is over; it is ready when Ready says nothing else.
	Tasks []func(context.Context) error
	Ready func() error

	Delay, Timeout time.Duration
}

// Check refuses what cannot be meant.
func (o Options) Check() error {
	if o.Bounds.Body < 1<<10 || o.Bounds.Body > 1<<30 {
		return errors.New("--max-body must be between 1 KiB and 1 GiB")
	}
	if o.Bounds.Held < int64(o.Bounds.Body) {
		return errors.New("--max-held must be at least --max-body")
	}
	if p := o.Bounds.patience(); p < 10*time.Millisecond || p > time.Hour {
		return errors.New("--body-timeout must be between 10ms and 1h")
	}
	_, err := o.chain()
	return err
}

// Decides tells whether the configuration has requests decided about here. One that cannot be read is for Check to tell.
func (o Options) Decides() bool {
	pipeline, err := config.Parse(o.Config, plugins.Known)
	return err == nil && slices.ContainsFunc(pipeline.Request, func(p config.Plugin) bool { return p.Type == plugins.Enforcement })
}

func (o Options) chain() (plugins.Chain, error) {
	pipeline, err := config.Parse(o.Config, plugins.Known)
	if err != nil {
		return plugins.Chain{}, err
	}
	return plugins.Make(pipeline, o.World)
}

// Run serves until the context ends.
func Run(ctx context.Context, o Options) error {
	chain, err := o.chain()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("open the address for Envoy: %w", err)
	}
	registry := o.Registry
	if registry == nil {
		registry = process.NewRegistry("payload-processing")
	}
	server := NewServer(chain, o.Bounds, NewMetrics(registry), o.Log)
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modelplane_payload_held_bytes", Help: "Bytes of requests' bodies that are held.",
	}, server.held.bytes))
	rpc := o.rpc()
	extproc.RegisterExternalProcessorServer(rpc, server)
	healthpb.RegisterHealthServer(rpc, health.NewServer())
	ready := process.Health{Ready: map[string]process.Check{"stopping": process.Stopping(ctx), "models": func(*http.Request) error {
		if o.Ready == nil {
			return nil
		}
		return o.Ready()
	}}}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	tasks := []func(context.Context) error{func(ctx context.Context) error {
		defer end()
		return o.answer(ctx, rpc, listener)
	}}
	for _, task := range o.Tasks {
		tasks = append(tasks, func(context.Context) error { return task(life) })
	}
	o.Log.Info("Serving", "what", "Envoy", "address", listener.Addr().String(), "tls", o.Certificate != nil)
	return process.Program{
		Log: o.Log,
		Aside: []process.Server{
			{Name: "health", Address: o.Health, Handler: ready.Handler(o.Log)},
			{Name: "metrics", Address: o.Metrics, Handler: process.Metrics(registry, nil, o.Log)},
		},
		Tasks:   tasks,
		Timeout: o.Timeout,
	}.Run(ctx)
}

// rpc is the server for Envoy. A message is at most a body with its headers.
func (o Options) rpc() *grpc.Server {
	const headers = 1 << 20
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(o.Bounds.Body + headers), grpc.MaxConcurrentStreams(o.Streams), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
	}
	if o.Certificate != nil {
		c := process.TLS(o.Certificate)
		c.NextProtos = []string{"h2"}
		options = append(options, grpc.Creds(credentials.NewTLS(c)))
	}
	return grpc.NewServer(options...)
}

// answer serves until the context ends, a little longer while the gateway learns of it, and then what is under way.
func (o Options) answer(ctx context.Context, rpc *grpc.Server, listener net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- rpc.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve Envoy: %w", err)
	case <-ctx.Done():
	}
	delay := time.NewTimer(o.Delay)
	defer delay.Stop()
	select {
	case err := <-failed:
		return err
	case <-delay.C:
	}
	stop := time.AfterFunc(max(time.Second, o.Timeout-o.Delay-time.Second), rpc.Stop)
	defer stop.Stop()
	rpc.GracefulStop()
	return nil
}
