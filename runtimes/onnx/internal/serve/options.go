// SPDX-License-Identifier: Apache-2.0

// Package serve is the life of the server: its flags, loading the model, listening, and going away without losing a
// request. What it serves is in the other rooms.
package serve

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
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
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, nil
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
	if o.ModelName == "" {
		problems = append(problems, errors.New("--model_name is empty"))
	}
	return errors.Join(problems...)
}
