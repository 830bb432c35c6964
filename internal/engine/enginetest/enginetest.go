// SPDX-License-Identifier: Apache-2.0

// Package enginetest runs the engine with the sample kind against a real API
// server. It is for tests and benchmarks only.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// Scheme knows the sample and everything of Kubernetes.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sample.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// Bench is one cluster with the sample kind and a namespace of the test's own.
type Bench struct {
	*domaintest.Bench
	scope engine.Scope
}

// New prepares a Bench whose managers see the whole cluster, as they do unless
// they are told otherwise. No other test may run beside it.
func New(t testing.TB) *Bench {
	t.Helper()
	cluster := testkit.Start(t)
	cluster.InstallCRDs(t, sample.CRD())
	rules, err := engine.Rules(Scheme, sample.Controller())
	if err != nil {
		t.Fatal(err)
	}
	b := &Bench{Bench: domaintest.New(t, cluster, Scheme)}
	b.Manager = charttest.RBAC(t, cluster, b.NS, rules...)
	return b
}

// NewParallel prepares a Bench for a test that runs beside others, at the end of
// the package: its managers see the namespaces of the test and no others. A test
// that changes what all share, such as a definition of a kind, or that watches
// objects without a namespace, needs New.
func NewParallel(t *testing.T) *Bench {
	t.Helper()
	t.Parallel()
	b := New(t)
	b.scope = engine.Scope{Namespaces: []string{b.NS}, Home: b.NS}
	return b
}

// Namespace is one more of the test's own, which managers that are started later
// see.
func (b *Bench) Namespace(t testing.TB) string {
	t.Helper()
	ns := b.Bench.Namespace(t)
	b.See(ns)
	return ns
}

// See lets managers that are started later see a namespace that need not exist yet.
func (b *Bench) See(namespace string) {
	if len(b.scope.Namespaces) > 0 {
		b.scope.Namespaces = append(b.scope.Namespaces, namespace)
	}
}

// Run is a whole manager with the sample controller, until ctx ends.
func Run(ctx context.Context, cfg *rest.Config) error {
	return RunWith(sample.Controller())(ctx, cfg)
}

// RunWith is Run with other controllers.
func RunWith(controllers ...engine.Controller) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		return domaintest.Run(ctx, cfg, Scheme, controllers...)
	}
}

// Manage runs a manager for the rest of the test; stop ends it earlier.
func (b *Bench) Manage(t testing.TB, cfg *rest.Config, controllers ...engine.Controller) (stop func()) {
	t.Helper()
	if len(controllers) == 0 {
		controllers = []engine.Controller{sample.Controller()}
	}
	return b.manage(t, cfg, nil, controllers)
}

// ManageAt is Manage with an engine that works at another pace.
func (b *Bench) ManageAt(t testing.TB, cfg *rest.Config, pace engine.Pace, controllers ...engine.Controller) (stop func()) {
	t.Helper()
	return b.manage(t, cfg, []engine.Option{engine.WithPace(pace)}, controllers)
}

func (b *Bench) manage(t testing.TB, cfg *rest.Config, options []engine.Option, controllers []engine.Controller) (stop func()) {
	t.Helper()
	scope := b.scope
	scope.Namespaces = slices.Clone(scope.Namespaces)
	return testkit.Manage(t, func(ctx context.Context) error {
		return domaintest.RunIn(ctx, cfg, Scheme, scope, options, controllers...)
	})
}

// Sample makes a Sample in the test's namespace.
func (b *Bench) Sample(name string, spec sample.SampleSpec) *sample.Sample {
	return &sample.Sample{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}, Spec: spec}
}

// Ready is nil when the sample is ready for its present generation.
func (b *Bench) Ready(ctx context.Context, name string) error {
	s := &sample.Sample{}
	if err := b.C.Get(ctx, client.ObjectKey{Namespace: b.NS, Name: name}, s); err != nil {
		return err
	}
	c := meta.FindStatusCondition(s.Status.Conditions, "Ready")
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != s.Generation {
		return fmt.Errorf("%s is not ready at generation %d: %+v", name, s.Generation, c)
	}
	return nil
}

// WaitReady returns when all of them are ready.
func (b *Bench) WaitReady(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		testkit.Eventually(t, domaintest.Patience, name+" to be ready", func() error { return b.Ready(context.Background(), name) })
	}
}

// WaitReason returns when a condition has a reason.
func (b *Bench) WaitReason(t testing.TB, name, condition, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	testkit.Eventually(t, domaintest.Patience, name+" to say "+reason, func() error {
		s := &sample.Sample{}
		if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, s); err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, condition)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("conditions are %+v", s.Status.Conditions)
		}
		found = *c
		return nil
	})
	return found
}

// WaitGone returns when an object is gone.
func (b *Bench) WaitGone(t testing.TB, obj client.Object) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, fmt.Sprintf("%T %s to be gone", obj, obj.GetName()), func() error {
		err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			return errors.New("still there")
		}
		return nil
	})
}

// Events of the namespace with a reason.
func (b *Bench) Events(t testing.TB, reason string) []corev1.Event {
	t.Helper()
	list := &corev1.EventList{}
	if err := b.C.List(context.Background(), list, client.InNamespace(b.NS)); err != nil {
		t.Fatal(err)
	}
	var out []corev1.Event
	for _, e := range list.Items {
		if e.Reason == reason {
			out = append(out, e)
		}
	}
	return out
}

// WaitEvents returns when there are so many events with a reason. They are sent in
// the background, and may come after the status that they go with.
func (b *Bench) WaitEvents(t testing.TB, reason string, want int) []corev1.Event {
	t.Helper()
	var found []corev1.Event
	testkit.Eventually(t, domaintest.Patience, fmt.Sprintf("%d events %s", want, reason), func() error {
		if found = b.Events(t, reason); len(found) != want {
			return fmt.Errorf("there are %d: %v", len(found), found)
		}
		return nil
	})
	return found
}

// ConfigMap is an empty one to read into.
func ConfigMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// Deployment is an empty one to read into.
func Deployment(ns, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}
