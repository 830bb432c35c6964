// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	testkit.Main(m)
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sample.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// bench is one cluster with the sample kind and a namespace of the test's own.
type bench struct {
	*testkit.Cluster
	c  client.Client
	ns string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	cluster.InstallCRDs(t, sample.CRD())
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Cluster: cluster, c: c, ns: cluster.Namespace(t)}
}

// run is a whole manager with the sample controller, until ctx ends.
func run(ctx context.Context, cfg *rest.Config) error {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: engine.CacheOptions(),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(10 * time.Second),
	})
	if err != nil {
		return err
	}
	e, err := engine.New(mgr)
	if err != nil {
		return err
	}
	if err := e.Add(ctx, sample.Controller()); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// manage runs a manager for the rest of the test; stop ends it earlier.
func manage(t *testing.T, cfg *rest.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, cfg) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the manager ended with: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func (b *bench) sample(name string, spec sample.SampleSpec) *sample.Sample {
	return &sample.Sample{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: name}, Spec: spec}
}

func (b *bench) create(t *testing.T, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		if err := b.c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// change edits an object until nobody else came in between.
func (b *bench) change(t *testing.T, obj client.Object, edit func()) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, "the change", func() error {
		if err := b.c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		edit()
		return b.c.Update(t.Context(), obj, client.FieldOwner("kubectl-edit"))
	})
}

// ready is nil when the sample is ready for its present generation.
func (b *bench) ready(ctx context.Context, name string) error {
	s := &sample.Sample{}
	if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: name}, s); err != nil {
		return err
	}
	c := meta.FindStatusCondition(s.Status.Conditions, "Ready")
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != s.Generation {
		return fmt.Errorf("%s is not ready at generation %d: %+v", name, s.Generation, c)
	}
	return nil
}

func (b *bench) waitReady(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		testkit.Eventually(t, 30*time.Second, name+" to be ready", func() error { return b.ready(t.Context(), name) })
	}
}

func (b *bench) waitReason(t *testing.T, name, condition, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	testkit.Eventually(t, 30*time.Second, name+" to say "+reason, func() error {
		s := &sample.Sample{}
		if err := b.c.Get(t.Context(), client.ObjectKey{Namespace: b.ns, Name: name}, s); err != nil {
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

func (b *bench) waitGone(t *testing.T, obj client.Object) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, fmt.Sprintf("%T %s to be gone", obj, obj.GetName()), func() error {
		err := b.c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			return errors.New("still there")
		}
		return nil
	})
}

func (b *bench) events(t *testing.T, reason string) []corev1.Event {
	t.Helper()
	list := &corev1.EventList{}
	if err := b.c.List(t.Context(), list, client.InNamespace(b.ns)); err != nil {
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

func configMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func deployment(ns, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}
