// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/resolve"
)

// taken is the name of something that is made of a service or a graph. What has pods has a Service, too, so that two kinds
// are enough to find every clash.
type taken struct{ kind, name string }

const (
	aService = "a Service"
	aRoute   = "an HTTPRoute"
)

// claim is such a name, the field that it comes from, and who needs it.
type claim struct {
	taken
	at    *field.Path
	whose string
}

var ownName = field.NewPath("metadata", "name")

// claims are the names that the children of a service take, in its mode and with the present configuration.
func claims(isvc *v1beta1.InferenceService, mode string, cfg *config.Config) []claim {
	whose := "InferenceService " + isvc.Name
	var out []claim
	for _, p := range partsOf(isvc) {
		c := claim{taken{aService, isvc.Name + "-" + string(p.of)}, ownName, whose}
		if p.predictor != nil {
			if mode == config.ModeModelMesh {
				continue // has no child
			}
			c.name = resolve.PredictorName(isvc, p.predictor.Name)
			if p.predictor.Name != "" {
				c.at = p.path.Child("name")
			}
			if p.canary {
				c.whose += " (canary " + p.predictor.Name + ")"
			}
		}
		out = append(out, c)
	}
	if mode != config.ModeStandard {
		return out
	}
	for _, name := range ingress.RouteNames(ingress.Outline(isvc), cfg) {
		out = append(out, claim{taken{aRoute, name}, ownName, whose})
	}
	return out
}

// graphClaims are those of a graph: its router goes by the graph's own name.
func graphClaims(g *v1alpha1.InferenceGraph) []claim {
	return []claim{{taken{aService, g.Name}, ownName, "InferenceGraph " + g.Name}}
}

// clashes refuses names that children of others in the namespace have. Those that the object had before are not looked at:
// whoever came second is told by its conditions.
func clashes(ctx context.Context, obj client.Object, now, before []claim, cfg *config.Config) field.ErrorList {
	fresh := slices.DeleteFunc(slices.Clone(now), func(c claim) bool {
		return slices.ContainsFunc(before, func(had claim) bool { return had.taken == c.taken })
	})
	if obj.GetName() == "" || len(fresh) == 0 {
		return nil
	}
	others := claimsOfOthers(ctx, obj, fresh, cfg)
	var errs field.ErrorList
	told := map[string]bool{}
	for _, c := range fresh {
		i := slices.IndexFunc(others, func(o claim) bool { return o.taken == c.taken })
		if i < 0 || told[c.at.String()] {
			continue
		}
		told[c.at.String()] = true
		value := obj.GetName()
		if c.at != ownName {
			value = strings.TrimSuffix(strings.TrimPrefix(c.name, value+"-"), "-predictor")
		}
		errs = append(errs, field.Invalid(c.at, value, fmt.Sprintf("would need %s called %s, which %s has already; choose another name",
			c.kind, c.name, others[i].whose)))
	}
	return errs
}

// claimsOfOthers are those of the others whose names one of the wanted ones begins with, which alone can clash. They
// are not copied out of the cache, and must not be changed. Where they cannot be read nobody is in the way: what is missed
// here is told in a condition.
func claimsOfOthers(ctx context.Context, obj client.Object, wanted []claim, cfg *config.Config) []claim {
	reader := admission.ReaderFrom(ctx)
	if reader == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // a cache that is filled takes none of it
	defer cancel()
	in := []client.ListOption{client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy}
	concerned := func(other client.Object) bool {
		return other.GetDeletionTimestamp() == nil &&
			slices.ContainsFunc(wanted, func(c claim) bool { return strings.HasPrefix(c.name, other.GetName()) })
	}
	var out []claim
	var services v1beta1.InferenceServiceList
	if reader.List(ctx, &services, in...) == nil {
		_, same := obj.(*v1beta1.InferenceService)
		for i := range services.Items {
			if isvc := &services.Items[i]; concerned(isvc) && (!same || isvc.Name != obj.GetName()) {
				out = append(out, claims(isvc, modeOf(isvc, translated(isvc.Status.DeploymentMode), cfg), cfg)...)
			}
		}
	}
	var graphs v1alpha1.InferenceGraphList
	if reader.List(ctx, &graphs, in...) == nil {
		_, same := obj.(*v1alpha1.InferenceGraph)
		for i := range graphs.Items {
			if g := &graphs.Items[i]; concerned(g) && (!same || g.Name != obj.GetName()) {
				out = append(out, graphClaims(g)...)
			}
		}
	}
	slices.SortFunc(out, func(a, b claim) int { return strings.Compare(a.whose, b.whose) })
	return out
}
