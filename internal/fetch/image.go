// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"

	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/oci"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/fetch/unpack"
)

// modelDir is where an image that carries a model has it.
const modelDir = "models"

// pull brings a model out of a registry. Layers of a file system are laid over each other, as when a container starts.
func (r *run) pull(ctx context.Context, from *oci.Source, into *dest.Dir) error {
	client, err := r.client(withBundle(from.Trust(), r.Env))
	if err != nil {
		return err
	}
	layers, err := from.Layers(ctx, client)
	if err != nil {
		return advised(err, from)
	}
	var items []transfer.Item
	for _, l := range layers {
		if l.Title != "" {
			items = append(items, transfer.Item{Name: l.Title, Object: l.Object})
		}
	}
	if len(items) == 0 {
		err = r.layers(ctx, client, layers, into)
	} else {
		err = r.all(ctx, client, items, into, true)
	}
	if err != nil {
		return advised(err, from)
	}
	return nil
}

func (r *run) layers(ctx context.Context, client *transfer.Client, layers []oci.Layer, into *dest.Dir) error {
	var total int64
	for _, l := range layers {
		total += l.Size
	}
	r.progress.expect(int64(len(layers)), total)
	found := false
	for _, l := range layers {
		some, err := r.layer(ctx, client, l, into)
		if err != nil {
			return err
		}
		found = found || some
		r.progress.finished()
	}
	if !found {
		return errors.New("the image has no files in /" + modelDir + "; put the model there and push it again")
	}
	return nil
}

func (r *run) layer(ctx context.Context, client *transfer.Client, l oci.Layer, into *dest.Dir) (bool, error) {
	f, err := into.Scratch()
	if err != nil {
		return false, err
	}
	defer f.Abort() //nolint:errcheck // it is not going to stay
	if err := into.Room(l.Size); err != nil {
		return false, err
	}
	size, err := client.Get(ctx, l.Object, f)
	if err != nil {
		return false, err
	}
	return unpack.Layer(f, size, modelDir, into, r.Ratio)
}
