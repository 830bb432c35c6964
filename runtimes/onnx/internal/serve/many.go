// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/spi"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/store"
)

// runMany serves the models that a mesh loads.
func runMany(ctx context.Context, o *Options, started func(Addresses)) error {
	capacity, err := o.capacity(memoryLimit("/"))
	if err != nil {
		return err
	}
	model.SettleMemory()
	boundHeap(o.MaxPending)
	metrics := inference.NewMetrics("")
	models := store.New(store.Options{
		Capacity: capacity, Buffer: o.MemoryBuffer, Loading: o.Loading, Running: o.Workers, Queue: o.queue(o.MaxBatchSize),
	}, store.Open, metrics)
	manage := spi.New(models, spi.Options{
		Capacity: capacity, Loading: o.Loading, LoadTimeout: o.LoadTimeout, DefaultSize: o.DefaultSize, Version: Version,
	})
	slog.Info("waiting for models", "capacity", capacity, "onnxruntime", model.LibraryVersion())
	err = serve(ctx, o, o.service(models, metrics), manage, started)
	manage.Stop()
	last, cancel := context.WithTimeout(context.Background(), o.DrainTimeout)
	defer cancel()
	return errors.Join(err, models.Purge(last))
}

// capacity is how much memory is left for models.
func (o *Options) capacity(limit int64) (int64, error) {
	if o.Capacity > 0 {
		return o.Capacity, nil
	}
	if limit == 0 {
		return 0, errors.New("the container has no memory limit to tell how many models it can hold; set one, or --capacity_bytes")
	}
	left := limit - o.MemoryBuffer - o.MaxPending - besides
	if left < o.DefaultSize {
		return 0, fmt.Errorf("of the container's memory of %d bytes nothing is left for models: --mem_buffer_bytes takes %d, --max_pending_bytes %d, and the server itself %d; give it more memory, or lower one of them",
			limit, o.MemoryBuffer, o.MaxPending, int64(besides))
	}
	return left, nil
}

// grpcHost keeps others than the mesh beside the server from calling models past it.
func (o *Options) grpcHost() string {
	if o.MultiModel {
		return "127.0.0.1"
	}
	return ""
}

// listenManagement takes the place of a socket that a former process of this container left.
func listenManagement(endpoint string) (net.Listener, error) {
	network, address, err := managementAddress(endpoint)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return net.Listen(network, address)
}
