// SPDX-License-Identifier: Apache-2.0

// Package puller stands between the mesh and a model runtime that knows nothing of storage. It speaks the runtime's
// interface on both sides: before a load it fetches the model's files to where the runtime finds them, and after an
// unload it removes them.
//
// It knows no kind of storage itself, which is package fetch's, and keeps no state but the files: whoever kills it finds
// everything put in order at the next start. No secret may reach a status, a log or the runtime.
package puller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// Puller answers for the runtime behind it.
type Puller struct {
	wire.UnimplementedModelRuntimeServer

	runtime wire.ModelRuntimeClient
	store   storage
	files   folder
	fetch   fetch.Options
	turns   turns
	pulls   chan struct{} // how many at a time
	metrics *metrics
	log     *slog.Logger
}

// undoTime bounds how long the runtime may take to forget a model whose load was given up.
const undoTime = 30 * time.Second

// New makes a puller in front of a runtime.
func New(s Settings, runtime wire.ModelRuntimeClient, options fetch.Options, log *slog.Logger) *Puller {
	options.Log = log
	return &Puller{
		runtime: runtime,
		store:   storage{configs: s.StorageConfigDir, claims: s.ClaimsDir, env: options.Env},
		files:   folder(s.RootModelDir),
		fetch:   options,
		pulls:   make(chan struct{}, max(s.Pulls, 1)),
		metrics: newMetrics(folder(s.RootModelDir)),
		log:     log,
	}
}

// LoadModel fetches the model's files and has the runtime load them. When that fails or nobody wants it any more, no
// file stays.
func (p *Puller) LoadModel(ctx context.Context, request *wire.LoadModelRequest) (*wire.LoadModelResponse, error) {
	name, err := folderName(request.GetModelId())
	if err != nil {
		return nil, failure(ctx, err)
	}
	done, err := p.turns.take(ctx, name)
	if err != nil {
		return nil, gaveUp(ctx)
	}
	defer done()
	forward, err := p.pull(ctx, request, name)
	if err != nil {
		p.tidy(name)
		return nil, failure(ctx, err)
	}
	began := time.Now()
	response, err := p.runtime.LoadModel(ctx, forward)
	p.metrics.load(began, err)
	if err != nil {
		p.undo(ctx, request.GetModelId(), name)
		return nil, ofRuntime(err)
	}
	return response, nil
}

// pull brings the files and says how the runtime is to be asked for them.
func (p *Puller) pull(ctx context.Context, request *wire.LoadModelRequest, name string) (out *wire.LoadModelRequest, err error) {
	began, kind, size := time.Now(), unknown, int64(0)
	defer func() {
		if err != nil {
			p.metrics.pull(kind, began, 0, failure(ctx, err))
			return
		}
		p.metrics.pull(kind, began, size, nil)
	}()
	key, err := readKey(request.GetModelKey())
	if err != nil {
		return nil, err
	}
	order, err := p.store.order(key, request.GetModelPath())
	if err != nil {
		return nil, err
	}
	kind = order.kind
	done, err := p.turnToPull(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := p.files.remove(name); err != nil {
		return nil, err
	}
	dir, err := p.files.add(name)
	if err != nil {
		return nil, err
	}
	if err := order.bring(ctx, dir, p.fetch); err != nil {
		return nil, err
	}
	path, schema := order.places(dir)
	onDisk := diskSize(path)
	text, err := key.forRuntime(schema, onDisk)
	if err != nil {
		return nil, err
	}
	if order.claim == "" { // what is linked was not brought
		size = onDisk
	}
	return &wire.LoadModelRequest{
		ModelId: request.GetModelId(), ModelType: request.GetModelType(), ModelPath: path, ModelKey: text,
	}, nil
}

// turnToPull waits until few enough others fetch. What it returns ends the turn.
func (p *Puller) turnToPull(ctx context.Context) (func(), error) {
	p.metrics.waiting.Inc()
	defer p.metrics.waiting.Dec()
	select {
	case p.pulls <- struct{}{}:
		p.metrics.underWay.Inc()
		return func() { p.metrics.underWay.Dec(); <-p.pulls }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// undo takes back a load that the runtime did not finish. A runtime that still reads files when nobody waits for it any
// more is told to stop before they go.
func (p *Puller) undo(ctx context.Context, id, name string) {
	if ctx.Err() != nil {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if _, err := p.runtime.UnloadModel(again, &wire.UnloadModelRequest{ModelId: id}); err != nil && !absent(err) {
			p.log.Warn("The runtime did not forget a model whose load was given up", "model", id, "err", status.Convert(err).Message())
		}
	}
	p.tidy(name)
}

func (p *Puller) tidy(name string) {
	if err := p.files.remove(name); err != nil {
		p.log.Warn("Files of a model that is not loaded stay until the next start", "model", name, "err", err.Error())
	}
}

// absent tells whether the runtime says that it has no such model.
func absent(err error) bool { return status.Code(err) == codes.NotFound }

// UnloadModel has the runtime forget the model, then removes its files.
func (p *Puller) UnloadModel(ctx context.Context, request *wire.UnloadModelRequest) (*wire.UnloadModelResponse, error) {
	name, err := folderName(request.GetModelId())
	if err != nil {
		return nil, failure(ctx, err)
	}
	done, err := p.turns.take(ctx, name)
	if err != nil {
		return nil, gaveUp(ctx)
	}
	defer done()
	if _, err := p.runtime.UnloadModel(ctx, request); err != nil && !absent(err) {
		return nil, ofRuntime(err)
	}
	if err := p.files.remove(name); err != nil {
		return nil, status.Error(codes.Internal, sentence(err))
	}
	return &wire.UnloadModelResponse{}, nil
}

// headerCheck is with the question of a mesh that has no room for a model now and wants to know whether it is there at all.
// An answer that says why it is not has it, too: other errors of that method mean nothing.
const headerCheck = "mm-check"

// PredictModelSize is for the runtime to say. The storage is looked at only when the mesh wants to know.
func (p *Puller) PredictModelSize(ctx context.Context, request *wire.PredictModelSizeRequest) (*wire.PredictModelSizeResponse, error) {
	if asked, _ := metadata.FromIncomingContext(ctx); len(asked.Get(headerCheck)) > 0 {
		if err := p.find(ctx, request); err != nil {
			if ctx.Err() == nil {
				_ = grpc.SetTrailer(ctx, metadata.Pairs(headerCheck, "failed")) // fails only when the answer is sent already
			}
			return nil, failure(ctx, err)
		}
	}
	return p.runtime.PredictModelSize(ctx, request)
}

// find looks whether a model's files are there.
func (p *Puller) find(ctx context.Context, request *wire.PredictModelSizeRequest) error {
	key, err := readKey(request.GetModelKey())
	if err != nil {
		return err
	}
	order, err := p.store.order(key, request.GetModelPath())
	if err != nil {
		return err
	}
	return order.find(ctx, p.fetch)
}

// ModelSize is for the runtime to say.
func (p *Puller) ModelSize(ctx context.Context, request *wire.ModelSizeRequest) (*wire.ModelSizeResponse, error) {
	return p.runtime.ModelSize(ctx, request)
}

// RuntimeStatus is the runtime's. Before it is READY, models of an earlier mesh are unloaded and their files removed.
func (p *Puller) RuntimeStatus(ctx context.Context, request *wire.RuntimeStatusRequest) (*wire.RuntimeStatusResponse, error) {
	response, err := p.runtime.RuntimeStatus(ctx, request)
	if err != nil {
		return nil, ofRuntime(err)
	}
	if response.GetStatus() != wire.RuntimeStatusResponse_READY {
		return response, nil
	}
	names, err := p.files.list()
	if err != nil {
		return nil, status.Error(codes.Internal, sentence(err))
	}
	for _, name := range names {
		if _, err := p.UnloadModel(ctx, &wire.UnloadModelRequest{ModelId: modelOf(name)}); err != nil {
			return nil, status.Errorf(codes.Unavailable, "A model of an earlier mesh cannot be removed: %s", status.Convert(err).Message())
		}
	}
	if len(names) > 0 {
		p.log.Info("Removed what an earlier mesh had loaded", "models", len(names))
	}
	return response, nil
}

// gaveUp is the status of a call that nobody waits for any more.
func gaveUp(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.Error(codes.DeadlineExceeded, "The time for loading the model passed before its files were there.")
	}
	return status.Error(codes.Canceled, "The load was given up before the model's files were there.")
}
