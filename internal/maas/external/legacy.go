// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// legacies is the former kind ExternalModel.
type legacies struct{ *Settings }

type legacySeen struct {
	Gateway gateways.Seen
	Doors   doors
	Secret  secretSeen
	// Superseded says that the model has moved to the other group, and Rival has its name.
	Superseded bool
	Rival      *claim
	Routes     map[string]*unstructured.Unstructured
	NoRoutes   bool
}

// Observe implements engine.Kind.
func (l legacies) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.ExternalModel) (legacySeen, error) {
	seen := legacySeen{NoRoutes: !r.HasAPI(gateways.HTTPRoute.GroupKind())}
	var err error
	if seen.Gateway, err = gateways.Observe(ctx, r, l.Gateway); err != nil {
		return seen, err
	}
	if seen.Superseded, err = superseded(ctx, r, client.ObjectKeyFromObject(obj)); err != nil || seen.Superseded {
		return seen, err
	}
	if seen.Doors, err = l.doorsOf(ctx, r, client.ObjectKeyFromObject(obj)); err != nil {
		return seen, err
	}
	if seen.Secret, err = readSecret(ctx, r, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.CredentialRef.Name}); err != nil {
		return seen, err
	}
	if seen.Rival, err = l.rivalOf(ctx, r, obj); err != nil {
		return seen, err
	}
	seen.Routes, err = liveRoutes(ctx, r, obj.Namespace, []string{naming.FormerModel(obj.Name)})
	return seen, err
}

// Plan implements engine.Kind.
func (l legacies) Plan(obj *v1alpha1.ExternalModel, seen legacySeen) engine.Plan {
	if seen.Superseded {
		done := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Superseded",
			Message: "The ExternalModel of inference.opendatahub.io with this name is used instead. This one can be deleted."}
		return engine.Plan{Status: &v1alpha1.ExternalModelStatus{Phase: v1alpha1.ExternalModelReady, Conditions: []metav1.Condition{done}}}
	}
	at, problem := endpointOf(obj.Spec.Endpoint, obj.Annotations)
	if problem == nil {
		problem = unsupported(obj.Spec.Provider)
	}
	if problem == nil {
		problem = taken(obj, seen.Rival)
	}
	if problem != nil {
		return engine.Plan{Problem: problem, Status: &v1alpha1.ExternalModelStatus{Phase: v1alpha1.ExternalModelFailed}}
	}
	b := backend{flavour: seen.Gateway.Flavour, endpoint: at, meta: legacyMeta(obj, serviceName(naming.FormerModel(obj.Name)))}
	plan := engine.Plan{Children: b.children()}
	status := &v1alpha1.ExternalModelStatus{Phase: v1alpha1.ExternalModelPending}
	plan.Status = status
	if p := noDoor(seen.NoRoutes, seen.Doors); p != nil {
		plan.Problem, plan.KeepChildren = p, keeps(seen.Routes, seen.Doors.Open)
		return plan
	}
	wanted := routes(legacyMeta(obj, naming.FormerModel(obj.Name)), seen.Doors.Open,
		[]any{rule(b, byPath(obj.Namespace, obj.Name)), rule(b, byHeaders(nil, HeaderModel, obj.Name))})
	plan.Children = append(plan.Children, engine.Child{Object: wanted[0], Stage: 1})
	if plan.Problem = seen.Secret.problem(obj.Namespace, obj.Spec.CredentialRef.Name); plan.Problem != nil {
		return plan
	}
	if a := answered(wanted, seen.Routes, seen.Doors.Open); a != nil {
		plan.Problem = routeProblem(a)
		if a.Refused {
			status.Phase = v1alpha1.ExternalModelFailed
		}
		return plan
	}
	status.Phase = v1alpha1.ExternalModelReady
	status.Conditions = []metav1.Condition{ready(fmt.Sprintf("Requests for the model %q are led to %s.", obj.Name, at.says()))}
	return plan
}

// unsupported is the problem of a provider whose API needs more than a former model can say: a project, a region, a signature.
func unsupported(provider string) *engine.Problem {
	p := strings.ToLower(provider)
	if !strings.HasPrefix(p, "vertex") && p != "bedrock" && p != "aws-bedrock" {
		return nil
	}
	return engine.MustChange("ProviderUnsupported", "A provider of the kind %s cannot be asked by this kind of model. Use an ExternalProvider and an ExternalModel of inference.opendatahub.io, with apiFormat and path.", provider)
}

// legacyMeta has the labels that tools know. The value of a label is shorter than a name may be.
func legacyMeta(obj *v1alpha1.ExternalModel, name string) metav1.ObjectMeta {
	const longest = 63
	labels := map[string]string{
		"app.kubernetes.io/managed-by":       "maas-external-model-reconciler",
		"maas.opendatahub.io/external-model": strings.Trim(obj.Name[:min(len(obj.Name), longest)], "-."),
	}
	return metav1.ObjectMeta{Namespace: obj.Namespace, Name: name, Labels: labels}
}
