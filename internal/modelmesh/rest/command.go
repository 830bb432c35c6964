// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/modelplane/modelplane/internal/openinference"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
)

// options are flags: what the known proxy has no variable for.
type options struct {
	Settings
	maxPending     int64
	maxRequests    int
	clientTimeout  time.Duration
	delay, timeout time.Duration
	metrics        string
}

type flags struct {
	options
	log     process.LogOptions
	handler slog.Handler
}

// NewCommand is the command mesh-rest.
func NewCommand() *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "mesh-rest",
		Short: "Give models of a mesh to clients that speak HTTP",
		Long: "Answers the v2 protocol over HTTP with what the mesh in the same pod says over gRPC. REST_PROXY_LISTEN_PORT, REST_PROXY_GRPC_PORT, " +
			"REST_PROXY_USE_TLS, REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES, REST_PROXY_SKIP_VERIFY and MM_TLS_* in the environment say how.",
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
	set.IntVar(&f.maxRequests, "max-requests", 1000, "requests that are handled at the same time; more are refused")
	set.Int64Var(&f.maxPending, "max-pending-bytes", 256<<20, "memory that all requests being handled, and their answers, take together")
	set.DurationVar(&f.clientTimeout, "client-timeout", 30*time.Second, "how long a client may take to read a piece of its answer")
	set.DurationVar(&f.delay, "shutdown-delay", 5*time.Second, "how long requests are still taken after SIGTERM, until everybody knows that this replica goes")
	set.DurationVar(&f.timeout, "shutdown-timeout", 30*time.Second, "how long the end may take, with that delay")
	set.StringVar(&f.metrics, "metrics-bind-address", ":11882", "where /metrics is shown, to whoever reaches it; 0: nowhere")
	set.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	set.StringVar(&f.log.Format, "log-format", "json", "json or text")
	return c
}

func (f *flags) check() error {
	if f.maxPending < 1<<20 || f.maxRequests < 1 || f.clientTimeout <= 0 || f.delay < 0 || f.timeout < f.delay {
		return errors.New("--max-pending-bytes must be at least 1048576, --max-requests at least 1, --client-timeout more than 0, and " +
			"--shutdown-timeout not shorter than --shutdown-delay")
	}
	var err error
	if f.Settings, err = readSettings(os.Getenv); err != nil {
		return err
	}
	f.handler, err = process.NewLogHandler(os.Stderr, f.log)
	return err
}

func (f *flags) run(ctx context.Context) error {
	log := process.SetLog(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.maxPending + besides)
	}
	return f.serve(ctx, ":"+strconv.Itoa(f.ListenPort), log)
}

// besides is what the program takes besides requests, with room for the garbage collector.
const besides = 64 << 20

// texts is how many times longer numbers are in JSON than in a message, about.
const texts = 6

// serve answers until the context ends.
func (o options) serve(ctx context.Context, address string, log *slog.Logger) error {
	var certificate *process.Certificate
	if o.CertFile != "" {
		var err error
		if certificate, err = process.LoadCertificateFiles(o.CertFile, o.KeyFile, log); err != nil {
			return err
		}
	}
	config, err := serverTLS(o.Settings, certificate, log)
	if err != nil {
		return err
	}
	connection, err := o.connect(certificate, log)
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // nothing is sent any more
	connection.Connect()
	proxy := &Proxy{
		mesh: pb.NewGRPCInferenceServiceClient(connection), connection: connection,
		budget:     openinference.NewBudget(o.maxPending, texts*int64(o.MaxMessage)),
		maxMessage: o.MaxMessage, places: make(chan struct{}, o.maxRequests), clientTimeout: o.clientTimeout, stopping: process.Stopping(ctx),
		metrics: newMetrics(),
	}
	return process.Program{
		Log: log,
		Servers: []process.Server{{
			Name: "rest", Address: address, Handler: proxy.Handler(), TLS: config,
			// Bodies are bounded by the budget, and answers by how fast a client reads them: a model may take its time.
			Limits: process.Limits{Read: 2 * time.Minute, Write: -1, Body: -1},
		}},
		Aside: []process.Server{{
			Name: "metrics (--metrics-bind-address)", Address: o.metrics, Handler: process.Metrics(proxy.metrics.registry, nil, log), Dispensable: true,
		}},
		Delay: o.delay, Timeout: o.timeout,
	}.Run(ctx)
}

// connect prepares the way to the mesh in this pod.
func (o options) connect(certificate *process.Certificate, log *slog.Logger) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if o.MeshTLS {
		config, err := meshTLS(o.Settings, certificate, log)
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	connection, err := grpc.NewClient("localhost:"+strconv.Itoa(o.MeshPort), append(withReasons(),
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxMessage), grpc.MaxCallSendMsgSize(o.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the mesh: %w", err)
	}
	return connection, nil
}
