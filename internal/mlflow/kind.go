// SPDX-License-Identifier: Apache-2.0

// Package mlflow turns the MLflow object of a cluster into a running tracking server. It decides; reading and writing the
// cluster is the engine's, how the objects look is the chart's, and the database is the business of package migrate.
package mlflow

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/modelplane/modelplane/api/components/v1alpha1"
	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/mlflow/access"
	"github.com/modelplane/modelplane/internal/mlflow/migrate"
	"github.com/modelplane/modelplane/internal/mlflow/module"
	"github.com/modelplane/modelplane/internal/mlflow/render"
)

// SupportedVersion is the version of MLflow that databases are brought to.
const SupportedVersion = "3.14.0"

// DeleteDataAnnotation with the value "true" lets the claim, and with it everything that is kept in files, go with the
// MLflow.
const DeleteDataAnnotation = "mlflow.opendatahub.io/delete-data"

// Optional APIs.
var (
	serviceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
	httpRoute      = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	consoleLink    = schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: "ConsoleLink"}
	clusterVersion = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}
)

// What the server's ClusterRoles say must be permitted to whoever makes them.
//
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=mlflow-artifact-connection,verbs=get;list;watch
// +kubebuilder:rbac:groups=mlflow.kubeflow.org,resources=mlflowconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=mlflow.kubeflow.org,resources=experiments,verbs=get;list;update

// Domain is the domain.
type Domain struct {
	settings Settings
	chart    *render.Chart
	keys     *certs.Pairs
	now      func() time.Time
	// version that databases are brought to; tests play with it.
	version string
}

// New prepares the domain as it is without a cluster: nothing secret is made, and an image of the supported version
// stands in for the one that the platform ships.
func New() *Domain {
	return &Domain{
		chart: render.New(), now: time.Now, version: SupportedVersion,
		settings: Settings{Namespace: "default", Image: "mlflow:v" + SupportedVersion, NotOpenShift: true}.withDefaults(),
	}
}

// WithSettings takes other settings.
func (r *Domain) WithSettings(settings Settings) *Domain {
	r.settings = settings.withDefaults()
	return r
}

// WithPlatform takes the settings of a platform, and makes certificates from now on.
func (r *Domain) WithPlatform(settings Settings) *Domain {
	r.keys = &certs.Pairs{}
	return r.WithSettings(settings)
}

// Home are the resources that the domain writes in the namespace of its settings, and nowhere else.
func Home() []string {
	return []string{
		"configmaps", "persistentvolumeclaims", "secrets", "serviceaccounts", "services", "deployments.apps", "cronjobs.batch", "jobs.batch",
		"networkpolicies.networking.k8s.io", "httproutes.gateway.networking.k8s.io", "servicemonitors.monitoring.coreos.com",
	}
}

// Named are the names of what the domain writes without a namespace.
func Named() map[string][]string {
	return map[string][]string{
		"clusterroles.rbac.authorization.k8s.io":        {name, gcName},
		"clusterrolebindings.rbac.authorization.k8s.io": {name, gcName},
		"consolelinks.console.openshift.io":             {name},
	}
}

// Controllers of the domain.
func (r *Domain) Controllers() []engine.Controller { return []engine.Controller{r.servers()} }

// Module is the controller of the platform's module, for where MLflow is one.
func (r *Domain) Module() engine.Controller {
	return module.Controller(func() module.Settings { return module.Settings{Namespace: r.settings.Namespace, Version: r.version} })
}

// Access is the controller that lets the platform's groups into workspaces.
func (r *Domain) Access() engine.Controller {
	return access.Controller(func() access.Settings { return access.Settings{Prefix: r.settings.RolePrefix} })
}

// servers is the kind MLflow.
type servers struct{ *Domain }

var _ engine.Kind[*mlflowv1.MLflow, Seen] = servers{}

func (r *Domain) servers() engine.Controller {
	return engine.For[*mlflowv1.MLflow, Seen](servers{r}, engine.Spec{
		Name:               "mlflow",
		Ready:              conditionAvailable,
		ReadyEvent:         "MLflowAvailable",
		NotReadyEvent:      "MLflowUnavailable",
		OldManagers:        []string{oldManager},
		ApplyFailedReasons: map[string]string{"": "ApplyFailed", httpRoute.Kind: "HttpRouteFailed", consoleLink.Kind: "ConsoleLinkFailed"},
		RemovesAnnotations: true,
		Workers:            1,
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: kube.TrimDeployment},
			{Object: &corev1.Service{}, Trim: kube.TrimService},
			{Object: &corev1.ServiceAccount{}, MetadataOnly: true},
			{Object: &corev1.PersistentVolumeClaim{}},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &batchv1.CronJob{}},
			{Object: &batchv1.Job{}},
			{Object: &networkingv1.NetworkPolicy{}, MetadataOnly: true},
			{Object: &rbacv1.ClusterRole{}, MetadataOnly: true},
			{Object: &rbacv1.ClusterRoleBinding{}, MetadataOnly: true},
			{Object: foreign(serviceMonitor), Optional: true, MetadataOnly: true},
			{Object: foreign(httpRoute), Optional: true, MetadataOnly: true},
			{Object: foreign(consoleLink), Optional: true, MetadataOnly: true},
		},
		Inputs: []engine.Input{
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.ServiceAccount{}, MetadataOnly: true},
			{Object: &corev1.PersistentVolumeClaim{}, Select: ofName},
			{Object: &appsv1.Deployment{}, Select: ofName},
			{Object: &batchv1.Job{}, Select: labels.SelectorFromSet(labels.Set{migrate.ComponentLabel: migrate.Component})},
			{Object: &corev1.Pod{}, Select: ofServer, Trim: kube.TrimPod},
			{Object: foreign(clusterVersion), Optional: true, MetadataOnly: true},
			{Object: &v1alpha1.MLflowOperator{}, Optional: true},
		},
	})
}

// oldManager is the field manager of the operator that existing children come from.
const oldManager = "mlflow-operator"

func foreign(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// ofName selects what has the name of the server as its label.
var ofName = labels.SelectorFromSet(labels.Set{"app": name})

// ofServer selects the pods of the server and of migrations, among all pods of the cluster.
var ofServer = func() labels.Selector {
	in, err := labels.NewRequirement(migrate.ComponentLabel, selection.In, []string{migrate.ServerComponent, migrate.Component})
	if err != nil {
		panic(err) // constants
	}
	return labels.NewSelector().Add(*in)
}()

// Observe implements engine.Kind.
func (s servers) Observe(ctx context.Context, r engine.Reader, m *mlflowv1.MLflow) (Seen, error) {
	o := &observer{Domain: s.Domain, Reader: r, mlflow: m}
	return o.observe(ctx)
}

// Plan implements engine.Kind.
func (s servers) Plan(m *mlflowv1.MLflow, seen Seen) engine.Plan {
	p := &planner{chart: s.chart, version: s.version, mlflow: m, spec: &m.Spec, seen: &seen}
	return p.plan()
}
