// SPDX-License-Identifier: Apache-2.0

package domaintest

import (
	"context"
	"runtime"
	"testing"
	"weak"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

// KeepsNothing looks at an object, keeps of the look what the engine keeps until the next one (the options of every List),
// and fails when that holds the object itself, and with it all that was seen: with thousands of objects this is most of
// the memory of a manager. The object must not be referred to by anything else.
func KeepsNothing[T any](t testing.TB, c engine.Controller, world *engine.World, object func() *T) {
	t.Helper()
	var kept []client.ListOption
	seeing := *world
	seeing.Listed = func(opts []client.ListOption) { kept = append(kept, opts...) }
	looked := look(t, c, &seeing, object())
	if len(kept) == 0 {
		t.Fatal("nothing was listed")
	}
	runtime.GC()
	if looked.Value() != nil {
		t.Errorf("%s: an option of a List refers to the object, so that the engine keeps it with all that was seen", c.Name())
	}
	runtime.KeepAlive(kept)
}

func look[T any](t testing.TB, c engine.Controller, world *engine.World, obj *T) weak.Pointer[T] {
	t.Helper()
	typed, ok := any(obj).(client.Object)
	if !ok {
		t.Fatalf("%T is no object", obj)
	}
	if _, err := c.Decide(context.Background(), typed, world); err != nil {
		t.Fatal(err)
	}
	return weak.Make(obj)
}
