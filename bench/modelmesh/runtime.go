// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that raw stands on
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// echo is a model runtime that can be paid for a thousand times on one machine: a model is a name, and its answer to a
// request is the request. Everything else is as in a real one: it has a capacity, a load takes time, and a model that is
// not loaded is not found.
type echo struct {
	wire.UnimplementedModelRuntimeServer
	capacity, size uint64
	loading        time.Duration

	mu     sync.RWMutex
	loaded map[string]bool

	loads, unloads, answers atomic.Int64
}

// threads is how many loads a runtime bears at once.
const threads = 8

func newEcho(capacity, size uint64, loading time.Duration) *echo {
	return &echo{capacity: capacity, size: size, loading: loading, loaded: map[string]bool{}}
}

// RuntimeStatus is asked by a mesh that has just started, so nothing of a former one is left.
func (e *echo) RuntimeStatus(context.Context, *wire.RuntimeStatusRequest) (*wire.RuntimeStatusResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.loaded)
	return &wire.RuntimeStatusResponse{
		Status: wire.RuntimeStatusResponse_READY, CapacityInBytes: e.capacity, MaxLoadingConcurrency: threads, ModelLoadingTimeoutMs: 30_000,
		DefaultModelSizeInBytes: e.size, RuntimeVersion: "bench", AllowAnyMethod: true,
	}, nil
}

// LoadModel takes the time of a small file.
func (e *echo) LoadModel(ctx context.Context, in *wire.LoadModelRequest) (*wire.LoadModelResponse, error) {
	select {
	case <-time.After(e.loading):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if uint64(len(e.loaded)+1)*e.size > e.capacity {
		return nil, status.Errorf(codes.ResourceExhausted, "%d models fill the memory", len(e.loaded))
	}
	e.loaded[in.GetModelId()] = true
	e.loads.Add(1)
	return &wire.LoadModelResponse{SizeInBytes: e.size}, nil
}

// UnloadModel forgets a name.
func (e *echo) UnloadModel(_ context.Context, in *wire.UnloadModelRequest) (*wire.UnloadModelResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.loaded, in.GetModelId())
	e.unloads.Add(1)
	return &wire.UnloadModelResponse{}, nil
}

// PredictModelSize knows, since all are the same.
func (e *echo) PredictModelSize(context.Context, *wire.PredictModelSizeRequest) (*wire.PredictModelSizeResponse, error) {
	return &wire.PredictModelSizeResponse{SizeInBytes: e.size}, nil
}

// ModelSize is never needed: LoadModel tells.
func (e *echo) ModelSize(context.Context, *wire.ModelSizeRequest) (*wire.ModelSizeResponse, error) {
	return &wire.ModelSizeResponse{SizeInBytes: e.size}, nil
}

// infer answers any method.
func (e *echo) infer(_ any, stream grpc.ServerStream) error {
	headers, _ := metadata.FromIncomingContext(stream.Context())
	ids := headers.Get(modelHeader)
	if len(ids) != 1 {
		return status.Errorf(codes.InvalidArgument, "%d headers %s", len(ids), modelHeader)
	}
	e.mu.RLock()
	there := e.loaded[ids[0]]
	e.mu.RUnlock()
	if !there {
		return status.Errorf(codes.NotFound, "model %s is not loaded", ids[0])
	}
	var message raw
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	e.answers.Add(1)
	return stream.SendMsg(&message)
}

// serve listens until the context ends.
func (e *echo) serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(e.infer), grpc.MaxRecvMsgSize(mostMessage))
	wire.RegisterModelRuntimeServer(server, e)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(listener)
}

// runtimeProcess is the program when it is a runtime for so many models at an address, as in 1024@127.0.0.1:8085, until its
// standard input closes: with the process that started it.
func runtimeProcess(what string) error {
	models, address, _ := strings.Cut(what, "@")
	n, err := strconv.ParseUint(models, 10, 32)
	if err != nil {
		return fmt.Errorf("%s is %q: %w", runtimeVariable, what, err)
	}
	e := newEcho(n*modelBytes, modelBytes, loadTime)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	var from net.ListenConfig
	listener, err := from.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return e.serve(ctx, listener)
}

// mostMessage is the largest payload.
const mostMessage = 16 << 20

// raw is a message that nobody decodes.
type raw []byte

// codec passes raw messages through and leaves others to protobuf.
type codec struct{}

// Name is that of protobuf, because that is what raw messages are for everybody else.
func (codec) Name() string { return "proto" }

// Marshal is part of encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(*r)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal is part of encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*raw); ok {
		*r = data.Materialize()
		return nil
	}
	if err := encoding.GetCodecV2("proto").Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	return nil
}
