// SPDX-License-Identifier: Apache-2.0

// Package fetch brings models to where a server finds them: it is the storage initializer that runs before the server's
// container. It reads its orders from arguments and environment variables as the pod webhook writes them, needs no cluster,
// and says in one sentence why it failed.
//
// Each kind of storage has a room of its own below and only lists what there is; reading over HTTP, unpacking and
// writing are the same for all. Nothing here may print an address with its query, a header or a credential.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/modelregistry"
	"github.com/modelplane/modelplane/internal/fetch/oci"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/fetch/unpack"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// Options say how to fetch.
type Options struct {
	// Parallel is how many requests are under way at the same time.
	Parallel int
	// Limits hold for all models together.
	Limits dest.Limits
	// Ratio bounds archives.
	Ratio unpack.Ratio
	// Env looks up a variable.
	Env func(string) string
	Log *slog.Logger
	// ProgressEvery is how often progress is logged; never when it is zero.
	ProgressEvery time.Duration

	// Tune changes a client before it is used, for tests.
	Tune func(*transfer.Client)
}

// Pair is one model and where it goes.
type Pair struct {
	Source, Destination string
	// As, where it is not empty, is what the model is called below the destination, be it a file or a directory. An archive
	// stays packed then. Only storages that list files can do that.
	As string
}

// Pairs reads alternating sources and destinations.
func Pairs(args []string) ([]Pair, error) {
	if len(args) == 0 || len(args)%2 != 0 {
		return nil, fmt.Errorf("%d arguments are no pairs of SOURCE and DESTINATION; give one destination for each source", len(args))
	}
	var out []Pair
	for i := 0; i < len(args); i += 2 {
		if args[i] == "" || args[i+1] == "" {
			return nil, errors.New("a SOURCE or DESTINATION is empty; give one destination for each source")
		}
		out = append(out, Pair{Source: args[i], Destination: args[i+1]})
	}
	return out, nil
}

// Run fetches all models and stops at the first that cannot be had. The error is a *Failure.
func Run(ctx context.Context, pairs []Pair, o Options) error {
	r := &run{Options: o, budget: dest.NewBudget(o.Limits), clients: map[string]*transfer.Client{}}
	stop := r.report(ctx)
	defer stop()
	defer r.hangUp()
	for _, pair := range pairs {
		if o.Env("CONFIDENTIAL_ENABLED") == "true" { // it would arrive as it is stored, and nobody would know why it does not load
			return newFailure(pair.Source, errors.New("encrypted models cannot be decrypted here; choose a storage container that can in "+
				"storageContainerName, or set confidential.enabled to false"), o.Env)
		}
		if err := r.one(ctx, pair); err != nil {
			return newFailure(pair.Source, err, o.Env)
		}
	}
	return nil
}

// run is one call of Run.
type run struct {
	Options
	budget   *dest.Budget
	progress progress
	clients  map[string]*transfer.Client
}

// hangUp ends connections that nobody is going to use: a program that fetches many models would collect them.
func (r *run) hangUp() {
	for _, c := range r.clients {
		c.HTTP.CloseIdleConnections()
	}
}

// source is a kind of storage that is read over HTTP.
type source interface {
	// List finds the files of the model.
	List(ctx context.Context, c *transfer.Client) ([]transfer.Item, error)
	// Trust says whose certificates count.
	Trust() transfer.Trust
	// Next says what to do when the storage answers with that status, or 0 for anything else.
	Next(status int) string
}

func (r *run) one(ctx context.Context, pair Pair) error {
	began := time.Now()
	if done, err := r.alreadyThere(pair); done || err != nil {
		return err
	}
	from, err := parse(pair.Source, r.Env)
	if err != nil {
		return err
	}
	if registered, ok := from.(*modelregistry.Source); ok {
		return r.registered(ctx, registered, pair)
	}
	into, err := dest.Open(pair.Destination, r.budget, r.progress.wrote)
	if err != nil {
		return err
	}
	r.Log.Info("Fetching", "source", address.Shown(pair.Source), "destination", pair.Destination)
	switch from := from.(type) {
	case local:
		err = from.copy(ctx, r, into)
	case *oci.Source:
		err = r.pull(ctx, from, into)
	case source:
		err = r.download(ctx, from, into, pair.As)
	}
	if closed := into.Close(); err == nil && closed != nil {
		err = fmt.Errorf("the destination cannot be written: %w", closed)
	}
	if err != nil {
		return err
	}
	files, bytes := r.progress.done()
	r.Log.Info("Fetched", "source", address.Shown(pair.Source), "destination", pair.Destination, "files", files, "bytes", bytes,
		"seconds", time.Since(began).Round(time.Millisecond).Seconds())
	return nil
}

// registered fetches a model from where a model registry says that it is.
func (r *run) registered(ctx context.Context, model *modelregistry.Source, pair Pair) error {
	client, err := r.client(model.Trust())
	if err != nil {
		return err
	}
	found, err := model.Resolve(ctx, client)
	if err != nil {
		return advised(err, model)
	}
	r.Log.Info("Found in the model registry", "registry", found.Registry, "model", found.Model, "version", found.Version,
		"uri", address.Shown(found.URI))
	if found.Archived {
		r.Log.Warn("The version is archived in the model registry; it is fetched because it was named", "version", found.Version)
	}
	if err := r.one(ctx, Pair{Source: found.URI, Destination: pair.Destination, As: pair.As}); err != nil {
		return fmt.Errorf("the model registry says %s: %w", address.Shown(found.URI), err)
	}
	return nil
}

// alreadyThere is true for a model that is where it should be, which is so when an agent brings it.
func (r *run) alreadyThere(pair Pair) (bool, error) {
	if scheme(pair.Source) != "" {
		return false, nil
	}
	from, to := filepath.Clean(pair.Source), filepath.Clean(pair.Destination)
	if from != to {
		return false, nil
	}
	r.Log.Info("The model is where it should be", "destination", to)
	return true, nil
}

// client for a certain trust; sources with the same share connections.
func (r *run) client(trust transfer.Trust) (*transfer.Client, error) {
	key := fmt.Sprint(trust.Anyone, trust.Files, string(trust.PEM), string(trust.Certificate))
	if c := r.clients[key]; c != nil {
		return c, nil
	}
	c, err := transfer.New(r.Parallel, trust)
	if err != nil {
		return nil, err
	}
	if r.Tune != nil {
		r.Tune(c)
	}
	r.clients[key] = c
	return c, nil
}

func (r *run) download(ctx context.Context, from source, into *dest.Dir, as string) error {
	client, err := r.client(withBundle(from.Trust(), r.Env))
	if err != nil {
		return err
	}
	items, err := from.List(ctx, client)
	if err == nil {
		err = r.all(ctx, client, named(items, as), into, as == "")
	}
	if err != nil {
		return advised(err, from)
	}
	return nil
}

// named gives the model another name.
func named(items []transfer.Item, as string) []transfer.Item {
	if as == "" {
		return items
	}
	for i := range items {
		if items[i].Whole {
			items[i].Name = as
		} else {
			items[i].Name = as + "/" + items[i].Name
		}
	}
	return items
}

func (r *run) all(ctx context.Context, client *transfer.Client, items []transfer.Item, into *dest.Dir, unpacked bool) error {
	if len(items) == 0 {
		return errNoFiles
	}
	var total int64
	for _, item := range items {
		total += max(item.Size, 0)
	}
	if err := into.Budget().Fits(total); err != nil {
		return err
	}
	if err := into.Room(total); err != nil {
		return err
	}
	r.progress.expect(int64(len(items)), total)
	if unpacked && len(items) == 1 && unpack.Known(items[0].Name) {
		return r.archive(ctx, client, items[0], into)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	next := make(chan transfer.Item)
	for range min(client.Parallel(), len(items)) {
		group.Go(func() {
			for item := range next {
				if err := r.file(ctx, client, item, into); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for _, item := range items {
		select {
		case next <- item:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}

func (r *run) file(ctx context.Context, client *transfer.Client, item transfer.Item, into *dest.Dir) error {
	f, err := into.Create(item.Name)
	if err != nil {
		return err
	}
	defer f.Abort() //nolint:errcheck // does nothing after Commit, and the first error counts
	if _, err := client.Get(ctx, item.Object, f); err != nil {
		return inFile(item.Name, err)
	}
	if err := f.Commit(0); err != nil {
		return err
	}
	r.progress.finished()
	return nil
}

// archive brings an archive and leaves its content.
func (r *run) archive(ctx context.Context, client *transfer.Client, item transfer.Item, into *dest.Dir) error {
	f, err := into.Scratch()
	if err != nil {
		return err
	}
	defer f.Abort() //nolint:errcheck // it is not going to stay
	size, err := client.Get(ctx, item.Object, f)
	if err != nil {
		return inFile(item.Name, err)
	}
	r.Log.Info("Unpacking", "archive", path.Base(item.Name), "bytes", size)
	if err := unpack.Extract(f, size, item.Name, into, r.Ratio); err != nil {
		return inFile(item.Name, err)
	}
	r.progress.finished()
	return nil
}

// inFile says which file of a model is concerned.
func inFile(name string, err error) error {
	return fmt.Errorf("%s: %w", path.Clean(strings.TrimPrefix(name, "/")), err)
}
