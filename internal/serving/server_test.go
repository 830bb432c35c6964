// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

func TestServiceBecomesReady(t *testing.T) {
	b := servingtest.New(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.Create(t, b.Service("iris", "sklearn"))
	b.Exists(t, &appsv1.Deployment{}, "iris-predictor")
	b.Exists(t, &corev1.Service{}, "iris-predictor")
	b.Exists(t, &autoscalingv2.HorizontalPodAutoscaler{}, "iris-predictor")
	b.Exists(t, &networkingv1.Ingress{}, "iris")
	b.Status(t, "iris", "Ready", corev1.ConditionUnknown, "Starting")
	b.RollOut(t, "iris-predictor")
	isvc := b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	if isvc.Status.URL == nil || isvc.Status.Address == nil || isvc.Status.ServingRuntimeName != "serve-sklearn" {
		t.Errorf("status is %+v", isvc.Status)
	}
	testkit.LintConditions(t, isvc, testkit.KnativeConditions(), testkit.AllowUnready("Stopped"))
	t.Logf("requests:\n%s", counter)
}
