// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
)

// NewCommand is the command mesh.
func NewCommand() *cobra.Command {
	var log process.LogOptions
	var handler movingLevel
	var set Settings
	c := &cobra.Command{
		Use:   "mesh",
		Short: "Route calls to models on many pods, beside a multi-model runtime",
		Long: "Loads models into the runtime beside it when they are called, makes room for them, and sends calls to the instance that has a model. " +
			"All settings come from the environment: MM_SERVICE_NAME, KV_STORE and the other variables that pods of multi-model runtimes have.",
		Args: cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error {
			err := command.FromEnv(c.Flags(), os.LookupEnv)
			if err == nil {
				handler, err = newLog(log)
			}
			if err == nil {
				set, err = FromEnvironment(os.Getenv)
			}
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := process.UntilSignal(c.Context())
			defer stop()
			return Run(ctx, set, process.SetLog(handler), handler.level)
		},
	}
	c.Flags().StringVar(&log.Level, "log-level", "info", "debug, info, warn or error")
	c.Flags().StringVar(&log.Format, "log-format", "json", "json or text")
	return c
}

// movingLevel is a log whose level can be changed while the process runs.
type movingLevel struct {
	slog.Handler
	level *slog.LevelVar
}

func newLog(o process.LogOptions) (movingLevel, error) {
	out := movingLevel{level: &slog.LevelVar{}}
	if _, err := process.NewLogHandler(os.Stderr, o); err != nil { // says what is wrong in its own words
		return out, err
	}
	if err := out.level.UnmarshalText([]byte(o.Level)); err != nil {
		return out, fmt.Errorf("--log-level: %w", err)
	}
	o.Level = "debug"
	var err error
	out.Handler, err = process.NewLogHandler(os.Stderr, o)
	return out, err
}

func (m movingLevel) Enabled(_ context.Context, level slog.Level) bool {
	return level >= m.level.Level()
}

func (m movingLevel) WithAttrs(attrs []slog.Attr) slog.Handler {
	return movingLevel{m.Handler.WithAttrs(attrs), m.level}
}

func (m movingLevel) WithGroup(name string) slog.Handler {
	return movingLevel{m.Handler.WithGroup(name), m.level}
}

// NewStopCommand is the command mesh-stop, which the hook before the end of a pod runs under the name stop.sh.
func NewStopCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "mesh-stop [wait]",
		Short:     "Have the mesh of this pod hand over its models",
		Long:      "Asks the mesh beside it to hand over its models to other pods. With wait it returns when that is done.",
		ValidArgs: []string{"wait"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			port := 8090
			if text := os.Getenv("MM_PRESTOP_WAIT_PORT"); text != "" {
				var err error
				if port, err = strconv.Atoi(text); err != nil {
					return fmt.Errorf("MM_PRESTOP_WAIT_PORT is %q; it must be a port", text)
				}
			}
			return Stop(c.Context(), port, len(args) == 1)
		},
	}
}

// Run serves until the context ends, and hands over then.
func Run(ctx context.Context, set Settings, log *slog.Logger, level *slog.LevelVar) error {
	m, err := New(set, log, level)
	if err != nil {
		return err
	}
	m.memory.begin()
	keepTo(containerMemory())
	life, end := context.WithCancel(context.Background())
	m.life = life
	defer m.close(end)
	aside := []process.Server{
		{Name: "probes", Address: port(set.ProbePort), Handler: m.probes()},
		{Name: "pre-stop", Address: port(set.PreStopPort), Handler: m.preStop(), Limits: process.Limits{Write: -1}},
	}
	if set.Metrics.enabled {
		server := process.Server{Name: "metrics", Address: port(set.Metrics.port), Handler: process.Metrics(m.metrics.registry, nil, log)}
		if set.Metrics.https {
			if server.TLS, err = metricsTLS(m.tls); err != nil {
				return err
			}
		}
		aside = append(aside, server)
	}
	// Probes and metrics go on while models are handed over, so the program is asked to stop only after that.
	asked, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var ended error
	err = process.Program{
		Log: log, Aside: aside, Timeout: 5 * time.Second,
		Tasks: []func(context.Context) error{func(context.Context) error {
			defer stop()
			ended = m.serve(ctx)
			return nil
		}},
	}.Run(asked)
	return errors.Join(ended, err)
}

func metricsTLS(c *certificates) (*tls.Config, error) {
	if c.own != nil {
		return process.TLS(c.own.Get), nil
	}
	certificate, err := selfSigned()
	if err != nil {
		return nil, err
	}
	return process.TLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }), nil
}

func port(n int) string { return ":" + strconv.Itoa(n) }

// close ends whatever runs.
func (m *Mesh) close(end context.CancelFunc) {
	m.gate.Lock()
	m.closed = true
	m.gate.Unlock()
	end()
	m.tasks.Wait()
	m.peers.close()
	m.runtime.close()
	told, cancel := context.WithTimeout(context.Background(), time.Second)
	m.payloads.close(told)
	cancel()
	_ = m.store.Close()
}

const (
	grpcDrain = 15 * time.Second
	// lateCalls is how long after the start of its end an instance is answered for at least: so long may pass until all who call it
	// have seen that its address is not the Service's any more.
	lateCalls = 10 * time.Second
)

// serve is the life of an instance: it starts, answers, and hands over when it is asked to stop.
func (m *Mesh) serve(ctx context.Context) error {
	defer close(m.ended)
	if err := m.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // whoever was asked to stop while it started has nothing to hand over
		}
		return err
	}
	external, internal := m.servers()
	failed := make(chan error, 2)
	for name, one := range map[string]struct {
		*grpc.Server
		port int
	}{"calls": {external, m.set.Port}, "peers": {internal, m.set.PeerPort}} {
		listener, err := net.Listen("tcp", port(one.port))
		if err != nil {
			return fmt.Errorf("open the port for %s: %w", name, err)
		}
		m.log.Info("Serving", "what", name, "address", listener.Addr().String())
		go func() { failed <- one.Serve(listener) }()
	}
	m.work()
	m.publish(true)
	if err := m.autoRegister(ctx); err != nil {
		return err
	}
	debug.FreeOSMemory() // reading the tables took more than they need
	m.ready.Store(true)
	m.log.Info("Ready", "instance", m.set.Instance, "models", m.models.Len(), "capacity", m.cache().models.Capacity()*unit)
	select {
	case <-ctx.Done():
		m.stopOnce.Do(func() { close(m.stopAsked) })
	case <-m.stopAsked:
	case err := <-failed:
		return errors.Join(errors.New("a server has ended"), err)
	}
	began, budget := time.Now(), max(2*time.Second, m.set.ShutdownTimeout-5*time.Second)
	m.drain(budget)
	<-ctx.Done() // the hook before the end is over, and the signal follows
	wait(m.life, min(lateCalls, budget)-time.Since(began))
	m.part(external, internal)
	return nil
}

// part lets calls under way be answered.
func (m *Mesh) part(external, internal *grpc.Server) {
	done := make(chan struct{})
	go func() {
		external.GracefulStop()
		internal.GracefulStop()
		close(done)
	}()
	timer := time.NewTimer(grpcDrain)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		external.Stop()
		internal.Stop()
	}
}

// servers are the one for clients and the one for peers.
func (m *Mesh) servers() (external, internal *grpc.Server) {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newRawCodec()), grpc.MaxRecvMsgSize(m.set.MaxMessage), grpc.MaxSendMsgSize(m.set.MaxMessage),
		grpc.WaitForHandlers(true), experimental.BufferPool(m.ledger), grpc.InTapHandle(m.ledger.admit),
	}
	outside := append([]grpc.ServerOption{
		grpc.Creds(m.tls.server()), grpc.UnknownServiceHandler(m.handle),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: m.set.MaxConnectionAge, MaxConnectionAgeGrace: m.set.MaxAgeGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}, options...)
	if m.set.MaxHeaders > 0 {
		outside = append(outside, grpc.MaxHeaderListSize(uint32(m.set.MaxHeaders))) //nolint:gosec // bounded when it was read
	}
	external = grpc.NewServer(outside...)
	wire.RegisterModelMeshServer(external, api{Mesh: m})
	internal = grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(m.tls.peerServer()), grpc.UnknownServiceHandler(m.handlePeer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}, options...)...)
	return external, internal
}
