// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// explained is what `modelplane explain mlflow/mlflow` says, and whether it says that the server is ready.
func explained(t *testing.T, b *mlflowtest.Bench) (string, bool) {
	t.Helper()
	c := cli.NewExplainCommand(func() (*cli.Known, error) {
		all, err := domains.All()
		if err != nil {
			return nil, err
		}
		known := &cli.Known{Scheme: mlflowtest.Scheme, About: domains.About()}
		for _, d := range all {
			if d.Name == "mlflow" {
				known.Controllers = d.Controllers
			}
		}
		return known, nil
	})
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"mlflow/mlflow", "--kubeconfig", b.Kubeconfig()})
	err := c.ExecuteContext(t.Context())
	var verdict *cli.Verdict
	if err != nil && !errors.As(err, &verdict) {
		t.Fatal(err)
	}
	return out.String(), err == nil
}

func TestExplained(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	b := mlflowtest.New(t)
	m := mlflowtest.Server()
	m.Spec.BackendStoreURI, m.Spec.BackendStoreURIFrom = nil, &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "database"}, Key: "uri"}
	b.Create(t, m)
	b.Manage(t, b.Manager)
	b.Status(t, "Degraded", metav1.ConditionTrue, "InputMissing")
	text, ready := explained(t, b)
	for _, want := range []string{"MLflow mlflow", "not ready", "version  3.14.0", "Deployment " + b.NS + "/mlflow", "Secret " + b.NS + "/mlflow-tls", "key uri of Secret database"} {
		if ready || !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
	before := generation(t, b)
	b.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "database"}, StringData: map[string]string{"uri": "mysql://db/mlflow"}})
	testkit.Eventually(t, mlflowtest.Patience, "the Secret to reach the server", func() error {
		if generation(t, b) == before {
			return errors.New("the Deployment is as it was")
		}
		return nil
	})
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "")
	if text, ready := explained(t, b); !ready || strings.Contains(text, "PRIVATE") {
		t.Errorf("it is available:\n%s", text)
	}
}
