// SPDX-License-Identifier: Apache-2.0

// Package migrate decides how the database of an MLflow server is brought to
// the version that the server needs: a look at the database while the old
// server still runs, then a stop, the migration, and the new server.
//
// [Next] is pure. It knows the Deployment that should run in the end and what
// is there now, and says what the next step is; it knows nothing of charts and
// writes nothing itself. Everything that it must remember is in the cluster:
// in the Jobs, in the live Deployment and in the status of the MLflow.
package migrate

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
)

// Labels and annotations of the migration, as they are seen from outside.
const (
	// ForceAnnotation on an MLflow asks for one migration whatever is recorded.
	// Its value does not matter. It is taken off when the migration has ended.
	ForceAnnotation = "mlflow.opendatahub.io/force-migrate"
	// JobLabel marks the Job that migrates, and its pods.
	JobLabel = "mlflow.opendatahub.io/migration-job"
	// PreflightLabel marks the Job that looks at the database beforehand, and its pods.
	PreflightLabel = "mlflow.opendatahub.io/preflight-job"
	// InstanceLabel names the MLflow of a Job.
	InstanceLabel = "mlflow.opendatahub.io/migration-instance"
	// ComponentLabel tells the Jobs of this package from the rest of an MLflow.
	ComponentLabel = "component"
	// Component is the value of ComponentLabel on these Jobs and their pods.
	Component = "mlflow-migration"
	// ServerComponent is the value of ComponentLabel on the pods of the server and
	// of its CronJobs.
	ServerComponent = "mlflow"
)

// Condition is the condition that tells of migrations.
const Condition = "Migration"

// Observed is what the decision depends on.
type Observed struct {
	MLflow *mlflowv1.MLflow
	// Supported is the version of MLflow that this release supports.
	Supported string
	// Deployment is the live server, nil while there is none. Its pod template is
	// not looked at.
	Deployment *appsv1.Deployment
	// Template is the pod template of the live server; nil while it is not known
	// for the Deployment's present generation.
	Template *corev1.PodTemplateSpec
	// Jobs are those with Component as ComponentLabel in the namespace of the server.
	Jobs []batchv1.Job
	// Pods are those with Component or ServerComponent as ComponentLabel there.
	Pods []corev1.Pod
	// CronJobs are the live ones of this MLflow.
	CronJobs []batchv1.CronJob
	// Now is the time of the look.
	Now time.Time
}

// Outcome is the decision.
type Outcome struct {
	// Server is the Deployment to plan in place of the given one.
	Server engine.Child
	// Suspend is set while nothing but the migration may work with the database:
	// no CronJob may start a Job.
	Suspend bool
	// Jobs to plan.
	Jobs []engine.Child
	// Conditions say more than what readiness would say of the same types, and
	// replace it. Where Available is not among them it is the Deployment's to say.
	Conditions []metav1.Condition
	// Version is to be recorded in the status; empty leaves what is there.
	Version string
	// Events, Problem, RequeueAfter and Done are for the engine's plan.
	Events       []engine.Event
	Problem      *engine.Problem
	RequeueAfter time.Duration
	Done         []string
}
