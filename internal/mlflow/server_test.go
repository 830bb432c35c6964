// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

func TestServerBecomesAvailable(t *testing.T) {
	b := mlflowtest.New(t)
	b.Create(t, mlflowtest.Server())
	b.Manage(t, b.Manager)
	b.Status(t, "Available", metav1.ConditionFalse, "DeploymentNotReady")
	b.Exists(t, &corev1.Service{}, "mlflow")
	b.Exists(t, &corev1.ServiceAccount{}, "mlflow-sa")
	b.Exists(t, &networkingv1.NetworkPolicy{}, "mlflow")
	b.Exists(t, &networkingv1.NetworkPolicy{}, "mlflow-migration")
	b.Exists(t, &rbacv1.ClusterRole{}, "mlflow")
	b.Exists(t, &rbacv1.ClusterRoleBinding{}, "mlflow")
	secret := &corev1.Secret{}
	b.Exists(t, secret, "mlflow-tls")
	for _, key := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if len(secret.Data[key]) == 0 {
			t.Errorf("the Secret has no %s", key)
		}
	}
	b.Exists(t, &appsv1.Deployment{}, "mlflow")
	b.RollOut(t)
	m := b.Status(t, "Available", metav1.ConditionTrue, "DeploymentReady")
	if want := "https://mlflow." + b.NS + ".svc:8443/mlflow"; m.Status.Address == nil || m.Status.Address.URL != want || m.Status.URL != "" {
		t.Errorf("address is %+v and url %q, want %s and none", m.Status.Address, m.Status.URL, want)
	}
	testkit.LintConditions(t, m, mlflowtest.Lint...)
}
