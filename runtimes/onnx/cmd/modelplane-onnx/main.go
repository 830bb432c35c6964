// SPDX-License-Identifier: Apache-2.0

// Command modelplane-onnx serves one ONNX model, or many that a mesh loads and unloads, over the open inference protocol
// (REST and gRPC) and the v1 predict protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/serve"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	options, err := serve.Parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "modelplane-onnx:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err = serve.Run(ctx, options, func(at serve.Addresses) {
		//nolint:gocritic // an address is nil when nobody listens there
		slog.Info("serving", "model", options.ModelName, "many", options.MultiModel, "http", fmt.Sprint(at.HTTP), "grpc", fmt.Sprint(at.GRPC), "management", fmt.Sprint(at.Management))
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "modelplane-onnx:", err)
		os.Exit(1)
	}
}
