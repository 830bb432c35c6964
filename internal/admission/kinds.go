// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aihubv1alpha1 "github.com/modelplane/modelplane/api/aihub/v1alpha1"
	componentsv1alpha1 "github.com/modelplane/modelplane/api/components/v1alpha1"
	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	maasv1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	mlflowconfigv1 "github.com/modelplane/modelplane/api/mlflowconfig/v1"
	registryv1alpha1 "github.com/modelplane/modelplane/api/modelregistry/v1alpha1"
	registryv1beta1 "github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	servingv1alpha1 "github.com/modelplane/modelplane/api/serving/v1alpha1"
	servingv1alpha2 "github.com/modelplane/modelplane/api/serving/v1alpha2"
	servingv1beta1 "github.com/modelplane/modelplane/api/serving/v1beta1"
)

// The domains a manager can be asked to look after.
const (
	Serving       = "serving"
	ModelMesh     = "modelmesh"
	ModelRegistry = "modelregistry"
	MaaS          = "maas"
	MLflow        = "mlflow"
)

// AddToScheme makes a scheme know every kind of every domain.
var AddToScheme = func() func(*runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(
		servingv1beta1.AddToScheme, servingv1alpha1.AddToScheme, servingv1alpha2.AddToScheme,
		registryv1beta1.AddToScheme, registryv1alpha1.AddToScheme, aihubv1alpha1.AddToScheme,
		maasv1alpha1.AddToScheme, inferencev1alpha1.AddToScheme,
		mlflowv1.AddToScheme, mlflowconfigv1.AddToScheme, componentsv1alpha1.AddToScheme,
	)
	return builder.AddToScheme
}()

// domainOf says who looks after a kind. Two groups are shared.
func domainOf(gk schema.GroupKind) string {
	switch gk {
	case schema.GroupKind{Group: servingv1alpha1.GroupVersion.Group, Kind: "Predictor"}:
		return ModelMesh
	case schema.GroupKind{Group: componentsv1alpha1.GroupVersion.Group, Kind: "AIHub"}:
		return ModelRegistry
	case schema.GroupKind{Group: componentsv1alpha1.GroupVersion.Group, Kind: "MLflowOperator"}:
		return MLflow
	}
	switch gk.Group {
	case servingv1alpha1.GroupVersion.Group:
		return Serving
	case registryv1beta1.GroupVersion.Group, aihubv1alpha1.GroupVersion.Group:
		return ModelRegistry
	case maasv1alpha1.GroupVersion.Group, inferencev1alpha1.GroupVersion.Group:
		return MaaS
	case mlflowv1.GroupVersion.Group, mlflowconfigv1.GroupVersion.Group:
		return MLflow
	}
	return ""
}

// Uses lists the kinds of other domains without which a domain does not work.
// They are admitted and defaulted wherever it is enabled.
func Uses(domain string) []schema.GroupKind {
	if domain != ModelMesh {
		return nil
	}
	group := servingv1alpha1.GroupVersion.Group
	return []schema.GroupKind{
		{Group: group, Kind: "ClusterServingRuntime"}, {Group: group, Kind: "InferenceService"}, {Group: group, Kind: "ServingRuntime"},
	}
}

// Kinds returns the kinds of a domain, ordered by name. They are decoded
// strictly; a domain adds its own defaults and rules to them.
func Kinds(domain string) ([]Kind, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, err
	}
	plurals, err := resources()
	if err != nil {
		return nil, err
	}
	var kinds []Kind
	for gvk := range plurals {
		if domainOf(gvk.GroupKind()) != domain {
			continue
		}
		k, err := kindOf(scheme, gvk)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, k)
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("there is no domain %q", domain)
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return slices.Compare(sortKey(a), sortKey(b)) })
	return kinds, nil
}

func sortKey(k Kind) []string { return []string{k.GVK.Group, k.GVK.Kind, k.GVK.Version} }

func kindOf(scheme *runtime.Scheme, gvk schema.GroupVersionKind) (Kind, error) {
	first, err := scheme.New(gvk)
	if err != nil {
		return Kind{}, fmt.Errorf("%s is defined but has no Go type: %w", gvk, err)
	}
	if _, ok := first.(client.Object); !ok {
		return Kind{}, fmt.Errorf("the Go type of %s is no object", gvk)
	}
	return Kind{GVK: gvk, New: func() client.Object {
		// Cannot fail: the same call succeeded above.
		obj, _ := scheme.New(gvk)
		return obj.(client.Object)
	}}, nil
}
