// SPDX-License-Identifier: Apache-2.0

// Package module looks after the MLflowOperator, through which a platform that
// consists of modules says how MLflow is shown to people and asks what runs.
//
// It must not touch the MLflow itself: what an MLflow makes of the module is
// decided where the MLflow is, with [Gate] and [Domain].
package module

import (
	"context"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/components/v1alpha1"
	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
)

// EnvEnabled switches the module on when it is "true".
const EnvEnabled = "ENABLE_MLFLOW_OPERATOR_MODULE_CONTROLLER"

// Names that the platform knows.
const (
	Finalizer = "mlflow.opendatahub.io/mlflow-operator-protection"
	// ConfigName is the ConfigMap in which the platform says its version.
	ConfigName = "odh-mlflowoperator-config"
	versionKey = "platformVersion"
	repository = "https://github.com/mlflow/mlflow"
)

const (
	ready           = "Ready"
	configPending   = "ConfigPending"
	stillInUse      = "MLflowInstancesPresent"
	versionRefused  = "PlatformVersionInvalid"
	phaseProgresses = "Progressing"
)

// Settings of the module.
type Settings struct {
	// Namespace of the ConfigMap.
	Namespace string
	// Version of MLflow that runs.
	Version string
}

// Controller of the MLflowOperator. Settings are asked for with each look.
func Controller(settings func() Settings) engine.Controller {
	return engine.For[*v1alpha1.MLflowOperator, Seen](kind{settings}, engine.Spec{
		Name: "mlflow-module", Finalizer: Finalizer, Workers: 1,
		Inputs: []engine.Input{{Object: &mlflowv1.MLflow{}}, {Object: &corev1.ConfigMap{}, MetadataOnly: true}},
	})
}

// Seen is everything that the decision depends on.
type Seen struct {
	Settings Settings
	// Servers is how many MLflow objects there are.
	Servers int
	// Platform is the version that the platform says, nil if it says none.
	Platform *string
}

type kind struct{ settings func() Settings }

var _ engine.Teardown[*v1alpha1.MLflowOperator, Seen] = kind{}

// Observe implements engine.Kind.
func (k kind) Observe(ctx context.Context, r engine.Reader, _ *v1alpha1.MLflowOperator) (Seen, error) {
	seen := Seen{Settings: k.settings()}
	servers := &mlflowv1.MLflowList{}
	if err := r.List(ctx, servers); err != nil {
		return seen, err
	}
	seen.Servers = len(servers.Items)
	config := &corev1.ConfigMap{}
	err := r.GetUncached(ctx, client.ObjectKey{Namespace: seen.Settings.Namespace, Name: ConfigName}, config)
	if client.IgnoreNotFound(err) != nil {
		return seen, err
	}
	if version := strings.TrimSpace(config.Data[versionKey]); err == nil && version != "" {
		seen.Platform = &version
	}
	return seen, nil
}

// semantic is a version with up to three numbers and perhaps more: platforms say 3, v3.0 and 2.20 as well.
var semantic = regexp.MustCompile(`^v?\d+(\.\d+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

const longestVersion = 64

// Plan implements engine.Kind.
func (k kind) Plan(m *v1alpha1.MLflowOperator, seen Seen) engine.Plan {
	status := v1alpha1.MLflowOperatorStatus{}
	status.ObservedGeneration = m.Generation
	status.Phase = ready
	c := v1alpha1.Condition{Type: ready, Status: metav1.ConditionTrue, Reason: ready, Message: "MLflow can be shown to people."}
	var problem *engine.Problem
	switch missing := pending(&m.Spec); {
	case len(missing) > 0:
		problem = engine.WaitFor(configPending, "The platform has not yet said %s of the MLflowOperator. Set it.", strings.Join(missing, " and "))
	case seen.Platform != nil && !acceptable(*seen.Platform):
		problem = engine.MustChange(versionRefused, "The key %s of ConfigMap %s/%s is no version such as 2.25.0 of at most %d characters. Correct it.",
			versionKey, seen.Settings.Namespace, ConfigName, longestVersion)
	}
	if problem != nil {
		status.Phase, c.Status, c.Reason, c.Message = phaseProgresses, metav1.ConditionFalse, problem.Reason, problem.Message
	}
	status.Conditions = []v1alpha1.Condition{c}
	status.Releases = releases(seen)
	return engine.Plan{Status: status, Problem: problem}
}

func pending(spec *v1alpha1.MLflowOperatorSpec) []string {
	var missing []string
	if spec.GatewayName == "" {
		missing = append(missing, "spec.gatewayName")
	}
	if spec.SectionTitle == "" {
		missing = append(missing, "spec.sectionTitle")
	}
	return missing
}

func acceptable(version string) bool {
	return len(version) <= longestVersion && semantic.MatchString(version)
}

func releases(seen Seen) []v1alpha1.Release {
	var out []v1alpha1.Release
	if seen.Platform != nil && acceptable(*seen.Platform) {
		out = append(out, v1alpha1.Release{Name: "platform", Version: *seen.Platform})
	}
	return append(out, v1alpha1.Release{Name: "MLflow", Version: seen.Settings.Version, RepoURL: repository})
}

// Teardown implements engine.Teardown: the module stays while it is in use.
func (k kind) Teardown(m *v1alpha1.MLflowOperator, seen Seen) engine.Ending {
	if seen.Servers == 0 {
		return engine.Ending{Finished: true}
	}
	problem := engine.WaitFor(stillInUse, "cannot delete MLflowOperator while %d MLflow instance(s) still exist. Delete them; it goes by itself then.", seen.Servers)
	status := v1alpha1.MLflowOperatorStatus{}
	status.ObservedGeneration, status.Phase, status.Releases = m.Generation, phaseProgresses, releases(seen)
	status.Conditions = []v1alpha1.Condition{{Type: ready, Status: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message}}
	return engine.Ending{Plan: engine.Plan{Status: status, Problem: problem}}
}
