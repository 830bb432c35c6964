// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// legacies is the former kind ExternalModel.
type legacies struct{ *Settings }

type legacySeen struct {
	Gateway  gateways.Seen
	Doors    []gateways.Seen
	Secret   secretSeen
	Others   []claim
	Routes   map[string]*unstructured.Unstructured
	NoRoutes bool
}

// LegacyName is the name of what is made for a former ExternalModel.
func LegacyName(name string) string {
	const longest = 253
	full := "maas-" + name
	if len(full) <= longest {
		return full
	}
	sum := sha256.Sum256([]byte(name))
	mark := "-" + hex.EncodeToString(sum[:4])
	return full[:longest-len(mark)] + mark
}

// Observe implements engine.Kind.
func (l legacies) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.ExternalModel) (legacySeen, error) {
	seen := legacySeen{NoRoutes: !r.HasAPI(gateways.HTTPRoute.GroupKind())}
	var err error
	if seen.Gateway, err = gateways.Observe(ctx, r, l.Gateway); err != nil {
		return seen, err
	}
	if seen.Doors, err = l.doorsOf(ctx, r, obj.Namespace, obj.Name); err != nil {
		return seen, err
	}
	if seen.Secret, err = readSecret(ctx, r, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.CredentialRef.Name}); err != nil {
		return seen, err
	}
	if seen.Others, err = othersOf(ctx, r, obj, v1alpha1.GroupVersion.Group); err != nil {
		return seen, err
	}
	seen.Routes, err = liveRoutes(ctx, r, obj.Namespace, []string{LegacyName(obj.Name)})
	return seen, err
}

// Plan implements engine.Kind.
func (l legacies) Plan(obj *v1alpha1.ExternalModel, seen legacySeen) engine.Plan {
	if superseded(obj, seen.Others) {
		done := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Superseded",
			Message: "The ExternalModel of inference.opendatahub.io with this name is used instead. This one can be deleted."}
		return engine.Plan{Status: &v1alpha1.ExternalModelStatus{Phase: v1alpha1.ExternalModelReady, Conditions: []metav1.Condition{done}}}
	}
	at, problem := endpointOf(obj.Spec.Endpoint, obj.Annotations)
	if problem == nil {
		problem = taken(obj, v1alpha1.GroupVersion.Group, seen.Others)
	}
	if problem != nil {
		return engine.Plan{Problem: problem, Status: &v1alpha1.ExternalModelStatus{Phase: v1alpha1.ExternalModelFailed}}
	}
	b := backend{flavour: seen.Gateway.Flavour, endpoint: at, meta: legacyMeta(obj, serviceName(LegacyName(obj.Name)))}
	plan := engine.Plan{Children: b.children()}
	status := &v1alpha1.ExternalModelStatus{Phase: v1alpha1.ExternalModelPending}
	plan.Status = status
	if p := noDoor(seen.NoRoutes, seen.Doors); p != nil {
		plan.Problem, plan.KeepChildren = p, true
		return plan
	}
	wanted := routes(legacyMeta(obj, LegacyName(obj.Name)), seen.Doors,
		[]any{rule(b, byPath(obj.Namespace, obj.Name)), rule(b, byHeaders(nil, HeaderModel, obj.Name))})
	plan.Children = append(plan.Children, engine.Child{Object: wanted[0], Stage: 1})
	if plan.Problem = seen.Secret.problem(obj.Namespace, obj.Spec.CredentialRef.Name, true); plan.Problem != nil {
		return plan
	}
	if a := answered(wanted, seen.Routes, seen.Doors); a != nil {
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

// superseded tells whether the model has moved to the other group.
func superseded(obj *v1alpha1.ExternalModel, others []claim) bool {
	return slices.ContainsFunc(others, func(c claim) bool {
		return c.Key == client.ObjectKeyFromObject(obj) && c.Group == inferencev1alpha1.GroupVersion.Group
	})
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
