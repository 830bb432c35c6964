// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// frugal keeps little of its children and of pods, and looks at all of them.
type frugal struct {
	sample.Kind
	looks  atomic.Int32
	full   atomic.Value // error of reading an autoscaler in full
	phases atomic.Value // what was seen of the pods
}

func (k *frugal) Observe(ctx context.Context, r engine.Reader, s *sample.Sample) (sample.Seen, error) {
	k.looks.Add(1)
	name := metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}
	if err := r.Child(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: name}); err != nil {
		k.full.Store(err)
	}
	head := &metav1.PartialObjectMetadata{ObjectMeta: name}
	head.SetGroupVersionKind(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"))
	if err := r.Child(ctx, head); client.IgnoreNotFound(err) != nil {
		return sample.Seen{}, err
	}
	pods := &corev1.PodList{}
	if err := r.List(ctx, pods, client.InNamespace(s.Namespace)); err != nil {
		return sample.Seen{}, err
	}
	seen := ""
	for _, p := range pods.Items {
		seen += fmt.Sprintf("%s %s %d %v ", p.Name, p.Status.Phase, len(p.Spec.Containers), p.Annotations)
	}
	k.phases.Store(seen)
	return k.Kind.Observe(ctx, r, s)
}

func (k *frugal) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MinReplicas: ptr.To[int32](1), MaxReplicas: 3,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: s.Name},
		},
	}
	p.Children = append(p.Children, engine.Child{Object: scaler})
	return p
}

func trimDeployment(o client.Object) {
	if d, ok := o.(*appsv1.Deployment); ok {
		d.Spec = appsv1.DeploymentSpec{Replicas: d.Spec.Replicas}
	}
}

func trimPod(o client.Object) {
	if p, ok := o.(*corev1.Pod); ok {
		p.Annotations, p.Spec = nil, corev1.PodSpec{}
	}
}

func frugalController(kind *frugal) engine.Controller {
	return engine.For[*sample.Sample, sample.Seen](kind, engine.Spec{
		Name: "frugal",
		Children: []engine.ChildKind{
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Service{}, MetadataOnly: true},
			{Object: &autoscalingv2.HorizontalPodAutoscaler{}, MetadataOnly: true},
			{Object: &appsv1.Deployment{}, Trim: trimDeployment},
		},
		Inputs: []engine.Input{{Object: &corev1.Pod{}, Trim: trimPod}},
	})
}

// settled returns the number of looks when there are no more of them.
func (k *frugal) settled(t *testing.T) int {
	t.Helper()
	return testkit.Rest(t, settleFor, "the last look", func() int { return int(k.looks.Load()) })
}

func TestChildrenAndInputsKeptInPart(t *testing.T) {
	b := enginetest.NewParallel(t)
	kind := &frugal{}
	counter := testkit.NewCounter()
	stop := b.Manage(t, counter.Wrap(b.Config()), frugalController(kind))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "pod", Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}},
	}
	b.Create(t, pod, b.Sample("one", sample.SampleSpec{Message: "hi"}))
	b.WaitReady(t, "one")
	kind.settled(t)
	if got := counter.Snapshot(); got.Of("apply", "services") != 1 || got.Of("apply", "apps/deployments") != 1 ||
		got.Of("apply", "configmaps") != 1 || got.Of("apply", "autoscaling/horizontalpodautoscalers") != 1 {
		t.Errorf("want one write for each child:\n%s", got)
	}
	if err, _ := kind.full.Load().(error); err == nil || !strings.Contains(err.Error(), "only the metadata is kept") {
		t.Errorf("reading what is not kept: %v", err)
	}
	if seen := kind.phases.Load(); seen != "pod Pending 0 map[] " {
		t.Errorf("the pod was not trimmed: %s", seen)
	}

	ignored := func(what string, change func() error) {
		t.Helper()
		before := kind.settled(t)
		testkit.Eventually(t, 30*time.Second, what, change)
		testkit.Quiet(t, quietFor, "nobody to look because of "+what, func() error {
			if now := int(kind.looks.Load()); now != before {
				return fmt.Errorf("%d looks more", now-before)
			}
			return nil
		})
	}
	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "one"}}
	ignored("the status of an autoscaler", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
			return err
		}
		scaler.Status.DesiredReplicas++
		return b.C.Status().Update(t.Context(), scaler)
	})
	ignored("an annotation of a pod", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Annotations["a"] = "c"
		return b.C.Update(t.Context(), pod)
	})

	repaired := func() {
		t.Helper()
		before := counter.Snapshot()
		b.Change(t, scaler, func() { scaler.Spec.MaxReplicas = 9 })
		testkit.Eventually(t, 30*time.Second, "the autoscaler to be set back", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
				return err
			}
			if scaler.Spec.MaxReplicas != 3 {
				return fmt.Errorf("%d replicas at most", scaler.Spec.MaxReplicas)
			}
			return nil
		})
		if n := counter.Since(before).Of("get", "autoscaling/horizontalpodautoscalers"); n != 0 {
			t.Errorf("%d reads for a repair", n)
		}
	}
	repaired()
	pod.Status.Phase = corev1.PodRunning
	if err := b.C.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, "the pod's phase to be seen", func() error {
		if seen := kind.phases.Load(); seen != "pod Running 0 map[] " {
			return fmt.Errorf("saw %s", seen)
		}
		return nil
	})

	stop()
	restarted, before := testkit.NewCounter(), kind.looks.Load()
	b.Manage(t, restarted.Wrap(b.Config()), frugalController(kind))
	testkit.Eventually(t, 30*time.Second, "the restarted manager to look", func() error {
		if kind.looks.Load() == before {
			return errors.New("not yet")
		}
		return nil
	})
	testkit.NoWrites(t, restarted, quietFor, "after a restart")
	if n := restarted.Snapshot().Of("get", "services"); n != 0 {
		t.Errorf("%d reads after a restart", n)
	}
	repaired()
}

func TestTrimMustBeAgreed(t *testing.T) {
	b := enginetest.New(t)
	spec := func() engine.Spec {
		return engine.Spec{Name: "a", Children: []engine.ChildKind{{Object: &appsv1.Deployment{}, Trim: trimDeployment}},
			Inputs: []engine.Input{{Object: &corev1.Pod{}, Trim: trimPod}}}
	}
	first, child, input := spec(), spec(), spec()
	child.Name, child.Children[0].Trim = "b", func(client.Object) {}
	input.Name, input.Inputs[0].Trim = "c", nil
	for _, second := range []engine.Spec{child, input} {
		second.Status = &engine.StatusOwnership{Conditions: []string{"Ready"}}
		err := enginetest.RunWith(
			engine.For[*sample.Sample, sample.Seen](sample.Kind{}, first),
			engine.For[*sample.Sample, sample.Seen](sample.Kind{}, second))(t.Context(), b.Config())
		if err == nil || !strings.Contains(err.Error(), "a and "+second.Name) {
			t.Errorf("two controllers that trim differently: %v", err)
		}
	}
}
