// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Engine runs controllers in one manager. They share its caches and its
// knowledge of optional APIs.
type Engine struct {
	mgr      manager.Manager
	caches   *caches
	apis     *apis
	contents *contents
	blockers *blockers
	clock    clock.PassiveClock
	claims   claims
	pace     Pace
}

// New prepares a manager for controllers. The manager's cache should be made
// with CacheOptions of the same scope.
func New(mgr manager.Manager, scope Scope, options ...Option) (*Engine, error) {
	c, err := newCaches(mgr, scope)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a discovery client: %w", err)
	}
	heads, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a metadata client: %w", err)
	}
	e := &Engine{mgr: mgr, caches: c, apis: newAPIs(d, mgr.GetCache()), contents: newContents(),
		blockers: newBlockers(heads, mgr.GetRESTMapper()), clock: clock.RealClock{}, claims: claims{}, pace: steady}
	for _, set := range options {
		set(e)
	}
	return e, errors.Join(mgr.Add(e.apis), mgr.Add(e.blockers))
}

// Controller is one kind, ready to be added to an Engine. Make it with For.
type Controller interface {
	// Name of the controller.
	Name() string
	// Spec that it was made with.
	Spec() Spec
	// Object is an empty object of the kind.
	Object() client.Object
	// Finalizes tells whether objects may get a finalizer.
	Finalizes() bool
	// Decide runs Observe and Plan without a cluster.
	Decide(ctx context.Context, obj client.Object, world *World) (Decision, error)

	setup(ctx context.Context, e *Engine) error
}

// For makes a controller of a kind.
func For[T client.Object, Seen any](kind Kind[T, Seen], spec Spec) Controller {
	return &controllerOf[T, Seen]{kind: kind, spec: spec}
}

// Add sets controllers up. They start with the manager.
func (e *Engine) Add(ctx context.Context, controllers ...Controller) error {
	for _, c := range controllers {
		if err := c.setup(ctx, e); err != nil {
			return fmt.Errorf("set up the controller %s: %w", c.Name(), err)
		}
	}
	return nil
}

type controllerOf[T client.Object, Seen any] struct {
	kind Kind[T, Seen]
	spec Spec
}

func (c *controllerOf[T, Seen]) Name() string          { return c.spec.Name }
func (c *controllerOf[T, Seen]) Spec() Spec            { return c.spec }
func (c *controllerOf[T, Seen]) Object() client.Object { return newObject[T]() }
func (c *controllerOf[T, Seen]) Finalizes() bool {
	_, ends := c.kind.(Teardown[T, Seen])
	return ends
}

// newLike makes an empty object of the same type.
func newLike(obj client.Object) client.Object {
	t := reflect.TypeOf(obj)
	if t == nil || t.Kind() != reflect.Pointer {
		panic("a client.Object is always a pointer")
	}
	return reflect.New(t.Elem()).Interface().(client.Object)
}
