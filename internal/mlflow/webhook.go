// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/admission"
)

// Admission returns the kinds of the domain with the rules that their schemas cannot express.
func Admission() ([]admission.Kind, error) {
	kinds, err := admission.Kinds(admission.MLflow)
	if err != nil {
		return nil, err
	}
	for i := range kinds {
		if kinds[i].GVK == mlflowv1.GroupVersion.WithKind("MLflow") {
			kinds[i].Validate = validate
		}
	}
	return kinds, nil
}

// validate refuses what an update adds; what was wrong before is only warned of.
func validate(_ context.Context, old, obj client.Object) ([]string, error) {
	return admission.Check(old, obj, examine).Result()
}

// specPath is where everything that is examined stands.
var specPath = field.NewPath("spec")

func examine(m *mlflowv1.MLflow) *admission.Report {
	spec, found := &m.Spec, &admission.Report{}
	found.Refuse(examineStorage(spec, func(s store) string { return s.uri })...)
	if placeless(spec) && remoteRoot(spec) {
		found.Warn(specPath.Child("serveArtifacts"), "the server serves artifacts from "+defaultDestination+", for which there is no volume; "+
			"clients that use defaultArtifactRoot are not concerned; set artifactsDestination, or add storage, or do not serve artifacts")
	}
	if gc := spec.GarbageCollection; gc != nil {
		examineSchedule(found, gc.Schedule, specPath.Child("garbageCollection", "schedule"))
	}
	if a := spec.TraceArchival; a != nil && ptr.Deref(a.Enabled, false) && ptr.Deref(a.Schedule, "") != "" {
		examineSchedule(found, *a.Schedule, specPath.Child("traceArchival", "schedule"))
	}
	examinePods(found, spec)
	if spec.WorkspaceLabelSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(spec.WorkspaceLabelSelector); err != nil {
			found.Refuse(field.Invalid(specPath.Child("workspaceLabelSelector"), spec.WorkspaceLabelSelector, err.Error()))
		}
	}
	for i, origin := range spec.ExtraAllowedOrigins {
		if !usableOrigin(origin) {
			found.Warn(specPath.Child("extraAllowedOrigins").Index(i), "an origin that is blank or has a comma in it is left out; write one origin in each entry")
		}
	}
	warned := map[string]bool{}
	for _, s := range storesOf(spec) {
		if hasPassword(s.uri) && !warned[s.field] {
			warned[s.field] = true // the registry may be the backend
			found.Warn(specPath.Child(s.field), "the address has a password in it, which everybody can read who may read this object; put it into a Secret and name that in %sFrom", s.field)
		}
	}
	return found
}

// examineStorage looks at what is kept in files: it needs a volume, and more than one pod needs something that more than
// one pod can use. The addresses of databases are asked for, because a Secret may have them.
func examineStorage(spec *mlflowv1.MLflowSpec, address func(store) string) field.ErrorList {
	var errs field.ErrorList
	files := ""
	for _, s := range storesOf(spec) {
		uri := address(s)
		if dialect(uri) != "sqlite" {
			continue
		}
		files = s.field
		if spec.Storage == nil && !strings.HasPrefix(uri, "sqlite://") || spec.Storage == nil && s.from != nil {
			errs = append(errs, field.Required(specPath.Child("storage"),
				s.field+" is SQLite, which keeps its data in a file; add storage, or use PostgreSQL or MySQL"))
		}
	}
	if placeless(spec) && !remoteRoot(spec) {
		errs = append(errs, field.Required(specPath.Child("storage"),
			"the server serves artifacts and keeps them below "+defaultDestination+"; add storage, or set artifactsDestination"))
	}
	if n := ptr.Deref(spec.Replicas, 1); n > 1 {
		at := specPath.Child("replicas")
		switch {
		case files != "":
			errs = append(errs, field.Invalid(at, n, files+" is SQLite, which only one pod can use; set replicas to 1, or use PostgreSQL or MySQL"))
		case spec.Storage != nil && !slices.Contains(spec.Storage.AccessModes, corev1.ReadWriteMany):
			errs = append(errs, field.Invalid(at, n,
				"the volume can be used by one pod only; set replicas to 1, or ask for ReadWriteMany in storage.accessModes, or do without storage"))
		}
	}
	return errs
}

// placeless tells whether artifacts are served from a directory for which there is no volume.
func placeless(spec *mlflowv1.MLflowSpec) bool {
	return spec.Storage == nil && destination(spec) == defaultDestination && ptr.Deref(spec.ArtifactsDestination, "") == ""
}

// remoteRoot tells whether clients keep artifacts elsewhere by themselves, so that the server's own place is not needed.
func remoteRoot(spec *mlflowv1.MLflowSpec) bool {
	scheme, _, found := strings.Cut(ptr.Deref(spec.DefaultArtifactRoot, ""), "://")
	return found && scheme != "file" && scheme != "mlflow-artifacts"
}

func examineSchedule(found *admission.Report, schedule string, at *field.Path) {
	if strings.Contains(schedule, "TZ") {
		found.Refuse(field.Invalid(at, schedule, "a time zone cannot be named in a schedule; write it in the zone of the cluster's controllers, usually UTC"))
		return
	}
	if _, err := cron.ParseStandard(schedule); err != nil {
		found.Refuse(field.Invalid(at, schedule, fmt.Sprintf("not a cron expression of five fields, such as 0 3 * * 0: %s", err)))
	}
}

// fixedLabels are those that pods are found by.
var fixedLabels = []string{"app", "component", "app.kubernetes.io/instance"}

// ownedEnv are variables that the server's own fields decide about, with these fields.
var ownedEnv = map[string]string{
	"MLFLOW_BACKEND_STORE_URI":              "backendStoreUri or backendStoreUriFrom",
	"MLFLOW_READ_REPLICA_BACKEND_STORE_URI": "readReplicaBackendStoreUri or readReplicaBackendStoreUriFrom",
	"MLFLOW_REGISTRY_STORE_URI":             "registryStoreUri or registryStoreUriFrom",
	"MLFLOW_TRACE_ARCHIVAL_CONFIG":          "traceArchival",
}

func examinePods(found *admission.Report, spec *mlflowv1.MLflowSpec) {
	for _, label := range fixedLabels {
		if _, ok := spec.PodLabels[label]; ok {
			found.Refuse(field.Forbidden(specPath.Child("podLabels").Key(label), "the server's pods are found by this label; choose another name"))
		}
	}
	names := map[string]bool{}
	for i, e := range spec.Env {
		at := specPath.Child("env").Index(i)
		if instead, ok := ownedEnv[e.Name]; ok {
			found.Warn(at, "%s is left out, because another field decides about it; set %s", e.Name, instead)
		}
		if names[e.Name] {
			found.Warn(at, "%s is set before; the last value holds", e.Name)
		}
		names[e.Name] = true
	}
}

// hasPassword tells whether an address has credentials with a password.
func hasPassword(uri string) bool {
	_, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return false
	}
	authority, _, _ := strings.Cut(rest, "/")
	user, _, ok := cutLast(authority, "@")
	return ok && strings.Contains(user, ":")
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
