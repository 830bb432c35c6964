// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/unpack"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/serving/agent/batcher"
	"github.com/modelplane/modelplane/internal/serving/agent/logger"
	"github.com/modelplane/modelplane/internal/serving/agent/puller"
)

// flags are those of the command line as they stand there, and what check made of them.
type flags struct {
	port, componentPort int
	puller, batcher     bool
	configDir, modelDir string
	maxBatch, maxWait   string

	logURL, logMode, source              string
	service, namespace, endpoint, part   string
	headers, notes                       []string
	workers                              int
	storePath, storeFormat               string
	marshaller                           string
	marshallerPort                       int
	batchSize                            int
	batchInterval                        time.Duration
	caFile                               string
	skipVerify                           truth
	queueEvents                          int
	queueBytes, maxBody, maxWaitingBytes int64

	probePeriod time.Duration
	quiet, all  time.Duration
	metrics     string
	log         process.LogOptions

	env func(string) string
	agent
}

// agent is what a run is made of.
type agent struct {
	handler  slog.Handler
	upstream *url.URL
	prober   *prober
	patience patience
	size     int
	wait     time.Duration
	about    logger.About
	// newSink is nil where nothing is logged.
	newSink func(*slog.Logger) (logger.Sink, error)
	socket  string
}

// truth is a flag whose value is an argument of its own, as pods have it.
type truth bool

func (t *truth) String() string { return strconv.FormatBool(bool(*t)) }

func (t *truth) Set(value string) error {
	v, err := strconv.ParseBool(value)
	*t = truth(v)
	return err
}

func (*truth) Type() string { return "true|false" }

// NewCommand is the command agent.
func NewCommand() *cobra.Command {
	f := &flags{env: os.Getenv}
	c := &cobra.Command{
		Use:   "agent",
		Short: "Log requests, batch them and pull models beside a model server",
		Long: "Stands before the model server of an InferenceService in its pod, and hands requests on. With --log-url it tells a receiver of " +
			"requests and answers, with --enable-batcher it puts predictions together, with --enable-puller it keeps the models that a list " +
			"names. SERVING_READINESS_PROBE in the environment says how the server shows that it is ready; storages take their credentials " +
			"from there as well.",
		Args: cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error {
			if err := command.FromEnv(c.Flags(), lookup); err != nil {
				return err
			}
			return f.check(c.Flags().Changed)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			log := process.SetLog(f.handler)
			ctx, stop := process.UntilSignal(c.Context())
			defer stop()
			return f.run(ctx, log)
		},
	}
	f.register(c)
	f.registerLogger(c)
	return c
}

// lookup leaves one variable out: Kubernetes sets it in all pods beside a Service that is called modelplane.
func lookup(name string) (string, bool) {
	if name == command.EnvName("port") {
		return "", false
	}
	return os.LookupEnv(name)
}

func (f *flags) register(c *cobra.Command) {
	set := c.Flags()
	set.IntVar(&f.port, "port", 9081, "port that requests come to")
	set.IntVar(&f.componentPort, "component-port", 8080, "port of the model server in this pod")
	set.BoolVar(&f.puller, "enable-puller", false, "keep the models that the list names")
	set.StringVar(&f.configDir, "config-dir", "/mnt/configs", "directory that has the list, models.json")
	set.StringVar(&f.modelDir, "model-dir", "/mnt/models", "directory that gets a directory for each model")
	set.BoolVar(&f.batcher, "enable-batcher", false, "put predictions together")
	set.StringVar(&f.maxBatch, "max-batchsize", "32", "instances that go to the model together, at most")
	set.StringVar(&f.maxWait, "max-latency", "5000", "milliseconds that a request waits for others")
	set.Int64Var(&f.maxWaitingBytes, "max-waiting-bytes", 64<<20, "bytes that requests which wait for others have together; what is beyond is not batched")
	set.DurationVar(&f.probePeriod, "probe-period", -1, "not used")
	set.DurationVar(&f.quiet, "shutdown-delay", 0, "how long no request must have come before the end (default 5s, behind Knative's sidecar 30s)")
	set.DurationVar(&f.all, "shutdown-timeout", 0, "how long the end may take in all (default 25s, behind Knative's sidecar 5s less than a request may take)")
	set.StringVar(&f.metrics, "metrics-bind-address", "0", "address of /metrics, for whoever reaches it; 0: off")
	set.StringVar(&f.log.Level, "log-level", "", "debug, info, warn or error (default what SERVING_LOGGING_LEVEL says, or info)")
	set.StringVar(&f.log.Format, "log-format", "json", "json or text")
}

func (f *flags) registerLogger(c *cobra.Command) {
	set := c.Flags()
	set.StringVar(&f.logURL, "log-url", "", "where events go: an http or https address, or s3://, gs:// or abfs://; empty: nothing is logged")
	set.StringVar(&f.logMode, "log-mode", logger.ModeAll, "what is logged: all, request or response")
	set.StringVar(&f.source, "source-uri", "", "source of events (default http://localhost:PORT/; empty: the name of the pod)")
	set.StringVar(&f.service, "inference-service", "", "the InferenceService that events are about")
	set.StringVar(&f.namespace, "namespace", "", "its namespace")
	set.StringVar(&f.endpoint, "endpoint", "", "its endpoint")
	set.StringVar(&f.part, "component", "", "its component: predictor, transformer or explainer")
	set.StringSliceVar(&f.headers, "metadata-headers", nil, "headers of requests that events repeat")
	set.StringSliceVar(&f.notes, "metadata-annotations", nil, "KEY=VALUE pairs that events repeat")
	set.IntVar(&f.workers, "workers", 5, "events that are on their way to a receiver at the same time")
	set.StringVar(&f.storePath, "log-store-path", "", "with a storage: path behind namespace, service and component")
	set.StringVar(&f.storeFormat, "log-store-format", "json", "with a storage: json, csv or parquet")
	set.StringVar(&f.marshaller, "log-marshaller-url", localMarshaller, "with a storage: service that makes objects of events (default: this process)")
	set.IntVar(&f.marshallerPort, "log-marshaller-port", 9083, "not used: this process asks nobody else to make objects")
	set.IntVar(&f.batchSize, "log-batch-size", 1, "with a storage: events in an object")
	set.DurationVar(&f.batchInterval, "log-batch-interval", 0, "with a storage: how long an object waits for events (0: a minute)")
	set.StringVar(&f.caFile, "logger-ca-cert-file", "service-ca.crt", "file below "+trustDir+" with the certificates that count for the receiver")
	set.Var(&f.skipVerify, "logger-tls-skip-verify", "true: accept any certificate of the receiver")
	set.IntVar(&f.queueEvents, "log-queue-events", 1000, "events that wait at most; what is beyond is lost and counted")
	set.Int64Var(&f.queueBytes, "log-queue-bytes", 64<<20, "bytes that bodies of events have together")
	set.Int64Var(&f.maxBody, "log-max-body-bytes", 16<<20, "longest body of an event; requests with a longer one pass, and are not logged")
}

const (
	localMarshaller = "http://localhost:9083/marshal"
	trustDir        = "/etc/tls/logger"
)

// check understands flags and environment; whatever it refuses is a wrong call.
func (f *flags) check(changed func(string) bool) error {
	if f.log.Level == "" {
		f.log.Level = logLevel(f.env)
	}
	var err error
	if f.handler, err = process.NewLogHandler(os.Stderr, f.log); err != nil {
		return err
	}
	if f.port < 1 || f.port > 65535 || f.componentPort < 1 || f.componentPort > 65535 {
		return errors.New("--port and --component-port must be from 1 to 65535")
	}
	if err := checkEnvironment(f.env); err != nil {
		return err
	}
	text, given := os.LookupEnv("SERVING_READINESS_PROBE")
	f.prober, err = newProber(text, given, isOn(f.env("ENABLE_MULTI_CONTAINER_PROBES")), isOn(f.env("ENABLE_HTTP2_AUTO_DETECTION")), f.componentPort)
	if err != nil {
		return err
	}
	f.upstream = &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(f.componentPort)}
	f.socket = socket
	f.patience = patienceOf(f.env)
	if changed("shutdown-delay") {
		f.patience.quiet = f.quiet
	}
	if changed("shutdown-timeout") {
		f.patience.all = f.all
	}
	if f.patience.quiet < 0 || f.patience.all < f.patience.quiet {
		return errors.New("--shutdown-delay must not be negative, and --shutdown-timeout not shorter")
	}
	if err := f.checkBatcher(); err != nil {
		return err
	}
	return f.checkLogger(changed)
}

func (f *flags) checkBatcher() error {
	var err error
	if f.size, err = positive("--max-batchsize", f.maxBatch); err != nil {
		return err
	}
	milliseconds, err := positive("--max-latency", f.maxWait)
	f.wait = time.Duration(milliseconds) * time.Millisecond
	if err == nil && f.maxWaitingBytes < 1<<20 {
		err = errors.New("--max-waiting-bytes must be at least 1048576")
	}
	return err
}

func (f *flags) checkLogger(changed func(string) bool) error {
	if f.logURL == "" {
		return nil
	}
	switch f.logMode {
	case logger.ModeAll, logger.ModeRequest, logger.ModeResponse:
	default:
		return fmt.Errorf("--log-mode %q is unknown; use all, request or response", f.logMode)
	}
	if f.workers < 1 || f.workers > 256 || f.queueEvents < 1 || f.queueBytes < 1<<20 || f.maxBody < 1 || f.batchSize < 0 || f.batchInterval < 0 {
		return errors.New("--workers must be from 1 to 256, --log-queue-events and --log-max-body-bytes at least 1, --log-queue-bytes at least 1048576, " +
			"and --log-batch-size and --log-batch-interval not negative")
	}
	notes, err := annotations(f.notes)
	if err != nil {
		return err
	}
	f.about = logger.About{
		Source: f.source, Service: f.service, Namespace: f.namespace, Component: f.part, Endpoint: f.endpoint, Annotations: notes,
	}
	if f.source == "" {
		f.about.Source = "http://localhost:" + strconv.Itoa(f.port) + "/"
		if name := f.env("HOSTNAME"); changed("source-uri") && name != "" {
			f.about.Source = name // pods are made before they have a name, so that theirs cannot be an argument
		}
	}
	return f.checkSink()
}

// checkSink finds out where events go, and refuses what cannot be.
func (f *flags) checkSink() error {
	if logger.IsBlob(f.logURL) {
		m := logger.Marshaller{Format: f.storeFormat, CertName: f.caFile, Anyone: bool(f.skipVerify)}
		if f.marshaller != localMarshaller && f.marshaller != "http://localhost:"+strconv.Itoa(f.marshallerPort)+"/marshal" {
			m.Remote = f.marshaller
		}
		if err := m.Check(); err != nil {
			return err
		}
		blob, err := logger.NewBlob(logger.BlobOptions{
			URL: f.logURL, Path: f.storePath, About: f.about, Marshaller: m, Size: f.batchSize, Interval: f.batchInterval, Env: f.env,
		})
		f.workers = 1 // objects are made in order
		f.newSink = func(*slog.Logger) (logger.Sink, error) { return blob, nil }
		return err
	}
	u, err := url.Parse(f.logURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("--log-url is no address that events can be sent to; write http://HOST/PATH, https://HOST/PATH, or s3://, gs:// or abfs://")
	}
	f.newSink = func(log *slog.Logger) (logger.Sink, error) {
		sink := &logger.HTTP{URL: u, About: f.about, Anyone: bool(f.skipVerify), Log: log}
		if f.caFile != "" {
			sink.CAFile = filepath.Join(trustDir, filepath.Clean("/"+f.caFile))
		}
		return sink, nil
	}
	return nil
}

// What is kept in memory besides what flags say.
const (
	besides      = 64 << 20
	batchBody    = 8 << 20
	batchAnswer  = 64 << 20
	batchesAtAll = 32
	pulls        = 4
	pullRequests = 4
	pullFiles    = 100_000
)

// run starts what is asked for, in order, and serves until the context ends.
func (f *flags) run(ctx context.Context, log *slog.Logger) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.queueBytes + 3*f.maxWaitingBytes + besides)
	}
	ended := make(chan error, 1)
	if f.puller {
		working, stop := context.WithCancel(ctx)
		defer stop()
		p := f.newPuller(log)
		go func() { ended <- p.Run(working) }()
		select {
		case <-p.Settled():
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-ctx.Done():
			<-ended
			return nil
		}
		defer func() { stop(); <-ended }()
	}
	return f.serve(ctx, log)
}

func (f *flags) newPuller(log *slog.Logger) *puller.Puller {
	return puller.New(puller.Options{
		ConfigDir: f.configDir, ModelDir: f.modelDir, Server: f.upstream.String(), Pulls: pulls, Log: log,
		Fetch: fetch.Options{
			Parallel: pullRequests, Limits: dest.Limits{Files: pullFiles}, Ratio: unpack.Ratio{Most: 200, Free: 256 << 20}, Env: f.env,
		},
	})
}

// serve builds the chain from its end.
func (f *flags) serve(ctx context.Context, log *slog.Logger) error {
	by := newWay()
	chain := newProxy(f.upstream, by, log)
	registry := process.NewRegistry("modelplane-pod agent")
	settle, end := func() {}, func(context.Context) {}
	if f.batcher {
		b := batcher.New(batcher.Options{
			Size: f.size, Wait: f.wait, Upstream: f.upstream, Transport: by, Body: batchBody, Bytes: f.maxWaitingBytes,
			Answer: batchAnswer, InFlight: batchesAtAll,
		})
		chain, settle = b.Handler(chain), b.Stop
	}
	if f.newSink != nil {
		sink, err := f.newSink(log)
		if err != nil {
			return err
		}
		l := logger.New(logger.Options{
			Mode: f.logMode, About: f.about, Headers: f.headers, Sink: sink, Workers: f.workers, Events: f.queueEvents,
			Bytes: f.queueBytes, Body: f.maxBody, Log: log,
		})
		registry.MustRegister(l.Counts)
		chain, end = l.Handler(chain), l.Close
	}
	s := &server{
		front: &front{next: forwarded(chain), ready: f.prober.ready}, address: ":" + strconv.Itoa(f.port), socket: f.socket,
		aside:    []process.Server{{Name: "metrics", Address: f.metrics, Handler: process.Metrics(registry, nil, log)}},
		patience: f.patience, settle: settle, close: end, log: log,
	}
	return s.run(ctx)
}
