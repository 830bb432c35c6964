// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// runCopier runs a real manager: a controller that gives every ConfigMap of a
// namespace two Secrets and then says so in an annotation.
func runCopier(ctx context.Context, cfg *rest.Config, cluster *Cluster, namespace string) error {
	again := true
	manager, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  cluster.Scheme(),
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		// The same controller starts many times in one test process.
		Controller: ctrlconfig.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	copier := &copier{Client: manager.GetClient()}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(copier); err != nil {
		return err
	}
	return manager.Start(ctx)
}

type copier struct{ client.Client }

func (c *copier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var config corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if config.Annotations["copied"] == "yes" {
		return ctrl.Result{}, nil
	}
	for _, suffix := range []string{"-1", "-2"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: config.Name + suffix}}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, secret)); err != nil {
			return ctrl.Result{}, err
		}
	}
	config.Annotations = map[string]string{"copied": "yes"}
	return ctrl.Result{}, c.Update(ctx, &config)
}

// copierTest lets the copier work on three ConfigMaps.
func copierTest(cluster *Cluster, cfg *rest.Config) KillTest {
	var namespace string
	kinds := []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}}
	var first map[string]any
	return KillTest{
		Config: cfg,
		Reset: func(t testing.TB) {
			namespace = cluster.Namespace(t)
			for i := range 3 {
				config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("c", i)}}
				if err := cluster.Client().Create(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			}
		},
		Run: func(ctx context.Context, cfg *rest.Config) error { return runCopier(ctx, cfg, cluster, namespace) },
		Converged: func() error {
			var list corev1.ConfigMapList
			err := cluster.Client().List(context.Background(), &list, client.InNamespace(namespace))
			for _, config := range list.Items {
				if config.Annotations["copied"] != "yes" {
					return fmt.Errorf("%s is not copied", config.Name)
				}
			}
			return err
		},
		Verify: func(t testing.TB) {
			now := cluster.ObjectsIn(t, namespace, kinds...)
			if first == nil {
				first = now
			}
			if diff := cmp.Diff(first, now); diff != "" || len(now) != 9 {
				t.Errorf("%d objects (9); compared with the undisturbed end:\n%s", len(now), diff)
			}
		},
	}
}

func TestARealManagerSurvivesItsDeath(t *testing.T) {
	cluster := Start(t)
	test := copierTest(cluster, cluster.Config())
	test.Stride = 3
	KillEverywhere(t, test)
}

func TestARealManagerSurvivesFaults(t *testing.T) {
	cluster := Start(t)
	faults := NewFaults(42).Add(
		Rule{Fault: ClosedAfter, Verbs: []string{"create", "update"}, Probability: 0.3},
		Rule{Fault: InternalError, Verbs: []string{"create", "update", "list"}, Probability: 0.2},
		Rule{Fault: Slow, Delay: 20 * time.Millisecond, Probability: 0.2},
	)
	test := copierTest(cluster, faults.Wrap(cluster.Config()))
	test.Timeout, test.Settle = time.Minute, 300*time.Millisecond
	test.Reset(t)
	test.runToRest(t, new(bool))
	t.Logf("faults: %v", faults.ByFault())
	if faults.ByFault()[ClosedAfter] == 0 {
		t.Error("no answer was lost, so this test has shown little")
	}
}
