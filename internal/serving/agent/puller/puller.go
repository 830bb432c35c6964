// SPDX-License-Identifier: Apache-2.0

// Package puller keeps the models of a server that holds many as a list says: it fetches those that are new to where the
// server finds them, has the server load them, and takes away those that are gone. The list is a file that somebody else
// keeps, and is read again when it changes.
//
// It knows no kind of storage, which is package fetch's, and its only state is the files: a model whose files are complete
// has a mark among them, so that whoever kills this process finds everything put in order at the next start. The new files of
// a model are complete before the old ones go. No secret may reach the log.
package puller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/fetch"
)

// Options say what is where.
type Options struct {
	// ConfigDir has the list, and ModelDir gets a directory for each model.
	ConfigDir, ModelDir string
	// Server is the address of the model server.
	Server string
	// Pulls is how many models are fetched at the same time, and Fetch how.
	Pulls int
	Fetch fetch.Options
	Log   *slog.Logger

	// Sockets is where the kernel tells who listens; empty: where it always does.
	Sockets string

	// Every is how often the list and the server are looked at; Pauses are those after failures, the last again and again;
	// Patience is how long a server may take to start before the start of this process goes on without.
	Every    time.Duration
	Pauses   []time.Duration
	Patience time.Duration
}

// What holds where nothing is said.
const (
	every    = time.Second
	patience = 2 * time.Minute
	// callTime is how long a server may take to load a model.
	callTime = 10 * time.Minute
	// callsAtOnce is how many models a server is asked for at the same time: one that comes back is asked for all of them.
	callsAtOnce = 16
)

var pauses = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// Puller works until its context ends. Make one with New.
type Puller struct {
	Options
	folder folder
	client *http.Client
	turns  chan struct{} // of those who fetch
	asking chan struct{} // of those who have the server load or unload

	settled chan struct{} // closed when every model of the first list was tried
	first   sync.WaitGroup

	workers sync.WaitGroup
	models  map[string]*worker // those that have a worker
	epoch   int                // of the server: another one has forgotten everything
	seen    fingerprint
	failure string // why the list could not be read
}

// New makes a puller.
func New(o Options) *Puller {
	if o.Every == 0 {
		o.Every = every
	}
	if o.Sockets == "" {
		o.Sockets = "/proc/self/net"
	}
	if o.Pauses == nil {
		o.Pauses = pauses
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	o.Fetch.Log = o.Log
	return &Puller{
		Options: o, folder: folder(o.ModelDir), turns: make(chan struct{}, max(o.Pulls, 1)), asking: make(chan struct{}, callsAtOnce), models: map[string]*worker{},
		settled: make(chan struct{}), client: &http.Client{Timeout: callTime},
	}
}

// Settled is closed when all models of the first list have been fetched and loaded, or have failed once.
func (p *Puller) Settled() <-chan struct{} { return p.settled }

// Run follows the list until the context ends.
func (p *Puller) Run(ctx context.Context) error {
	known, err := p.folder.open()
	if err != nil {
		return err
	}
	for name := range known { // what the list does not have goes, also when it was left from before
		p.worker(ctx, name)
	}
	p.look(ctx, true)
	go func() { p.first.Wait(); close(p.settled) }()
	ticker := time.NewTicker(p.Every)
	defer ticker.Stop()
	defer p.workers.Wait()
	was := p.listening()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		p.look(ctx, false)
		was = p.watchServer(was)
	}
}

// look reads the list if it has changed, and tells the workers.
func (p *Puller) look(ctx context.Context, first bool) {
	list, skipped, changed, err := p.seen.read(filepath.Join(p.ConfigDir, listName))
	if err != nil {
		if text := err.Error(); text != p.failure {
			p.failure = text
			p.Log.Error("The list of models cannot be used; what is loaded stays", "err", text)
		}
		if first {
			p.keepAll()
		}
		return
	}
	p.failure = ""
	if !changed {
		return
	}
	if len(skipped) > 0 {
		p.Log.Error("The list has entries that cannot be models; a name has letters, digits, '_' and '-', and is there once", "entries", skipped)
	}
	for name := range list {
		p.worker(ctx, name)
	}
	for name, w := range p.models {
		spec, listed := list[name]
		o := order{spec: spec, listed: listed, epoch: p.epoch}
		if w.tell(o, first) {
			continue
		}
		delete(p.models, name) // it has removed the model and ended
		if listed {
			p.worker(ctx, name).tell(o, first)
		}
	}
}

// keepAll leaves what an earlier run has fetched as it is, because nobody knows what ought to be there.
func (p *Puller) keepAll() {
	for _, w := range p.models {
		w.tell(order{spec: w.have, listed: true, epoch: p.epoch}, true)
	}
}

// worker of a model, made when there is none.
func (p *Puller) worker(ctx context.Context, name string) *worker {
	if w := p.models[name]; w != nil {
		return w
	}
	w := newWorker(p, name)
	p.models[name] = w
	p.workers.Go(func() { w.run(ctx) })
	return w
}

// watchServer notices that the server has started again, and has everything loaded again: it keeps models in memory. Between two
// looks it may have been gone for a moment only, so that it is known by the sockets it listens at: another start has others.
func (p *Puller) watchServer(was sockets) sockets {
	now := p.listening()
	switch {
	case len(now) == 0: // it is starting
		return was
	case len(was) == 0 || now.shares(was):
		return now
	}
	p.epoch++
	p.Log.Info("The model server was started again; its models are loaded again", "models", len(p.models))
	for _, w := range p.models {
		w.renew(p.epoch)
	}
	return now
}

// errGone says that nobody wants it any more.
var errGone = errors.New("the process ends")
