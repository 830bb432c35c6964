// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/batch"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/rest"
)

// Version of the server, as it tells clients.
var Version = "dev"

// Addresses are where the server listens; GRPC is nil when it does not.
type Addresses struct{ HTTP, GRPC net.Addr }

// Run loads the model and serves it until the context ends, then drains. It calls started when it listens.
func Run(ctx context.Context, o *Options, started func(Addresses)) error {
	if err := model.LoadLibrary(o.Library); err != nil {
		return err
	}
	return run(ctx, o, started)
}

func run(ctx context.Context, o *Options, started func(Addresses)) error {
	path, err := model.Find(o.ModelDir)
	if err != nil {
		return err
	}
	began := time.Now()
	m, err := model.Open(path, o.Threads)
	if err != nil {
		return err
	}
	rows := o.MaxBatchSize
	if rows > 1 && !inference.Divisible(m.Inputs, m.Outputs) {
		slog.Warn("requests are not put together: an input or output of the model has a fixed first dimension", "model", o.ModelName)
		rows = 1
	}
	service := inference.New(o.ModelName, m.Inputs, m.Outputs, m, batch.Options{
		Workers: o.Workers, Queue: o.QueueSize, MaxRows: rows, MaxDelay: o.MaxBatchDelay,
	}, inference.NewBudget(o.MaxPending, o.MaxRequest))
	slog.Info("model loaded", "model", o.ModelName, "file", path, "took", time.Since(began), "onnxruntime", model.LibraryVersion())
	err = serve(ctx, o, service, started)
	service.Close()
	return errors.Join(err, m.Close())
}

// serve answers until the context ends, and then those who are still there.
func serve(ctx context.Context, o *Options, service *inference.Service, started func(Addresses)) error {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(o.HTTPPort))
	if err != nil {
		return fmt.Errorf("listening for HTTP: %w", err)
	}
	web := &http.Server{
		Handler:           rest.Handler(service, Version),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	started(Addresses{HTTP: listener.Addr()})
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	service.Drain()
	slog.Info("draining", "delay", o.DrainDelay, "timeout", o.DrainTimeout)
	select {
	case <-time.After(o.DrainDelay):
	case err := <-failed:
		return err
	}
	last, cancel := context.WithTimeout(context.Background(), o.DrainTimeout)
	defer cancel()
	if err := web.Shutdown(last); err != nil {
		return errors.Join(fmt.Errorf("requests were still running after %s: %w", o.DrainTimeout, err), web.Close())
	}
	return nil
}
