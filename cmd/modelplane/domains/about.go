// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	aihubv1alpha1 "github.com/modelplane/modelplane/api/aihub/v1alpha1"
	maasv1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	registryv1beta1 "github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/cli/explain"
	"github.com/modelplane/modelplane/internal/maas/modelrefs"
	"github.com/modelplane/modelplane/internal/mlflow/migrate"
	"github.com/modelplane/modelplane/internal/modelmesh/predictors"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
	"github.com/modelplane/modelplane/internal/modelregistry"
	"github.com/modelplane/modelplane/internal/modelregistry/link"
)

// About is what `modelplane explain` must be told of kinds besides their
// controllers.
func About() []explain.About {
	group := func(kind string) schema.GroupKind { return schema.GroupKind{Group: v1beta1.Group, Kind: kind} }
	url := explain.Path{Label: "url", Fields: []string{"status", "url"}}
	mode := explain.Path{Label: "mode", Fields: []string{"status", "deploymentMode"}}
	phase := []explain.Path{{Label: "phase", Fields: []string{"status", "phase"}}}
	return []explain.About{
		{
			Kind: group("InferenceService"),
			Facts: []explain.Path{mode,
				{Label: "runtime", Fields: []string{"status", "servingRuntimeName"}, Prefix: "ServingRuntime "},
				{Label: "runtime", Fields: []string{"status", "clusterServingRuntimeName"}, Prefix: "ClusterServingRuntime "},
				{Label: "model", Fields: []string{"status", "modelStatus", "states", "targetModelState"}},
				url,
			},
			Conditions: []string{"PredictorReady", "TransformerReady", "ExplainerReady", "IngressReady", "CanaryPredictorReady"},
			Latest:     "LatestDeploymentReady",
			Aside:      []string{link.ConditionLinked},
			Commands: map[string][]string{
				string(v1beta1.RuntimeNotRecognized): listRuntimes,
				string(v1beta1.NoSupportingRuntime):  listRuntimes,
				string(v1beta1.RuntimeDisabled):      listRuntimes,
				"Stopped":                            {"-n NAMESPACE annotate inferenceservice NAME " + v1beta1.AnnotationStop + "-"},
			},
		},
		{
			Kind:       group("InferenceGraph"),
			Facts:      []explain.Path{mode, url},
			Conditions: []string{"ConfigurationsReady", "RoutesReady"},
			Commands: map[string][]string{
				"Stopped": {"-n NAMESPACE annotate inferencegraph NAME " + v1beta1.AnnotationStop + "-"},
			},
			Uses: servicesOfGraph,
		},
		{
			Kind:       group("TrainedModel"),
			Facts:      []explain.Path{{Label: "service", Fields: []string{"spec", "inferenceService"}}, url},
			Conditions: []string{"IsMMSPredictor", "MemoryResourceAvailable", "InferenceServiceReady"},
			Uses:       serviceOfModel,
		},
		{Kind: group("ServingRuntime"), Facts: runtimeFacts(), Commands: runtimeCommands()},
		{Kind: group("ClusterServingRuntime"), Facts: runtimeFacts(), Commands: runtimeCommands()},
		{
			Kind: group("Predictor"),
			Facts: []explain.Path{
				{Label: "model", Fields: []string{"status", "activeModelState"}},
				{Label: "next", Fields: []string{"status", "targetModelState"}},
				{Label: "transition", Fields: []string{"status", "transitionStatus"}},
				{Label: "grpc", Fields: []string{"status", "grpcEndpoint"}},
				{Label: "http", Fields: []string{"status", "httpEndpoint"}},
			},
			Latest: predictors.ConditionLatest,
			Commands: map[string][]string{
				string(v1beta1.RuntimeNotRecognized): listRuntimes,
				string(v1beta1.NoSupportingRuntime):  listRuntimes,
				string(v1beta1.RuntimeUnhealthy):     runtimePods,
				string(v1beta1.ModelLoadFailed):      runtimePods,
				string(v1beta1.BlockedByFailedLoad):  runtimePods,
				"NamespaceNotEnabled":                {"label namespace NAMESPACE modelmesh-enabled=true"},
			},
		},
		aboutMLflow(),
		aboutRegistry(),
		aboutModels(),
		{Kind: ofMaaS("MaaSSubscription"), Facts: phase, Conditions: []string{"EnforcedBy"}, Uses: publishedModels},
		{Kind: ofMaaS("MaaSAuthPolicy"), Facts: phase, Conditions: []string{"EnforcedBy"}, Uses: publishedModels},
		{
			Kind: aihubv1alpha1.GroupVersion.WithKind("Catalog").GroupKind(), Conditions: []string{"Available"},
			Commands: map[string][]string{"TakenOver": {"-n NAMESPACE annotate catalog NAME " + modelregistry.AnnotationKeepPods + "=false"}},
		},
	}
}

// runtimeFacts are how a multi-model runtime is told about models, and asked.
func runtimeFacts() []explain.Path {
	return []explain.Path{
		{Label: "management", Fields: []string{"spec", "grpcEndpoint"}},
		{Label: "data", Fields: []string{"spec", "grpcDataEndpoint"}},
	}
}

func runtimeCommands() map[string][]string {
	return map[string][]string{"NamespaceNotEnabled": {"label namespace NAMESPACE " + settings.LabelEnabled + "=true"}}
}

func aboutRegistry() explain.About {
	return explain.About{
		Kind: registryv1beta1.GroupVersion.WithKind("ModelRegistry").GroupKind(),
		Facts: []explain.Path{
			{Label: "hosts", Fields: []string{"status", "hostsStr"}},
		},
		Conditions: []string{"Available", "KubeRBACProxyAvailable"},
		Commands: map[string][]string{
			"TakenOver": {"-n NAMESPACE annotate modelregistry NAME " + modelregistry.AnnotationKeepPods + "=false"},
		},
	}
}

func ofMaaS(kind string) schema.GroupKind {
	return schema.GroupKind{Group: maasv1alpha1.GroupVersion.Group, Kind: kind}
}

// aboutModels puts what runs a model before who may use it.
func aboutModels() explain.About {
	return explain.About{
		Kind: ofMaaS("MaaSModelRef"),
		Facts: []explain.Path{
			{Label: "phase", Fields: []string{"status", "phase"}},
			{Label: "endpoint", Fields: []string{"status", "endpoint"}},
			{Label: "route", Fields: []string{"status", "httpRouteName"}},
			{Label: "gateway", Fields: []string{"status", "httpRouteGatewayName"}},
			{Label: "name for clients", Fields: []string{"status", "resolvedModelAlias"}},
		},
		Conditions: []string{modelrefs.ConditionRuntime, modelrefs.ConditionGoverned},
		Aside:      []string{modelrefs.ConditionUnique},
	}
}

// publishedModels are those that a subscription or access policy names.
func publishedModels(obj *unstructured.Unstructured) []explain.Ref {
	var out []explain.Ref
	refs, _, _ := unstructured.NestedSlice(obj.Object, "spec", "modelRefs")
	for _, item := range refs {
		ref, _ := item.(map[string]any)
		name, _ := ref["name"].(string)
		namespace, _ := ref["namespace"].(string)
		out = append(out, explain.Ref{GroupVersionKind: maasv1alpha1.GroupVersion.WithKind("MaaSModelRef"), Namespace: namespace, Name: name})
	}
	return out
}

// aboutMLflow puts what needs a person before what only follows from it.
func aboutMLflow() explain.About {
	return explain.About{
		Kind: mlflowv1.GroupVersion.WithKind("MLflow").GroupKind(),
		Facts: []explain.Path{
			{Label: "version", Fields: []string{"status", "version"}},
			{Label: "url", Fields: []string{"status", "url"}},
			{Label: "inside", Fields: []string{"status", "address", "url"}},
		},
		Conditions: []string{migrate.Condition, "Available"},
		Commands: map[string][]string{
			"MigrationFailed": {"annotate mlflow NAME " + migrate.ForceAnnotation + "=true"},
		},
	}
}

// runtimePods are those in which models are loaded, by the ends of whose names a failure is located.
var runtimePods = []string{"-n NAMESPACE get deployments,pods -l modelmesh-service"}

var listRuntimes = []string{"-n NAMESPACE get servingruntimes", "get clusterservingruntimes"}

func serviceRef(namespace, name string) explain.Ref {
	return explain.Ref{GroupVersionKind: v1beta1.GroupVersion.WithKind("InferenceService"), Namespace: namespace, Name: name}
}

func serviceOfModel(model *unstructured.Unstructured) []explain.Ref {
	name, _, _ := unstructured.NestedString(model.Object, "spec", "inferenceService")
	if name == "" {
		return nil
	}
	return []explain.Ref{serviceRef(model.GetNamespace(), name)}
}

// servicesOfGraph are those that its steps name, each once.
func servicesOfGraph(graph *unstructured.Unstructured) []explain.Ref {
	names := map[string]bool{}
	nodes, _, _ := unstructured.NestedMap(graph.Object, "spec", "nodes")
	for node := range nodes {
		steps, _, _ := unstructured.NestedSlice(nodes, node, "steps")
		for _, step := range steps {
			if s, ok := step.(map[string]any); ok {
				if name, _ := s["serviceName"].(string); name != "" {
					names[name] = true
				}
			}
		}
	}
	var out []explain.Ref
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, serviceRef(graph.GetNamespace(), name))
	}
	return out
}
