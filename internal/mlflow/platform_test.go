// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/components/v1alpha1"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/mlflow/module"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestServerWaitsForTheModule: nothing is made before the platform's module is
// ready, and what runs goes on when the module is to go.
func TestServerWaitsForTheModule(t *testing.T) {
	b := mlflowtest.With(t, map[string]any{"module": map[string]any{"enabled": true}})
	settings := b.Settings
	settings.Namespace, settings.Module = b.NS, true
	room := mlflow.New().WithPlatform(settings)
	testkit.Manage(t, func(ctx context.Context) error {
		return mlflowtest.RunWith(ctx, b.Manager, append(room.Controllers(), room.Module())...)
	})
	server := mlflowtest.Server()
	b.Create(t, server)
	m := b.Status(t, module.Condition, metav1.ConditionFalse, "MLflowOperatorMissing")
	if c := meta.FindStatusCondition(m.Status.Conditions, "Available"); c == nil || c.Status != metav1.ConditionFalse || c.Reason != "MLflowOperatorMissing" {
		t.Errorf("Available is %+v", c)
	}
	operator := &v1alpha1.MLflowOperator{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MLflowOperatorName}, Spec: v1alpha1.MLflowOperatorSpec{GatewayName: "gateway"}}
	if err := b.C.Create(t.Context(), operator); err != nil {
		t.Fatal(err)
	}
	b.Status(t, module.Condition, metav1.ConditionFalse, "ConfigPending")
	if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "mlflow"}, &appsv1.Deployment{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a Deployment was made too early: %v", err)
	}
	b.Change(t, operator, func() { operator.Spec.SectionTitle = "Models" })
	b.Status(t, module.Condition, metav1.ConditionTrue, "Ready")
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "")

	if err := b.C.Delete(t.Context(), operator); err != nil {
		t.Fatal(err)
	}
	b.Status(t, module.Condition, metav1.ConditionFalse, "MLflowInstancesPresent")
	b.Status(t, "Available", metav1.ConditionTrue, "")
	if err := b.C.Delete(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, mlflowtest.Patience, "the module to go", func() error {
		err := b.C.Get(t.Context(), client.ObjectKeyFromObject(operator), operator)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}
