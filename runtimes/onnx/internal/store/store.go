// SPDX-License-Identifier: Apache-2.0

// Package store holds the models of a server that serves many: it loads and unloads them while others answer, keeps one
// until its last request is answered, and never takes more memory for them than it may. Who decides which models those are
// is not its concern.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/batch"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/onnxfile"
)

// Options bound what a store takes.
type Options struct {
	// Capacity is how much memory models may take as far as whoever manages them plans it. Buffer is how much more they may
	// take for a moment: while a model is loaded its file is in memory too, and how large it is was not known before.
	Capacity, Buffer int64
	// Loading is how many models are loaded at the same time.
	Loading int
	// Running is how many models run at the same time, of all that there are.
	Running int
	// Queue is for each model.
	Queue batch.Options
}

// Loaded is a model in memory.
type Loaded struct {
	Inputs, Outputs []tensor.Spec
	batch.Runner
	Close func() error
}

// Opener loads a model that was inspected.
type Opener func(path string, info *onnxfile.Info) (*Loaded, error)

// Open is the opener of real models.
func Open(path string, info *onnxfile.Info) (*Loaded, error) {
	m, err := model.Load(path, info, model.Options{Threads: 1, Many: true})
	if err != nil {
		return nil, err
	}
	return &Loaded{Inputs: m.Inputs, Outputs: m.Outputs, Runner: m, Close: m.Close}, nil
}

// Store holds models by their ids.
type Store struct {
	options Options
	open    Opener
	metrics *inference.Metrics
	loading chan struct{}
	running chan struct{}

	mu      sync.Mutex
	models  map[string]*entry
	leaving map[*entry]struct{} // those that nobody finds any more and whose memory is not free yet
	used    int64               // what all of them take
	freed   int64               // what was freed and maybe not given to the system
}

// entry is a model from the moment at which somebody wants it to the one at which its memory is free.
type entry struct {
	id, path string
	// ended is closed when the load has ended; err and size may be read then.
	ended chan struct{}
	err   error
	size  int64
	// left is closed when the model shall go, gone when its memory is free.
	left, gone chan struct{}

	// Of the store's lock:
	waiters  int  // calls that wait for the load
	kept     bool // one of them was told that the model is there
	users    int  // requests that are being answered
	reserved int64
	model    *inference.Model // nil until it is loaded
	loaded   *Loaded
}

// New makes a store without models.
func New(o Options, open Opener, metrics *inference.Metrics) *Store {
	s := &Store{
		options: o, open: open, metrics: metrics,
		loading: make(chan struct{}, max(o.Loading, 1)),
		running: make(chan struct{}, max(o.Running, 1)),
		models:  map[string]*entry{}, leaving: map[*entry]struct{}{},
	}
	metrics.Models(s.count, s.Used, func() int64 { return o.Capacity })
	return s
}

func (s *Store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.models)
}

// Used is how much memory the models take, those that are coming and going too.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Load loads a model and says how much memory it takes. When the context ends first nothing stays of it; memory that it
// has taken already is free when the model is unloaded. A model that is there already is not loaded again.
func (s *Store) Load(ctx context.Context, id, path string) (int64, error) {
	if id == "" || path == "" {
		return 0, inference.Invalidf("a model is loaded by its id and its path; one of them is empty")
	}
	e, err := s.join(ctx, id, path)
	if err != nil {
		return 0, err
	}
	select {
	case <-e.ended:
		s.leave(e, false)
		return e.size, e.err
	case <-ctx.Done():
		s.leave(e, true)
		return 0, cancelled(id)
	}
}

func cancelled(id string) error {
	return &inference.Error{Kind: inference.Cancelled, Message: fmt.Sprintf("the load of the model %q was cancelled", id)}
}

// join finds the load of a model or begins it, unless whoever wants it has given up already: on a busy machine the unload that
// follows may be carried out before, and nobody would come for the memory of a load that began after it. The lock keeps the two
// apart.
func (s *Store) join(ctx context.Context, id, path string) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.models[id]
	switch {
	case ctx.Err() != nil:
		return nil, cancelled(id)
	case e == nil:
		e = &entry{id: id, path: path, ended: make(chan struct{}), left: make(chan struct{}), gone: make(chan struct{})}
		s.models[id] = e
		go s.load(e)
	case e.path != path:
		return nil, &inference.Error{Kind: inference.Unfit, Message: fmt.Sprintf("the model %q is loaded from %s already; unload it before it is loaded from %s", id, e.path, path)}
	}
	e.waiters++
	return e, nil
}

// leave ends the wait for a load. A load that nobody waits for any more, because all gave up, is undone.
func (s *Store) leave(e *entry, gaveUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.waiters--
	e.kept = e.kept || !gaveUp
	if e.waiters == 0 && !e.kept {
		s.take(e)
	}
}

// take has a model go: nobody finds it from now on. Whoever uses it, or loads it, ends that.
func (s *Store) take(e *entry) {
	if s.models[e.id] != e {
		return // it goes already
	}
	delete(s.models, e.id)
	s.leaving[e] = struct{}{}
	close(e.left)
	if e.model != nil && e.users == 0 {
		go s.free(e)
	}
}

// load loads a model when it is its turn.
func (s *Store) load(e *entry) {
	began := time.Now()
	loaded, err := s.turn(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.err = err
	if err == nil {
		e.loaded = loaded
		queue := s.options.Queue
		if !inference.Divisible(loaded.Inputs, loaded.Outputs) {
			queue.MaxRows = 1
		}
		e.model = inference.NewModel(e.id, loaded.Inputs, loaded.Outputs, &gate{loaded, s.running}, queue, s.metrics)
	}
	close(e.ended)
	_, leaves := s.leaving[e]
	switch {
	case err != nil:
		slog.Debug("model not loaded", "model", e.id, "file", e.path, "error", err) // whoever wants it is told
		if !leaves {
			delete(s.models, e.id)
		}
		s.forget(e)
	case leaves:
		go s.free(e)
	default:
		slog.Debug("model loaded", "model", e.id, "file", e.path, "bytes", e.size, "took", time.Since(began).String())
	}
}

// turn waits until few enough models are being loaded, and loads.
func (s *Store) turn(e *entry) (*Loaded, error) {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-e.left:
		return nil, cancelled(e.id)
	}
	path, info, err := inspect(e.path)
	if err != nil {
		return nil, err
	}
	if err := s.reserve(e, info); err != nil {
		return nil, err
	}
	loaded, err := s.open(path, info)
	s.trim(s.settle(e))
	if err != nil {
		return nil, &inference.Error{Kind: inference.Invalid, Message: err.Error()}
	}
	return loaded, nil
}

// inspect finds the model's file and what it says about itself. What is wrong with it is the business of whoever stored it.
func inspect(path string) (string, *onnxfile.Info, error) {
	file, err := model.Find(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no model at %s; check its path in the storage", path)
	}
	if err != nil {
		return "", nil, &inference.Error{Kind: inference.Unfit, Message: err.Error()}
	}
	info, err := model.Inspect(file)
	switch {
	case errors.As(err, new(*onnxfile.Invalid)):
		return "", nil, &inference.Error{Kind: inference.Invalid, Message: err.Error()}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "", nil, &inference.Error{Kind: inference.Unfit, Message: err.Error()}
	case err != nil:
		return "", nil, err
	}
	return file, info, nil
}

// Predict estimates how much memory a model takes, from its file.
func Predict(path string) (int64, error) {
	_, info, err := inspect(path)
	if err != nil {
		return 0, err
	}
	return info.Memory, nil
}

// reserve takes the memory that a model will take, and what loading it takes besides.
func (s *Store) reserve(e *entry, info *onnxfile.Info) error {
	size, most := info.Memory, s.options.Capacity+s.options.Buffer
	if size > s.options.Capacity || size+info.Loading > most {
		return &inference.Error{Kind: inference.Unfit, Message: fmt.Sprintf(
			"the model %q takes %d bytes of memory, and %d more while it is loaded, and this server has %d for models; give its container more memory, or make the model smaller",
			e.id, size, info.Loading, s.options.Capacity)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+size+info.Loading > most {
		return &inference.Error{Kind: inference.Busy, Message: fmt.Sprintf(
			"the model %q takes %d bytes of memory, and %d more while it is loaded, and other models have %d of %d; unload some of them first",
			e.id, size, info.Loading, s.used, most)}
	}
	e.size, e.reserved = size, size+info.Loading
	s.used += e.reserved
	return nil
}

// settle gives back what only the load took.
func (s *Store) settle(e *entry) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	besides := e.reserved - e.size
	s.used -= besides
	e.reserved = e.size
	return besides
}

// trimAfter is how much may be free in the process without being given to the system, which takes milliseconds in which
// no other model gets memory.
const trimAfter = 8 << 20

// trim gives memory to the system when there is enough of it, or when there are no models any more.
func (s *Store) trim(freed int64) {
	s.mu.Lock()
	s.freed += freed
	now := s.freed >= trimAfter || len(s.models) == 0 && len(s.leaving) <= 1
	if now {
		s.freed = 0
	}
	s.mu.Unlock()
	if now {
		model.TrimMemory()
	}
}

// free closes a model that nobody uses.
func (s *Store) free(e *entry) {
	e.model.Close()
	if err := e.loaded.Close(); err != nil {
		slog.Error("model not closed", "model", e.id, "error", err)
	}
	s.trim(e.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	slog.Debug("model unloaded", "model", e.id, "bytes", e.size)
	s.forget(e)
}

// forget is the end of a model whose memory is free.
func (s *Store) forget(e *entry) {
	s.used -= e.reserved
	e.reserved = 0
	delete(s.leaving, e)
	close(e.gone)
}

// Unload has a model go and returns when its memory is free: its requests are answered first, and a load that was cancelled
// has ended. A model that is not there is no error. When the context ends the model goes nevertheless.
func (s *Store) Unload(ctx context.Context, id string) error {
	s.mu.Lock()
	if e := s.models[id]; e != nil {
		s.take(e)
	}
	going := s.goers(func(e *entry) bool { return e.id == id })
	s.mu.Unlock()
	return wait(ctx, going)
}

// Purge has all models go and returns when their memory is free.
func (s *Store) Purge(ctx context.Context) error {
	s.mu.Lock()
	for _, e := range s.models {
		s.take(e)
	}
	going := s.goers(func(*entry) bool { return true })
	s.mu.Unlock()
	return wait(ctx, going)
}

func (s *Store) goers(which func(*entry) bool) []*entry {
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.leaving)), func(e *entry) bool { return !which(e) })
}

func wait(ctx context.Context, going []*entry) error {
	for _, e := range going {
		select {
		case <-e.gone:
		case <-ctx.Done():
			return &inference.Error{Kind: inference.Late, Message: fmt.Sprintf("the model %q still answers requests; it goes after the last of them", e.id)}
		}
	}
	return nil
}

// Size is how much memory a loaded model takes.
func (s *Store) Size(id string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.models[id]
	if e == nil || e.model == nil {
		return 0, missing(id)
	}
	return e.size, nil
}

func missing(id string) error {
	return &inference.Error{Kind: inference.NotFound, Message: fmt.Sprintf("there is no model %q here; it was never loaded, or is not any more", id)}
}

// Use implements inference.Models.
func (s *Store) Use(id string) (*inference.Model, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.models[id]
	if e == nil {
		return nil, nil, missing(id)
	}
	if e.model == nil {
		return nil, nil, &inference.Error{Kind: inference.Unavailable, Message: fmt.Sprintf("the model %q is being loaded; try again later", id)}
	}
	e.users++
	return e.model, sync.OnceFunc(func() { s.done(e) }), nil
}

func (s *Store) done(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.users--
	if _, leaves := s.leaving[e]; leaves && e.users == 0 {
		go s.free(e)
	}
}

// Names implements inference.Models.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.models))
	for id, e := range s.models {
		if e.model != nil {
			names = append(names, id)
		}
	}
	slices.Sort(names)
	return names
}

// Waiting implements inference.Models.
func (s *Store) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := 0
	for _, e := range s.models {
		if e.model != nil {
			waiting += e.model.Waiting()
		}
	}
	return waiting
}

// gate lets few models run at the same time, since they share the processors and the memory of one container.
type gate struct {
	batch.Runner
	running chan struct{}
}

// Run implements batch.Runner.
func (g *gate) Run(inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	g.running <- struct{}{}
	defer func() { <-g.running }()
	return g.Runner.Run(inputs)
}
