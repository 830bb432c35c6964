// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// Find tells whether a model is where its address says, without fetching it. It knows storages that list files and web
// servers; of others it says nothing. The error is a *Failure, in the words that Run would use.
func Find(ctx context.Context, address string, o Options) error {
	r := &run{Options: o, budget: dest.NewBudget(o.Limits), clients: map[string]*transfer.Client{}}
	defer r.hangUp()
	if err := r.find(ctx, address); err != nil {
		return newFailure(address, err, o.Env)
	}
	return nil
}

func (r *run) find(ctx context.Context, address string) error {
	from, err := parse(address, r.Env)
	if err != nil {
		return err
	}
	storage, ok := from.(source)
	if !ok {
		return nil
	}
	client, err := r.client(withBundle(storage.Trust(), r.Env))
	if err != nil {
		return err
	}
	items, err := storage.List(ctx, client)
	switch {
	case err != nil:
		return advised(err, storage)
	case len(items) == 0:
		return errNoFiles
	case len(items) == 1 && items[0].Size < 0:
		return r.head(ctx, client, items[0], storage)
	}
	return nil
}

var errNoFiles = errors.New("it has no files; check the path")

// head asks for a file that was named and not listed. A server that does not take the question may still have the file.
func (r *run) head(ctx context.Context, client *transfer.Client, item transfer.Item, from source) error {
	_, _, err := client.Do(ctx, transfer.Request{Method: http.MethodHead, URL: item.URL, Header: item.Header, Sign: item.Sign}, 1)
	switch transfer.Status(err) {
	case http.StatusNotFound, http.StatusGone, http.StatusUnauthorized:
		return advised(fmt.Errorf("%s: %w", strings.TrimPrefix(item.Name, "/"), err), from)
	}
	return nil
}
