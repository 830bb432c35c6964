// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader is what a rule reads other objects with. In the manager it is the
// cache, so a rule sees what was stored a moment ago; without a cluster it is
// the manifests at hand.
type Reader interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

type readerKey struct{}

// WithReader gives the rules that run with the context something to read with.
func WithReader(ctx context.Context, r Reader) context.Context {
	return context.WithValue(ctx, readerKey{}, r)
}

// ReaderFrom returns what the context was given to read with, or nil: a rule
// that needs other objects then has nothing to say.
func ReaderFrom(ctx context.Context) Reader {
	r, _ := ctx.Value(readerKey{}).(Reader)
	return r
}

// FromClient makes a Reader of a client or a cache.
func FromClient(r client.Reader) Reader { return fromClient{r} }

type fromClient struct{ client.Reader }

func (c fromClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	return c.Reader.Get(ctx, key, obj)
}
