// SPDX-License-Identifier: Apache-2.0

// Package serve is the life of the server: its flags, loading the model, listening, and going away without losing a
// request. What it serves is in the other rooms.
package serve

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Options are the flags.
type Options struct {
	ModelName     string
	ModelDir      string
	Library       string
	HTTPPort      int
	GRPCPort      int
	Workers       int
	Threads       int
	QueueSize     int
	MaxBatchSize  int64
	MaxBatchDelay time.Duration
	MaxRequest    int64
	MaxPending    int64
	ClientTimeout time.Duration
	DrainDelay    time.Duration
	DrainTimeout  time.Duration

	// MultiModel is whether a mesh decides which models there are, and the following are for that.
	MultiModel   bool
	Management   string
	Capacity     int64
	MemoryBuffer int64
	Loading      int
	LoadTimeout  time.Duration
	DefaultSize  int64
}

// Parse reads the command line. The spelling with underscores is that of other model servers, so that their manifests
// work here.
func Parse(args []string, output io.Writer) (*Options, error) {
	o := &Options{}
	f := flag.NewFlagSet("modelplane-onnx", flag.ContinueOnError)
	// The list of all flags is for those who ask; in the last words of a container it would crowd out what is wrong.
	f.SetOutput(io.Discard)
	f.StringVar(&o.ModelName, "model_name", "model", "name of the model in requests")
	f.StringVar(&o.ModelDir, "model_dir", "/mnt/models", "directory with model.onnx or one other .onnx file, or the file itself")
	f.StringVar(&o.Library, "ort_library", os.Getenv("ORT_LIBRARY"), "libonnxruntime.so to load; default: $ORT_LIBRARY, then beside this program, then where the loader looks")
	f.IntVar(&o.HTTPPort, "http_port", 8080, "port for HTTP; 0: a free one")
	f.IntVar(&o.GRPCPort, "grpc_port", 8081, "port for gRPC; 0: a free one, -1: no gRPC")
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "runs of the model at the same time")
	f.IntVar(&o.Threads, "threads", 1, "threads that one run may use")
	f.IntVar(&o.QueueSize, "queue_size", 256, "requests that wait for a worker; more are refused")
	f.Int64Var(&o.MaxBatchSize, "max_batch_size", 1, "rows up to which requests are put together into one run; 1: each runs alone")
	f.DurationVar(&o.MaxBatchDelay, "max_batch_delay", 2*time.Millisecond, "how long a request waits for others to join its run")
	f.Int64Var(&o.MaxRequest, "max_request_bytes", 64<<20, "size of one request")
	f.Int64Var(&o.MaxPending, "max_pending_bytes", 256<<20, "memory that all requests being handled, and their answers, take together")
	f.DurationVar(&o.ClientTimeout, "client_timeout", 30*time.Second, "how long a client may take to read a piece of its answer")
	f.DurationVar(&o.DrainDelay, "drain_delay", 5*time.Second, "how long requests are still taken after SIGTERM, until everybody knows that this replica goes")
	f.DurationVar(&o.DrainTimeout, "drain_timeout", 20*time.Second, "how long the last requests may take after that")
	env := environment{}
	f.BoolVar(&o.MultiModel, "multi_model", os.Getenv("MULTI_MODEL") == "true", "load and unload models as a mesh wants; default: $MULTI_MODEL")
	f.StringVar(&o.Management, "management_endpoint", cmp.Or(os.Getenv("MANAGEMENT_ENDPOINT"), "port:8085"), "where the mesh manages models: port:N, on this host only, or unix:/PATH; default: $MANAGEMENT_ENDPOINT")
	f.Int64Var(&o.Capacity, "capacity_bytes", env.number("CAPACITY_BYTES", 0), "memory for models; default: $CAPACITY_BYTES, then the limit of the container without mem_buffer_bytes, max_pending_bytes and what the server takes itself")
	f.Int64Var(&o.MemoryBuffer, "mem_buffer_bytes", env.number("MEM_BUFFER_BYTES", 128<<20), "memory for what loading takes besides, which is up to twice the largest model; default: $MEM_BUFFER_BYTES")
	f.IntVar(&o.Loading, "loading_concurrency", int(env.number("LOADING_CONCURRENCY", 1)), "models that are loaded at the same time; default: $LOADING_CONCURRENCY")
	f.DurationVar(&o.LoadTimeout, "loading_timeout", time.Duration(env.number("LOADTIME_TIMEOUT", 90_000))*time.Millisecond, "how long the mesh waits for a model to be loaded; default: $LOADTIME_TIMEOUT, in milliseconds")
	f.Int64Var(&o.DefaultSize, "default_model_bytes", env.number("DEFAULT_MODELSIZE", 1<<20), "what the mesh takes a model for whose size is not known yet; default: $DEFAULT_MODELSIZE")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		f.SetOutput(output)
		f.Usage()
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w (--help lists all flags)", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is not expected; all settings are flags", f.Arg(0))
	}
	if o.MultiModel && env.err != nil {
		return nil, env.err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, nil
}

// environment reads defaults, under the names that adapters of other model servers have for them.
type environment struct{ err error }

func (e *environment) number(name string, otherwise int64) int64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		e.err = errors.Join(e.err, fmt.Errorf("%s is %q; it must be a number", name, text))
	}
	return n
}

// managementAddress reads an endpoint as a ServingRuntime has it.
func managementAddress(endpoint string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(endpoint, "unix:"); ok && strings.HasPrefix(path, "/") {
		return "unix", filepath.Clean(path), nil
	}
	if text, ok := strings.CutPrefix(endpoint, "port:"); ok {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil {
			return "tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(port, 10)), nil
		}
	}
	return "", "", fmt.Errorf("--management_endpoint is %q; it must be port:N or unix:/PATH", endpoint)
}

func (o *Options) check() error {
	var problems []error
	atLeast := func(name string, value, least int64) {
		if value < least {
			problems = append(problems, fmt.Errorf("--%s is %d; it must be at least %d", name, value, least))
		}
	}
	atLeast("http_port", int64(o.HTTPPort), 0)
	atLeast("grpc_port", int64(o.GRPCPort), -1)
	atLeast("workers", int64(o.Workers), 1)
	atLeast("threads", int64(o.Threads), 1)
	atLeast("queue_size", int64(o.QueueSize), 1)
	atLeast("max_batch_size", o.MaxBatchSize, 1)
	atLeast("max_batch_delay", int64(o.MaxBatchDelay), 0)
	atLeast("max_request_bytes", o.MaxRequest, 1)
	atLeast("max_pending_bytes", o.MaxPending, o.MaxRequest)
	atLeast("client_timeout", int64(o.ClientTimeout), 1)
	atLeast("drain_delay", int64(o.DrainDelay), 0)
	atLeast("drain_timeout", int64(o.DrainTimeout), 0)
	if o.MultiModel {
		atLeast("capacity_bytes", o.Capacity, 0)
		atLeast("mem_buffer_bytes", o.MemoryBuffer, 0)
		atLeast("loading_concurrency", int64(o.Loading), 1)
		atLeast("loading_timeout", int64(o.LoadTimeout), int64(time.Millisecond))
		atLeast("default_model_bytes", o.DefaultSize, 1)
		if o.Threads > 1 {
			problems = append(problems, fmt.Errorf("--threads is %d; each of many models has one thread for a run", o.Threads))
		}
		if o.GRPCPort < 0 {
			problems = append(problems, errors.New("--grpc_port is -1; a mesh speaks gRPC"))
		}
		if _, _, err := managementAddress(o.Management); err != nil {
			problems = append(problems, err)
		}
	}
	if o.ModelName == "" {
		problems = append(problems, errors.New("--model_name is empty"))
	}
	return errors.Join(problems...)
}
