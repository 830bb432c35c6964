// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/components/v1alpha1"
	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/mlflow/migrate"
)

// Names of what belongs to the server.
const (
	name           = mlflowv1.MLflowName
	claimName      = name + "-pvc"
	tlsSecret      = name + "-tls"
	gcName         = name + "-gc"
	archivalName   = name + "-trace-archival"
	defaultAccount = name + "-sa"
	// platformCA is the ConfigMap with the certificates that the whole platform trusts.
	platformCA = "odh-trusted-ca-bundle"
)

// Seen is everything that the decision about the server depends on.
type Seen struct {
	Settings Settings
	// Now is the time of the look.
	Now time.Time

	// OpenShift tells whether the cluster is one, and the others which optional APIs it serves.
	OpenShift, HasConsole, HasRoutes, HasMonitors bool

	// Module is the platform's, nil while there is none or nobody asks for it.
	Module *v1alpha1.MLflowOperator

	// TLS is what the server proves its name with.
	TLS TLS
	// Account tells whether the account of the server is somebody else's.
	ForeignAccount bool
	// HasPlatformCA and HasCA tell whether the platform's bundle, and the user's, exist.
	HasPlatformCA, HasCA bool
	// Checksum is of everything that the server reads when it starts.
	Checksum string
	// Missing are Secrets and ConfigMaps that the server cannot start without.
	Missing []string
	// Addresses are those of the databases, as far as they are known, by the field that leads to them.
	Addresses map[string]string

	// What became of earlier plans. The Deployment has its pods' template only if that is known for its generation.
	Deployment *appsv1.Deployment
	Template   *corev1.PodTemplateSpec
	Claim      *corev1.PersistentVolumeClaim
	CronJobs   []batchv1.CronJob
	Jobs       []batchv1.Job
	Pods       []corev1.Pod
}

// observer reads for one server.
type observer struct {
	*Domain
	engine.Reader
	mlflow *mlflowv1.MLflow
	seen   Seen
}

func (o *observer) observe(ctx context.Context) (Seen, error) {
	o.seen = Seen{Settings: o.settings, Now: o.now(), Addresses: map[string]string{}}
	o.seen.HasConsole = !o.settings.NotOpenShift && o.HasAPI(consoleLink.GroupKind())
	o.seen.OpenShift = o.seen.HasConsole || !o.settings.NotOpenShift && o.HasAPI(clusterVersion.GroupKind())
	o.seen.HasRoutes, o.seen.HasMonitors = o.HasAPI(httpRoute.GroupKind()), o.HasAPI(serviceMonitor.GroupKind())
	for _, read := range []func(context.Context) error{o.readModule, o.readLive, o.readAccount, o.readTLS, o.readInputs, o.readPods} {
		if err := read(ctx); err != nil {
			return Seen{}, err
		}
	}
	return o.seen, nil
}

// readModule reads the platform's module, where MLflow is one of several, and what it says of the platform.
func (o *observer) readModule(ctx context.Context) error {
	m := &v1alpha1.MLflowOperator{}
	if !o.settings.Module || !o.HasAPI(v1alpha1.GroupVersion.WithKind("MLflowOperator").GroupKind()) {
		return nil
	}
	found, err := exists(o.Get(ctx, client.ObjectKey{Name: v1alpha1.MLflowOperatorName}, m))
	if found {
		o.seen.Module, o.seen.Settings = m, o.settings.saidBy(m)
	}
	return err
}

func (o *observer) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: o.settings.Namespace, Name: name}
}

// readLive reads what was made before. Claim and Deployment may come from somebody else.
func (o *observer) readLive(ctx context.Context) error {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := exists(o.Get(ctx, o.key(claimName), claim))
	if err != nil {
		return err
	}
	if found {
		o.seen.Claim = claim
	}
	if err := o.readDeployment(ctx); err != nil {
		return err
	}
	for _, n := range []string{gcName, archivalName} {
		job := &batchv1.CronJob{}
		job.Namespace, job.Name = o.settings.Namespace, n
		if found, err = exists(o.Child(ctx, job)); err != nil {
			return err
		}
		if found {
			o.seen.CronJobs = append(o.seen.CronJobs, *job)
		}
	}
	return nil
}

// readDeployment reads it as a child, which is what our own writes are compared with, and as an input, which has the
// pods' template.
func (o *observer) readDeployment(ctx context.Context) error {
	child, whole := &appsv1.Deployment{}, &appsv1.Deployment{}
	child.Namespace, child.Name = o.settings.Namespace, name
	ours, err := exists(o.Child(ctx, child))
	if err != nil {
		return err
	}
	found, err := exists(o.Get(ctx, o.key(name), whole))
	switch {
	case ours:
		o.seen.Deployment = child
	case found:
		o.seen.Deployment = whole
	}
	if found && o.seen.Deployment.UID == whole.UID && o.seen.Deployment.Generation == whole.Generation {
		o.seen.Template = &whole.Spec.Template
	}
	return err
}

// exists takes NotFound for an answer.
func exists(err error) (bool, error) { return err == nil, client.IgnoreNotFound(err) }

// readAccount finds out whose the account is: one that exists and that nobody made for an MLflow is used as it is.
func (o *observer) readAccount(ctx context.Context) error {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	found, err := exists(o.Get(ctx, o.key(accountOf(&o.mlflow.Spec)), head))
	o.seen.ForeignAccount = found && head.Labels[engine.LabelOwner] == "" && metav1.GetControllerOf(head) == nil
	return err
}

func (o *observer) readPods(ctx context.Context) error {
	pods, jobs := &corev1.PodList{}, &batchv1.JobList{}
	if err := o.List(ctx, pods, client.InNamespace(o.settings.Namespace), client.MatchingLabelsSelector{Selector: ofServer}); err != nil {
		return err
	}
	err := o.List(ctx, jobs, client.InNamespace(o.settings.Namespace), client.MatchingLabels{migrate.ComponentLabel: migrate.Component})
	o.seen.Pods, o.seen.Jobs = pods.Items, jobs.Items
	return err
}
