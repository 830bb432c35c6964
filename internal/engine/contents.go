// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/list"
	"context"
	"sync"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// contents keeps the few full objects that decisions needed, by version. It is
// bounded in number and size, so that memory does not grow with other people's
// Secrets.
type contents struct {
	reads singleflight.Group // many objects often refer to the same Secret

	mu   sync.Mutex
	by   map[contentKey]*list.Element
	used *list.List // of kept, the latest first
	size int
}

const (
	contentsKept = 128
	contentsSize = 16 << 20
)

type kept struct {
	key    contentKey
	object client.Object
	size   int
}

func newContents() *contents { return &contents{by: map[contentKey]*list.Element{}, used: list.New()} }

type contentKey struct {
	gvk     schema.GroupVersionKind
	key     client.ObjectKey
	version string
}

func (k contentKey) String() string { return k.gvk.String() + " " + k.key.String() + " " + k.version }

// read reads one version of an object once, however many ask for it. Others are
// read meanwhile. Who asks gives up with its own context, and the read goes on
// for the others.
func (c *contents) read(ctx context.Context, live client.Reader, gvk schema.GroupVersionKind, key client.ObjectKey, version string, into client.Object) error {
	k := contentKey{gvk, key, version}
	if object := c.get(k); object != nil {
		return copyInto(object, into)
	}
	got := c.reads.DoChan(k.String(), func() (any, error) {
		if object := c.get(k); object != nil {
			return object, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reconcileTimeout)
		defer cancel()
		object := into.DeepCopyObject().(client.Object) // knows its kind where the type does not
		if err := live.Get(ctx, key, object); err != nil {
			return nil, err
		}
		object.SetManagedFields(nil)
		dropLastApplied(object)
		c.add(contentKey{gvk, key, object.GetResourceVersion()}, object)
		return object, nil
	})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case result := <-got:
		if result.Err != nil {
			return result.Err
		}
		return copyInto(result.Val.(client.Object), into)
	}
}

func (c *contents) get(k contentKey) client.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.by[k]
	if found == nil {
		return nil
	}
	c.used.MoveToFront(found)
	return found.Value.(*kept).object
}

// add keeps an object, and gives up those that were not asked for the longest
// time. One that is larger than all of the room is not kept.
func (c *contents) add(k contentKey, object client.Object) {
	one := &kept{key: k, object: object, size: sizeOf(object)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[k] != nil || one.size > contentsSize {
		return
	}
	c.by[k] = c.used.PushFront(one)
	c.size += one.size
	for c.used.Len() > contentsKept || c.size > contentsSize {
		oldest := c.used.Remove(c.used.Back()).(*kept)
		delete(c.by, oldest.key)
		c.size -= oldest.size
	}
}

// sizeOf is about what an object takes in memory.
func sizeOf(object client.Object) int {
	if sized, ok := object.(interface{ Size() int }); ok {
		return sized.Size()
	}
	const unknown = 64 << 10
	return unknown
}
