// SPDX-License-Identifier: Apache-2.0

package namespaces_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestHandedOver: when a runtime of a namespace takes the place of one of the cluster, and when it goes again, the Deployment
// changes its owner and nothing else, with a garbage collector that looks on. No pod is made anew, but for what the runtimes
// differ in. The autoscaler follows.
func TestHandedOver(t *testing.T) {
	b := newBench(t)
	b.ControllerManager(t)
	b.enable(t, "true")
	counter := testkit.NewCounter()
	shared := b.shared(t, "rt", "onnx")
	shared.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SHARED", Value: "yes"}}
	scaled := map[string]string{"serving.kserve.io/autoscalerClass": "hpa", "serving.kserve.io/max-scale": "2"}
	shared.Annotations = scaled
	b.Create(t, shared, b.predictor("one", "onnx"), b.etcd(`{"endpoints":"http://etcd:2379"}`))
	b.manage(t, counter.Wrap(b.Manager))
	name := b.NS + "-rt"
	has := func(owner, child metav1.Object) bool {
		return metav1.IsControlledBy(child, owner) && child.GetLabels()[engine.LabelOwner] == string(owner.GetUID())
	}
	of := func(owner metav1.Object) func(*appsv1.Deployment) bool {
		return func(d *appsv1.Deployment) bool { return has(owner, d) }
	}
	first := b.until(t, name, "the pods of the cluster's runtime", of(shared))
	scaler := &autoscalingv2.HorizontalPodAutoscaler{}
	b.Exists(t, scaler, "modelmesh-serving-"+name)
	same := func(owner metav1.Object, when string) {
		t.Helper()
		d := b.until(t, name, "another owner "+when, of(owner))
		if d.UID != first.UID {
			t.Fatalf("the Deployment is another one %s", when)
		}
		if diff := cmp.Diff(first.Spec.Template, d.Spec.Template); diff != "" {
			t.Errorf("the pods are made anew %s:\n%s", when, diff)
		}
		testkit.Eventually(t, domaintest.Patience, "another owner of the autoscaler "+when, func() error {
			now := &autoscalingv2.HorizontalPodAutoscaler{}
			if b.Exists(t, now, scaler.Name); now.DeletionTimestamp != nil || !has(owner, now) {
				return fmt.Errorf("it belongs to %v", now.OwnerReferences)
			}
			if now.UID != scaler.UID {
				t.Fatalf("the autoscaler is another one %s", when)
			}
			return nil
		})
		silence(t, counter, when)
	}

	own := b.runtime(name, "onnx")
	own.Annotations, own.Spec = scaled, *shared.Spec.DeepCopy()
	b.Create(t, own)
	same(own, "when a runtime of the namespace comes")
	b.Delete(t, own)
	b.Gone(t, own.DeepCopy(), own.Name)
	same(shared, "when it goes")

	other := b.runtime(name, "onnx")
	other.Spec.Containers[0].Image = "server:2"
	b.Create(t, other)
	d := b.until(t, name, "another runtime of the namespace to have them", func(d *appsv1.Deployment) bool {
		return of(other)(d) && server(d).Image == "server:2"
	})
	if env := server(d).Env; d.UID != first.UID || slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == "SHARED" }) {
		t.Errorf("the Deployment is another one, or has something of the former runtime: %v", env)
	}
	b.Gone(t, &autoscalingv2.HorizontalPodAutoscaler{}, scaler.Name) // which this one does not ask for
	b.Change(t, other, func() { other.Spec.MultiModel = ptr.To(false) })
	b.Gone(t, &appsv1.Deployment{}, d.Name) // it still has the place
	b.Delete(t, other)
	b.Gone(t, other.DeepCopy(), other.Name)
	b.until(t, name, "new pods of the cluster's runtime", of(shared))

	last := b.runtime(name, "onnx")
	b.Create(t, last)
	b.until(t, name, "the last to have them", of(last))
	b.Delete(t, shared)
	b.until(t, name, "no finalizer without anybody to wait for", func(*appsv1.Deployment) bool {
		return b.C.Get(t.Context(), client.ObjectKeyFromObject(last), last) == nil && len(last.Finalizers) == 0
	})
	b.Delete(t, last)
	b.Gone(t, last.DeepCopy(), last.Name)
	b.Gone(t, &appsv1.Deployment{}, d.Name)
}

// silence waits until nothing has been written for a second.
func silence(t *testing.T, counter *testkit.Counter, when string) {
	t.Helper()
	before, since := counter.Snapshot(), time.Now()
	testkit.Eventually(t, domaintest.Patience, "silence "+when, func() error {
		if fresh := counter.Since(before); fresh.Writes() > 0 {
			before, since = counter.Snapshot(), time.Now()
			return fmt.Errorf("writes:\n%s", fresh)
		}
		if time.Since(since) < time.Second {
			return errors.New("not long enough")
		}
		return nil
	})
}

// server is the runtime's own container.
func server(d *appsv1.Deployment) corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	return containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "server" })]
}

// TestHandedOverWhenKilled: killed after any write, the next manager comes to the same end, with the same Deployment.
func TestHandedOverWhenKilled(t *testing.T) {
	b := newBench(t)
	var first *appsv1.Deployment
	var shared *v1alpha1.ClusterServingRuntime
	var own *v1alpha1.ServingRuntime
	ours := func(d *appsv1.Deployment, owner metav1.Object) error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(first), d); err != nil {
			return err
		}
		if !metav1.IsControlledBy(d, owner) {
			return fmt.Errorf("it belongs to %v", d.OwnerReferences)
		}
		return nil
	}
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.run,
		Stride: 3,
		Reset: func(t testing.TB) {
			b.NS = b.Namespace(t)
			b.enable(t, "true")
			shared = b.shared(t, "rt", "onnx")
			shared.Name = "rt" + b.NS[strings.LastIndex(b.NS, "-"):] // short enough for a label
			b.Create(t, shared, b.predictor("one", "onnx"))
			stop := b.manage(t, b.Manager)
			first = b.until(t, shared.Name, "the pods of the cluster's runtime", func(d *appsv1.Deployment) bool { return metav1.IsControlledBy(d, shared) })
			stop()
			own = b.runtime(shared.Name, "onnx")
			b.Create(t, own)
		},
		Converged: func() error { return ours(&appsv1.Deployment{}, own) },
		Verify: func(t testing.TB) {
			d := &appsv1.Deployment{}
			if err := ours(d, own); err != nil || d.UID != first.UID || cmp.Diff(first.Spec.Template, d.Spec.Template) != "" {
				t.Errorf("the Deployment is another one, or its pods are: %v", err)
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, own) },
		Gone: func() error {
			if err := b.Ended([]client.Object{own.DeepCopy()}, nil); err != nil {
				return err
			}
			d := &appsv1.Deployment{}
			if err := ours(d, shared); err != nil {
				return err
			}
			if d.UID != first.UID {
				return errors.New("it is another one")
			}
			return nil
		},
	})
}

// TestMonitorTakenOver: the monitor that the known controller left belongs to its Service, whatever that is called.
func TestMonitorTakenOver(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.PrometheusOperator)
	b.enable(t, "true")
	b.Create(t, b.config("inferenceServiceName: mesh"))
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "somewhat-else"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	b.Create(t, service)
	monitor := &unstructured.Unstructured{}
	monitor.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"})
	monitor.SetNamespace(b.NS)
	monitor.SetName("modelmesh-metrics-monitor")
	monitor.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service"))})
	b.Create(t, monitor)
	b.manage(t, b.Manager)
	ns := &corev1.Namespace{}
	b.Exists(t, ns, b.NS)
	testkit.Eventually(t, domaintest.Patience, "the monitor to be ours", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(monitor), monitor); err != nil {
			return err
		}
		selected, _, err := unstructured.NestedString(monitor.Object, "spec", "selector", "matchLabels", "modelmesh-service")
		if err != nil || selected != "mesh" || !metav1.IsControlledBy(monitor, ns) || len(monitor.GetOwnerReferences()) != 1 {
			return fmt.Errorf("it selects %q and belongs to %v", selected, monitor.GetOwnerReferences())
		}
		return nil
	})
}
