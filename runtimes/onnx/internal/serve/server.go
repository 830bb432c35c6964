// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/batch"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/rest"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/rpc"
)

// Version of the server, as it tells clients.
var Version = "dev"

// Addresses are where the server listens. GRPC is nil when it does not; Management is nil when it has one model.
type Addresses struct{ HTTP, GRPC, Management net.Addr }

// Run loads the model and serves it until the context ends, then drains. It calls started when it listens.
func Run(ctx context.Context, o *Options, started func(Addresses)) error {
	if err := model.LoadLibrary(o.Library); err != nil {
		return err
	}
	return RunLoaded(ctx, o, started)
}

// RunLoaded is Run for a process that has loaded ONNX Runtime already, which can be done once.
func RunLoaded(ctx context.Context, o *Options, started func(Addresses)) error {
	if o.MultiModel {
		return runMany(ctx, o, started)
	}
	path, err := model.Find(o.ModelDir)
	if err != nil {
		return err
	}
	began := time.Now()
	m, err := model.Open(path, model.Options{Threads: o.Threads})
	if err != nil {
		return err
	}
	rows := o.MaxBatchSize
	if rows > 1 && !inference.Divisible(m.Inputs, m.Outputs) {
		slog.Warn("requests are not put together: an input or output of the model has a fixed first dimension", "model", o.ModelName)
		rows = 1
	}
	metrics := inference.NewMetrics(o.ModelName)
	only := inference.Only{Model: inference.NewModel(o.ModelName, m.Inputs, m.Outputs, m, o.queue(rows), metrics)}
	service := o.service(only, metrics)
	boundHeap(o.MaxPending)
	slog.Info("model loaded", "model", o.ModelName, "file", path, "took", time.Since(began).String(), "onnxruntime", model.LibraryVersion())
	err = serve(ctx, o, service, nil, started)
	only.Model.Close()
	return errors.Join(err, m.Close())
}

func (o *Options) queue(rows int64) batch.Options {
	return batch.Options{Workers: o.Workers, Queue: o.QueueSize, MaxRows: rows, MaxDelay: o.MaxBatchDelay}
}

func (o *Options) service(models inference.Models, metrics *inference.Metrics) *inference.Service {
	s := inference.New(models, metrics, inference.NewBudget(o.MaxPending, o.MaxRequest))
	s.ClientTimeout = o.ClientTimeout
	return s
}

// besides is what the program takes besides requests, with room for the garbage collector.
const besides = 128 << 20

// boundHeap has the collector work harder before garbage makes the process twice as large as what it holds.
func boundHeap(pending int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(pending + besides)
	}
}

// servers are the ways in.
type servers struct {
	web      *http.Server
	rpc      *http.Server // nil: no gRPC
	manage   *grpc.Server // nil: one model
	httpAt   net.Listener
	grpcAt   net.Listener // nil: no gRPC
	manageAt net.Listener // nil: one model
	failures chan error
}

func listen(o *Options, service *inference.Service, manage *grpc.Server) (_ *servers, err error) {
	s := &servers{manage: manage, failures: make(chan error, 3)}
	defer func() {
		if err != nil {
			s.unlisten()
		}
	}()
	if s.httpAt, err = net.Listen("tcp", ":"+strconv.Itoa(o.HTTPPort)); err != nil {
		return nil, fmt.Errorf("listening for HTTP: %w", err)
	}
	s.web = server(farewell(service, rest.Handler(service, Version)))
	s.web.IdleTimeout = 3 * time.Minute
	if o.GRPCPort >= 0 {
		if s.grpcAt, err = net.Listen("tcp", o.grpcHost()+":"+strconv.Itoa(o.GRPCPort)); err != nil {
			return nil, fmt.Errorf("listening for gRPC: %w", err)
		}
		s.rpc = rpcServer(o, rpc.New(service, Version))
	}
	if manage != nil {
		if s.manageAt, err = listenManagement(o.Management); err != nil {
			return nil, fmt.Errorf("listening for the mesh: %w", err)
		}
	}
	return s, nil
}

// unlisten closes what was opened when something else could not be.
func (s *servers) unlisten() {
	for _, l := range []net.Listener{s.httpAt, s.grpcAt, s.manageAt} {
		if l != nil {
			_ = l.Close() // nobody came yet
		}
	}
}

func server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// What one connection with gRPC may have open, and have sent before anybody reads it.
const (
	streams     = 1000
	unreadBytes = 1 << 20
)

// rpcServer speaks HTTP/2 without TLS, which is what gRPC is inside of a cluster.
func rpcServer(o *Options, handler http.Handler) *http.Server {
	s := server(handler)
	s.IdleTimeout = time.Hour // clients expect a connection to last
	s.Protocols = new(http.Protocols)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          streams,
		MaxReceiveBufferPerConnection: unreadBytes,
		MaxReceiveBufferPerStream:     unreadBytes / 4,
		SendPingTimeout:               time.Minute,
		WriteByteTimeout:              o.ClientTimeout,
	}
	return s
}

// farewell has clients close their connections while the server drains, after the answer and before it does so itself: a
// request that meets a closing connection is lost to whoever may not send it twice.
func farewell(service *inference.Service, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !service.Ready() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (s *servers) addresses() Addresses {
	a := Addresses{HTTP: s.httpAt.Addr()}
	if s.grpcAt != nil {
		a.GRPC = s.grpcAt.Addr()
	}
	if s.manageAt != nil {
		a.Management = s.manageAt.Addr()
	}
	return a
}

func (s *servers) start() {
	go func() { s.failures <- s.web.Serve(s.httpAt) }()
	if s.rpc != nil {
		go func() { s.failures <- s.rpc.Serve(s.grpcAt) }()
	}
	if s.manage != nil {
		go func() { s.failures <- s.manage.Serve(s.manageAt) }()
	}
}

// stop takes no more requests and waits for those that are there, until the context ends.
func (s *servers) stop(ctx context.Context) error {
	rpcDone := make(chan error, 1)
	go func() {
		if s.rpc == nil {
			rpcDone <- nil
			return
		}
		rpcDone <- s.rpc.Shutdown(ctx)
	}()
	err := errors.Join(s.web.Shutdown(ctx), <-rpcDone)
	if s.manage != nil {
		s.manage.Stop() // whoever loads a model now has no use for it
	}
	if err == nil {
		return nil
	}
	err = errors.Join(fmt.Errorf("requests were still running at the end: %w", err), s.web.Close())
	if s.rpc != nil {
		err = errors.Join(err, s.rpc.Close())
	}
	return err
}

// serve answers until the context ends. Then it says that it is not ready and goes on answering, since others take a
// while to hear of it; and then it waits for those who are still there.
func serve(ctx context.Context, o *Options, service *inference.Service, manage *grpc.Server, started func(Addresses)) error {
	s, err := listen(o, service, manage)
	if err != nil {
		return err
	}
	s.start()
	started(s.addresses())
	select {
	case err := <-s.failures:
		return err
	case <-ctx.Done():
	}
	service.Drain()
	slog.Info("draining", "delay", o.DrainDelay.String(), "timeout", o.DrainTimeout.String())
	select {
	case err := <-s.failures:
		return err
	case <-time.After(o.DrainDelay):
	}
	last, cancel := context.WithTimeout(context.Background(), o.DrainTimeout)
	defer cancel()
	return s.stop(last)
}
