// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
)

func onDatabase() *mlflowv1.MLflow {
	m := &mlflowv1.MLflow{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.BackendStoreURI, m.Spec.DefaultArtifactRoot = ptr.To("postgresql://db/mlflow"), ptr.To("s3://bucket")
	return m
}

func onVolume(modes ...corev1.PersistentVolumeAccessMode) *mlflowv1.MLflow {
	m := onDatabase()
	m.Spec.Storage = &corev1.PersistentVolumeClaimSpec{AccessModes: modes}
	return m
}

// TestRules: every rule accepts one case and refuses another.
func TestRules(t *testing.T) {
	for _, tc := range []struct {
		name    string
		start   *mlflowv1.MLflow
		edit    func(*mlflowv1.MLflowSpec)
		refused string // in the error; accepted if empty
		warning string
	}{
		{name: "plain", start: onDatabase()},
		{name: "two pods on a database", start: onDatabase(), edit: func(s *mlflowv1.MLflowSpec) { s.Replicas = ptr.To[int32](2) }},
		{name: "two pods on SQLite", start: onVolume(corev1.ReadWriteMany), refused: "spec.replicas: Invalid value: 2: backendStoreUri is SQLite",
			edit: func(s *mlflowv1.MLflowSpec) {
				s.Replicas, s.BackendStoreURI = ptr.To[int32](2), ptr.To("sqlite:////mlflow/x.db")
			}},
		{name: "two pods with a registry on SQLite", start: onVolume(corev1.ReadWriteMany), refused: "registryStoreUri is SQLite",
			edit: func(s *mlflowv1.MLflowSpec) {
				s.Replicas, s.RegistryStoreURI = ptr.To[int32](2), ptr.To("sqlite+pysqlite:////mlflow/x.db")
			}},
		{name: "two pods on a volume of one", start: onVolume(corev1.ReadWriteOnce), refused: "the volume can be used by one pod only",
			edit: func(s *mlflowv1.MLflowSpec) { s.Replicas = ptr.To[int32](2) }},
		{name: "two pods on the default volume", start: onVolume(), refused: "the volume can be used by one pod only",
			edit: func(s *mlflowv1.MLflowSpec) { s.Replicas = ptr.To[int32](2) }},
		{name: "two pods on a shared volume", start: onVolume(corev1.ReadWriteMany), edit: func(s *mlflowv1.MLflowSpec) { s.Replicas = ptr.To[int32](2) }},
		{name: "one pod on a volume of one", start: onVolume(corev1.ReadWriteOnce)},
		{name: "a driver for SQLite, without a volume", start: onDatabase(), refused: "spec.storage: Required value: backendStoreUri is SQLite",
			edit: func(s *mlflowv1.MLflowSpec) { s.BackendStoreURI = ptr.To("sqlite+pysqlite:////mlflow/x.db") }},
		{name: "a driver for SQLite, with a volume", start: onVolume(corev1.ReadWriteOnce),
			edit: func(s *mlflowv1.MLflowSpec) { s.BackendStoreURI = ptr.To("sqlite+pysqlite:////mlflow/x.db") }},
		{name: "artifacts without a place", start: onDatabase(), refused: "the server serves artifacts and keeps them below file:///mlflow/artifacts",
			edit: func(s *mlflowv1.MLflowSpec) { s.ServeArtifacts, s.DefaultArtifactRoot = ptr.To(true), nil }},
		{name: "artifacts without a place, which clients do not use", start: onDatabase(), warning: "spec.serveArtifacts: the server serves artifacts from",
			edit: func(s *mlflowv1.MLflowSpec) { s.ServeArtifacts = ptr.To(true) }},
		{name: "artifacts with a place", start: onDatabase(),
			edit: func(s *mlflowv1.MLflowSpec) {
				s.ServeArtifacts, s.ArtifactsDestination = ptr.To(true), ptr.To("s3://b")
			}},
		{name: "no cron expression", start: onDatabase(), refused: "spec.garbageCollection.schedule: Invalid value",
			edit: func(s *mlflowv1.MLflowSpec) { s.GarbageCollection = &mlflowv1.GarbageCollection{Schedule: "weekly"} }},
		{name: "a cron expression with a zone", start: onDatabase(), refused: "a time zone cannot be named",
			edit: func(s *mlflowv1.MLflowSpec) {
				s.GarbageCollection = &mlflowv1.GarbageCollection{Schedule: "CRON_TZ=UTC 0 3 * * 0"}
			}},
		{name: "a cron expression in a word", start: onDatabase(),
			edit: func(s *mlflowv1.MLflowSpec) { s.GarbageCollection = &mlflowv1.GarbageCollection{Schedule: "@weekly"} }},
		{name: "no cron expression for traces", start: onDatabase(), refused: "spec.traceArchival.schedule: Invalid value",
			edit: func(s *mlflowv1.MLflowSpec) {
				s.TraceArchival = &mlflowv1.TraceArchival{Enabled: ptr.To(true), Schedule: ptr.To("0 25 * * *")}
			}},
		{name: "no cron expression for traces that are not moved", start: onDatabase(),
			edit: func(s *mlflowv1.MLflowSpec) {
				s.TraceArchival = &mlflowv1.TraceArchival{Schedule: ptr.To("0 25 * * *")}
			}},
		{name: "a label that pods are found by", start: onDatabase(), refused: "spec.podLabels[app.kubernetes.io/instance]: Forbidden",
			edit: func(s *mlflowv1.MLflowSpec) { s.PodLabels = map[string]string{"app.kubernetes.io/instance": "mine"} }},
		{name: "any other label", start: onDatabase(), edit: func(s *mlflowv1.MLflowSpec) { s.PodLabels = map[string]string{"team": "mine"} }},
		{name: "an operator that nobody knows", start: onDatabase(), refused: "spec.workspaceLabelSelector: Invalid value",
			edit: func(s *mlflowv1.MLflowSpec) {
				s.WorkspaceLabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
			}},
		{name: "an origin with a comma", start: onDatabase(), warning: "spec.extraAllowedOrigins[0]: an origin that is blank",
			edit: func(s *mlflowv1.MLflowSpec) { s.ExtraAllowedOrigins = []string{"a,b"} }},
		{name: "a password", start: onDatabase(), warning: "spec.backendStoreUri: the address has a password",
			edit: func(s *mlflowv1.MLflowSpec) { s.BackendStoreURI = ptr.To("mysql+pymysql://u:p@db/x") }},
		{name: "a variable that another field decides about", start: onDatabase(), warning: "MLFLOW_REGISTRY_STORE_URI is left out",
			edit: func(s *mlflowv1.MLflowSpec) { s.Env = []corev1.EnvVar{{Name: "MLFLOW_REGISTRY_STORE_URI"}} }},
		{name: "a variable twice", start: onDatabase(), warning: "spec.env[1]: A is set before",
			edit: func(s *mlflowv1.MLflowSpec) { s.Env = []corev1.EnvVar{{Name: "A"}, {Name: "A"}} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.start
			if tc.edit != nil {
				tc.edit(&m.Spec)
			}
			warnings, err := validate(t.Context(), nil, m)
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("not refused with %q: %v", tc.refused, err)
			}
			if all := strings.Join(warnings, "\n"); tc.warning == "" && all != "" || !strings.Contains(all, tc.warning) {
				t.Errorf("warnings are %q, want %q", all, tc.warning)
			}
			// What is stored already is only warned of.
			if warnings, err := validate(t.Context(), m, m.DeepCopyObject().(client.Object)); err != nil || tc.refused != "" && len(warnings) == 0 {
				t.Errorf("an update that changes nothing: %v, warnings %q", err, warnings)
			}
		})
	}
}

func TestPasswords(t *testing.T) {
	for uri, want := range map[string]bool{
		"postgresql://u:p@db:5432/x": true, "postgresql://u@db:5432/x": false, "postgresql://db:5432/x": false, "sqlite:////a:b@c": false,
		"mysql://u:p@ss@db/x": true, "": false, "nonsense": false,
	} {
		if got := hasPassword(uri); got != want {
			t.Errorf("%s: %v", uri, got)
		}
	}
}

func TestPostgresIsVerifiedWhereItIsLeftOpen(t *testing.T) {
	for uri, want := range map[string]bool{
		"postgresql://db/x": true, "postgresql+psycopg2://db/x?connect_timeout=3": true, "postgresql://db/x?sslmode=disable": false,
		"mysql://db/x": false, "sqlite:////x": false, "": false,
	} {
		if got := opensTLS(uri); got != want {
			t.Errorf("%s: %v", uri, got)
		}
	}
}
