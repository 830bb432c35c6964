// SPDX-License-Identifier: Apache-2.0

// Package external leads requests to models that providers outside the cluster run: ExternalProvider and ExternalModel of
// inference.opendatahub.io, and the former ExternalModel of maas.opendatahub.io. A provider becomes a name that gateways can
// send requests to, over TLS that is checked; a model becomes the routes that lead there.
//
// It does not choose a provider, translate a request or sign it: that is done by the payload processor. No key of a provider
// is read here, only whether there is one.
package external

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	maasv1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// Annotations of a provider, and of a former ExternalModel.
const (
	AnnotationPort = "maas.opendatahub.io/port"
	AnnotationTLS  = "maas.opendatahub.io/tls"
)

// Headers by which routes tell models and providers apart. The payload processor sets both.
const (
	HeaderModel    = "X-Gateway-Model-Name"
	HeaderProvider = "x-ipp-selected-provider"
)

// keyOfSecret is where a Secret has the key of a provider.
const keyOfSecret = "api-key"

// labelTenant is the label of a namespace that belongs to a tenant, with its name.
const labelTenant = "ai-gateway.opendatahub.io/tenant"

// Settings is what the controllers must know of the platform. It may be filled until the manager starts.
type Settings struct {
	// Gateway through which models are reached where no tenant has another one.
	Gateway client.ObjectKey
	// TenantsNamespace is where AITenants are.
	TenantsNamespace string
}

// Controllers of the three kinds.
func Controllers(s *Settings) []engine.Controller {
	return []engine.Controller{
		engine.For[*inferencev1alpha1.ExternalProvider, providerSeen](providers{s}, engine.Spec{
			Name: "maas-external-provider", OldManagers: oldManagers, Children: reached(), ReadyEvent: "ProviderReady", NotReadyEvent: "ProviderNotReady", Blocked: blocked,
			Inputs: slices.Concat(gateways.Inputs(), []engine.Input{{Object: &corev1.Secret{}, MetadataOnly: true}}),
		}),
		engine.For[*inferencev1alpha1.ExternalModel, modelSeen](models{s}, engine.Spec{
			Name: "maas-external-model", OldManagers: oldManagers, ReadyEvent: "ModelReady", NotReadyEvent: "ModelNotReady", Blocked: blocked,
			Children: []engine.ChildKind{{Object: gateways.Foreign(gateways.HTTPRoute), Optional: true}},
			Inputs: slices.Concat(gateways.Inputs(), around(), []engine.Input{
				{Object: &inferencev1alpha1.ExternalProvider{}},
				{Object: &corev1.Secret{}, MetadataOnly: true},
				{Object: &inferencev1alpha1.ExternalModel{}, Index: byModelName},
				{Object: &maasv1alpha1.ExternalModel{}, Index: byModelName},
			}),
		}),
		engine.For[*maasv1alpha1.ExternalModel, legacySeen](legacies{s}, engine.Spec{
			Name: "maas-external-model-legacy", OldManagers: oldManagers, ReadyEvent: "ModelReady", NotReadyEvent: "ModelNotReady", Blocked: blocked,
			Children: append(reached(), engine.ChildKind{Object: gateways.Foreign(gateways.HTTPRoute), Optional: true}),
			Inputs: slices.Concat(gateways.Inputs(), around(), []engine.Input{
				{Object: &corev1.Secret{}, MetadataOnly: true},
				{Object: &inferencev1alpha1.ExternalModel{}, Index: byModelName},
				{Object: &maasv1alpha1.ExternalModel{}, Index: byModelName},
			}),
		}),
	}
}

// oldManagers are the field managers of the controllers that existing children come from.
var oldManagers = []string{"manager", "maas-controller", "payload-processing"}

// reached are the kinds by which gateways reach a provider.
func reached() []engine.ChildKind {
	return []engine.ChildKind{
		{Object: &corev1.Service{}, Trim: kube.TrimService},
		{Object: gateways.Foreign(gateways.ServiceEntry), Resource: gateways.ServiceEntryResource, Optional: true, MetadataOnly: true},
		{Object: gateways.Foreign(gateways.DestinationRule), Optional: true, MetadataOnly: true},
		{Object: gateways.Foreign(gateways.Backend), Optional: true, MetadataOnly: true},
		{Object: gateways.Foreign(gateways.BackendTLSPolicy), Resource: gateways.BackendTLSPolicyResource, Optional: true, MetadataOnly: true},
	}
}

// around are what tells which gateways a model is reached through.
func around() []engine.Input {
	return []engine.Input{
		{Object: &maasv1alpha1.MaaSModelRef{}, Index: published},
		{Object: &maasv1alpha1.AITenant{}},
		{Object: &maasv1alpha1.Config{}},
		{Object: &corev1.Namespace{}, MetadataOnly: true},
	}
}

// blocked makes the phase say what the condition says, also of what came to light when children were written.
func blocked(status map[string]any, p *engine.Problem) {
	switch {
	case p.Family == engine.Invalid:
		status["phase"] = "Failed"
	case status["phase"] != "Failed":
		status["phase"] = "Pending"
	}
}
