// SPDX-License-Identifier: Apache-2.0

// Package domaintest is what the benches of all domains have in common: a real
// API server, a manager around the controllers under test, and the small things
// that people and other controllers do there. It knows no domain, and is for
// tests and benchmarks only.
package domaintest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/testkit"
)

// Patience is how long a test waits for the cluster.
const Patience = 60 * time.Second

// Bench is one cluster with a namespace of the test's own.
type Bench struct {
	*testkit.Cluster
	// C reads and writes without a cache.
	C client.Client
	// NS is the test's own namespace.
	NS string
	// Manager is the chart's service account with what the chart grants and the
	// controllers ask for, no more.
	Manager *rest.Config
}

// New is a Bench without a service account.
func New(t testing.TB, cluster *testkit.Cluster, scheme *runtime.Scheme) *Bench {
	t.Helper()
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &Bench{Cluster: cluster, C: c, NS: cluster.Namespace(t)}
}

// Run is a whole manager until ctx ends. Its shutdown is short: what is not
// finished by then is what a crash would leave.
func Run(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, controllers ...engine.Controller) error {
	return RunWith(ctx, cfg, scheme, nil, controllers...)
}

// RunWith is Run with an engine that works at another pace.
func RunWith(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, options []engine.Option, controllers ...engine.Controller) error {
	return RunIn(ctx, cfg, scheme, engine.Scope{}, options, controllers...)
}

// RunIn is RunWith for a manager that has a namespace of its own, or sees only some.
func RunIn(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, scope engine.Scope, options []engine.Option, controllers ...engine.Controller) error {
	const shutdown = time.Second
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: engine.CacheOptions(scope),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(shutdown),
	})
	if err != nil {
		return err
	}
	e, err := engine.New(mgr, scope, options...)
	if err != nil {
		return err
	}
	if err := e.Add(ctx, controllers...); err != nil {
		return err
	}
	return engine.Start(ctx, mgr, shutdown)
}

// Create creates objects.
func (b *Bench) Create(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		if err := b.C.Create(context.Background(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Change edits an object until nobody else came in between.
func (b *Bench) Change(t testing.TB, obj client.Object, edit func()) {
	t.Helper()
	testkit.Eventually(t, Patience, "the change", func() error {
		if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		edit()
		return b.C.Update(context.Background(), obj, client.FieldOwner("kubectl-edit"))
	})
}

// Exists waits for an object, in the test's namespace if its kind has one, and
// reads it.
func (b *Bench) Exists(t testing.TB, obj client.Object, name string) {
	t.Helper()
	testkit.Eventually(t, Patience, fmt.Sprintf("%T %s", obj, name), func() error { return b.get(obj, name) })
}

// Gone waits until an object is gone.
func (b *Bench) Gone(t testing.TB, obj client.Object, name string) {
	t.Helper()
	testkit.Eventually(t, Patience, fmt.Sprintf("%T %s to go", obj, name), func() error {
		err := b.get(obj, name)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

func (b *Bench) get(obj client.Object, name string) error {
	key := client.ObjectKey{Name: name}
	namespaced, err := b.C.IsObjectNamespaced(obj)
	if err != nil {
		return err
	}
	if namespaced {
		key.Namespace = b.NS
	}
	return b.C.Get(context.Background(), key, obj)
}

// RollOut plays the Deployment controller: all pods are there and answer.
func (b *Bench) RollOut(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		d := &appsv1.Deployment{}
		testkit.Eventually(t, Patience, "the rollout of "+name, func() error {
			if err := b.get(d, name); err != nil {
				return err
			}
			n := ptr.Deref(d.Spec.Replicas, 1)
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
				Conditions: []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
					{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
				},
			}
			return b.C.Status().Update(context.Background(), d)
		})
	}
}
