// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestCanaryTakesOver proves that the predictor before it goes on answering until the gateway has taken the new routes.
func TestCanaryTakesOver(t *testing.T) {
	b := servingtest.New(t)
	b.BehindGateway(t)
	b.Manage(t, b.Manager)
	isvc := b.Service("iris", "sklearn")
	isvc.Spec.Predictor.Name = "v1"
	canary := v1beta1.CanarySpec{TrafficPercent: 20}
	canary.Predictor.Name = "v2"
	isvc.Spec.Canary = []v1beta1.CanarySpec{canary}
	b.Create(t, isvc, podOf(b, "iris", "iris-v1-predictor"), podOf(b, "iris", "iris-v2-predictor"))
	b.RollOut(t, "iris-v1-predictor", "iris-v2-predictor")
	for _, name := range []string{"iris", "iris-predictor"} {
		testkit.Eventually(t, servingtest.Patience, "the canary in route "+name, func() error {
			route := &gatewayv1.HTTPRoute{}
			b.Exists(t, route, name)
			if n := len(route.Spec.Rules[0].BackendRefs); n != 2 {
				return fmt.Errorf("it has %d backends", n)
			}
			return nil
		})
		b.Accept(t, name)
	}
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	keepsWhatRuns(t, b, isvc)

	b.Change(t, isvc, func() { isvc.Spec.Predictor.Name, isvc.Spec.Canary = "v2", nil })
	b.RollOut(t, "iris-v2-predictor")
	b.Status(t, "iris", "IngressReady", corev1.ConditionUnknown, "ParentStatusNotAvailable")
	for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}} {
		b.Exists(t, obj, "iris-v1-predictor")
		if obj.GetDeletionTimestamp() != nil {
			t.Errorf("%T goes before the gateway has answered", obj)
		}
	}

	b.Accept(t, "iris", "iris-predictor")
	b.Gone(t, &appsv1.Deployment{}, "iris-v1-predictor")
	b.Gone(t, &corev1.Service{}, "iris-v1-predictor")
	b.Exists(t, &appsv1.Deployment{}, "iris-v2-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
}

// keepsWhatRuns breaks the spec of a canary: what it is now stays, and the service is ready.
func keepsWhatRuns(t *testing.T, b *servingtest.Bench, isvc *v1beta1.InferenceService) {
	t.Helper()
	running := &appsv1.Deployment{}
	b.Exists(t, running, "iris-v2-predictor")
	b.Change(t, isvc, func() {
		isvc.Spec.Canary[0].Predictor.Model = &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: "unheard-of"}}
	})
	testkit.Eventually(t, servingtest.Patience, "the canary to be told", func() error {
		if got := conditionOf(t, b, isvc, "CanaryPredictorReady"); got != corev1.ConditionFalse {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	if ready := conditionOf(t, b, isvc, v1beta1.ConditionReady); ready != corev1.ConditionTrue {
		t.Errorf("Ready is %q because of a canary", ready)
	}
	for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &autoscalingv2.HorizontalPodAutoscaler{}} {
		b.Exists(t, obj, "iris-v2-predictor")
		if obj.GetDeletionTimestamp() != nil {
			t.Errorf("%T of the canary goes", obj)
		}
		if _, ok := obj.(*appsv1.Deployment); ok && obj.GetGeneration() != running.Generation {
			t.Error("the canary was changed")
		}
	}
}

// podOf is a pod as a Deployment of a service makes them.
func podOf(b *servingtest.Bench, service, deployment string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.NS, Name: deployment + "-0",
			Labels: map[string]string{v1beta1.LabelApp: "isvc." + deployment, v1beta1.LabelInferenceService: service},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kserve-container", Image: "server:1"}}},
	}
}
