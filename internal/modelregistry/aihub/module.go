// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	componentsv1alpha1 "github.com/modelplane/modelplane/api/components/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// EnvModule switches the controller of AIHubs on when it is "true".
const EnvModule = "ENABLE_AIHUB_MODULE_CONTROLLER"

// Names that the platform knows.
const (
	moduleFinalizer = "aihub.opendatahub.io/finalizer"
	// platformConfig is the ConfigMap in which the platform says its version.
	platformConfig = "odh-modelregistry-config"
	versionKey     = "platformVersion"
)

// Conditions of an AIHub, and the reasons and phases that the platform knows.
const (
	moduleReady       = "Ready"
	moduleProvisioned = "ProvisioningSucceeded"
	moduleRegistries  = "ModelRegistryReady"
	moduleCatalog     = "CatalogReady"
	moduleDegraded    = "Degraded"

	reasonApplied   = "AllResourcesApplied"
	reasonAllThere  = "AllDeploymentsAvailable"
	reasonNotReady  = "ChildDeploymentNotReady"
	reasonUndamaged = "NoDegradation"

	phaseReady    = "Ready"
	phaseNotReady = "Not Ready"
)

// Module is the controller of the AIHub, through which a platform that consists of modules says where registries and the
// catalog are, and asks whether they run. Nothing is installed for it: the controllers are those of this process.
func (d *Domain) Module() engine.Controller {
	return engine.For[*componentsv1alpha1.AIHub, moduleSeen](module{d}, engine.Spec{
		Name: "aihub", Finalizer: moduleFinalizer, Workers: 1,
		Children: []engine.ChildKind{{Object: &corev1.Namespace{}, MetadataOnly: true}, {Object: &v1alpha1.Catalog{}}},
		Inputs:   []engine.Input{{Object: &v1alpha1.Catalog{}}, {Object: &corev1.ConfigMap{}, MetadataOnly: true}},
	})
}

// moduleSeen is everything that the decision about an AIHub depends on.
type moduleSeen struct {
	// Version of the servers.
	Version string
	// Platform is the version that the platform says; empty if it says none.
	Platform string
	// Catalog is the one of the platform, whoever made it; nil while there is none.
	Catalog *v1alpha1.Catalog
}

type module struct{ *Domain }

var _ engine.Teardown[*componentsv1alpha1.AIHub, moduleSeen] = module{}

// Observe implements engine.Kind.
func (m module) Observe(ctx context.Context, r engine.Reader, hub *componentsv1alpha1.AIHub) (moduleSeen, error) {
	seen := moduleSeen{Version: m.settings.Version}
	config := &corev1.ConfigMap{}
	found, err := platform.Exists(r.GetUncached(ctx, client.ObjectKey{Namespace: hub.Spec.ApplicationNamespace, Name: platformConfig}, config))
	if err != nil {
		return seen, err
	}
	if found {
		seen.Platform = strings.TrimSpace(config.Data[versionKey])
	}
	catalog := &v1alpha1.Catalog{}
	found, err = platform.Exists(r.Get(ctx, client.ObjectKey{Namespace: hub.Spec.InstancesNamespace, Name: v1alpha1.CatalogName}, catalog))
	if found {
		seen.Catalog = catalog
	}
	return seen, err
}

// Plan implements engine.Kind.
func (m module) Plan(hub *componentsv1alpha1.AIHub, seen moduleSeen) engine.Plan {
	children := []engine.Child{
		// The namespace holds data of others, and stays.
		{Object: &corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: hub.Spec.InstancesNamespace},
		}, CreateOnly: true, Retain: true},
		{Object: &v1alpha1.Catalog{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Catalog"},
			ObjectMeta: metav1.ObjectMeta{Namespace: hub.Spec.InstancesNamespace, Name: v1alpha1.CatalogName},
		}, CreateOnly: true, Stage: stageServer},
	}
	return engine.Plan{Children: children, Status: moduleStatus(hub, seen)}
}

// Teardown implements engine.Teardown: the catalog that was made for the module goes first, as long as its controller is there
// to remove what it has.
func (m module) Teardown(hub *componentsv1alpha1.AIHub, seen moduleSeen) engine.Ending {
	if seen.Catalog == nil || seen.Catalog.Labels[engine.LabelOwner] != string(hub.UID) {
		return engine.Ending{Finished: true}
	}
	problem := engine.WaitFor("CatalogRemoved", "The Catalog %s/%s is being removed first. Wait for it.", seen.Catalog.Namespace, seen.Catalog.Name)
	status := moduleStatus(hub, seen)
	status.Phase = phaseNotReady
	return engine.Ending{Plan: engine.Plan{Problem: problem, Status: status}}
}

func moduleStatus(hub *componentsv1alpha1.AIHub, seen moduleSeen) *componentsv1alpha1.AIHubStatus {
	status := &componentsv1alpha1.AIHubStatus{}
	status.ObservedGeneration = hub.Generation
	say := func(condition string, yes bool, reason, message string) {
		c := componentsv1alpha1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if yes {
			c.Status = metav1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, c)
	}
	ready, reason, message := catalogReady(seen.Catalog)
	status.Phase = phaseNotReady
	if ready {
		status.Phase = phaseReady
	}
	say(moduleReady, ready, reason, message)
	say(moduleProvisioned, true, reasonApplied, "The namespace and the catalog are there.")
	say(moduleRegistries, true, reasonAllThere, "Registries are looked after.")
	say(moduleCatalog, ready, reason, message)
	say(moduleDegraded, false, reasonUndamaged, "Nothing is degraded.")
	if seen.Platform != "" {
		status.Releases = append(status.Releases, componentsv1alpha1.Release{Name: "platform", Version: seen.Platform})
	}
	status.Releases = append(status.Releases, componentsv1alpha1.Release{Name: "Model Registry", Version: seen.Version})
	return status
}

func catalogReady(c *v1alpha1.Catalog) (ready bool, reason, message string) {
	if c == nil {
		return false, reasonNotReady, "The Catalog is being made."
	}
	said := meta.FindStatusCondition(c.Status.Conditions, conditionAvailable)
	switch {
	case said == nil || said.ObservedGeneration != c.Generation:
		return false, reasonNotReady, "The Catalog has not said yet whether it is available. Wait for it."
	case said.Status != metav1.ConditionTrue:
		return false, reasonNotReady, "The Catalog is not available: " + said.Message
	}
	return true, reasonAllThere, "Registries are looked after, and the catalog answers."
}

// EnvInstance makes a catalog of its own accord when it is "true", where nobody makes an object for it.
const EnvInstance = "ENABLE_MODEL_CATALOG"

// Instance makes the one Catalog of a namespace, which its users may change. One that is deleted is made again.
func (d *Domain) Instance(namespace string) engine.Controller {
	return engine.For[*corev1.Namespace, struct{}](instance{}, engine.Spec{
		Name: "catalog-instance", NoStatus: true, Workers: 1, Select: named(namespace),
		Children: []engine.ChildKind{{Object: &v1alpha1.Catalog{}}},
	})
}

type instance struct{}

// Observe implements engine.Kind.
func (instance) Observe(context.Context, engine.Reader, *corev1.Namespace) (struct{}, error) {
	return struct{}{}, nil
}

// Plan implements engine.Kind.
func (instance) Plan(ns *corev1.Namespace, _ struct{}) engine.Plan {
	return engine.Plan{Children: []engine.Child{{Object: &v1alpha1.Catalog{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Catalog"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: v1alpha1.CatalogName},
	}, CreateOnly: true, Retain: true}}}
}

// named selects a namespace by its name.
func named(namespace string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{corev1.LabelMetadataName: namespace})
}

// readModule lets the AIHub decide where the catalog is, and how the gateway is called that leads to it.
func (o *observer) readModule(ctx context.Context) error {
	if !o.module {
		return nil
	}
	hub := &componentsv1alpha1.AIHub{}
	found, err := platform.Exists(o.Get(ctx, client.ObjectKey{Name: componentsv1alpha1.AIHubName}, hub))
	if !found {
		return err
	}
	s := &o.seen.Settings
	s.CatalogNamespace, s.RouteNamespace = hub.Spec.InstancesNamespace, hub.Spec.ApplicationNamespace
	if hub.Spec.Gateway != nil && hub.Spec.Gateway.Domain != "" {
		s.GatewayDomain = hub.Spec.Gateway.Domain
	}
	return nil
}
