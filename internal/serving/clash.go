// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/ingress"
)

// clashIndex finds the services that may want the address of another.
func clashIndex(obj client.Object) []string {
	return ingress.ClashIndex(obj.GetName(), obj.GetNamespace())
}

// outline is a service as far as its addresses go.
func outline(isvc *v1beta1.InferenceService) ingress.Service {
	s := ingress.Service{Name: isvc.Name, Namespace: isvc.Namespace, Labels: isvc.Labels, Annotations: isvc.Annotations,
		PredictorHostName: isvc.Name + "-predictor"}
	if isvc.Spec.Transformer != nil {
		s.Transformer = &ingress.Backend{}
	}
	if isvc.Spec.Explainer != nil {
		s.Explainer = &ingress.Backend{}
	}
	return s
}

// claims are the addresses that a service takes requests at, where these are ours to give. A stopped service keeps
// its own, so that it can be started again.
func claims(isvc *v1beta1.InferenceService, cfg *config.Config) []string {
	if modeOf(isvc, cfg) != config.ModeStandard {
		return nil
	}
	out, err := ingress.Claims(outline(isvc), cfg)
	if err != nil {
		return nil
	}
	return out
}

// readRivals reads the services that want an address of this one, in whatever namespace.
func (o *observer) readRivals(ctx context.Context) error {
	mine := claims(o.isvc, o.seen.Config)
	if len(mine) == 0 {
		return nil
	}
	others := engine.Matching(func(obj client.Object) bool {
		return obj.GetNamespace() != o.isvc.Namespace || obj.GetName() != o.isvc.Name
	})
	queries := [][]client.ListOption{{others}}
	if values, ok := ingress.ClashQueries(outline(o.isvc), o.seen.Config); ok {
		queries = nil
		for _, value := range values {
			queries = append(queries, []client.ListOption{engine.Indexed(value), others})
		}
	}
	for _, query := range queries {
		list := &v1beta1.InferenceServiceList{}
		if err := o.List(ctx, list, query...); err != nil {
			return err
		}
		for i := range list.Items {
			rival := &list.Items[i]
			if others(rival) && shared(mine, claims(rival, o.seen.Config)) != "" {
				o.seen.Rivals = append(o.seen.Rivals, *rival)
			}
		}
	}
	return nil
}

// shared is an address that is in both lists, or nothing.
func shared(a, b []string) string {
	if i := slices.IndexFunc(a, func(address string) bool { return slices.Contains(b, address) }); i >= 0 {
		return a[i]
	}
	return ""
}

// taken says that an address of the service belongs to another one: to who has it already, or else to who was there
// first. What is in other namespaces is not told.
func (p *planner) taken() *engine.Problem {
	mine := claims(p.isvc, p.cfg)
	for i := range p.seen.Rivals {
		rival := &p.seen.Rivals[i]
		address := shared(mine, claims(rival, p.cfg))
		if address == "" || !before(rival, p.isvc, p.cfg) {
			continue
		}
		whose := "a service in another namespace"
		if rival.Namespace == p.isvc.Namespace {
			whose = "InferenceService " + rival.Name
		}
		return engine.WaitFor("HostTaken", "%s is the address of %s, so that nothing leads to this one from outside. Give this service "+
			"another name, or change ingress.domainTemplate (a dot between name and namespace keeps them apart); it gets the address when it is free.",
			address, whose)
	}
	return nil
}

// before tells which of two services with one address has it.
func before(a, b *v1beta1.InferenceService, cfg *config.Config) bool {
	if x, y := holds(a, cfg), holds(b, cfg); x != y {
		return x
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(fmt.Sprint(a.Namespace, "/", a.Name), fmt.Sprint(b.Namespace, "/", b.Name)) < 0
}

// holds tells whether a service is reached under its addresses now. Nobody can take them from it by a label or
// annotation that the template uses.
func holds(isvc *v1beta1.InferenceService, cfg *config.Config) bool {
	if isvc.Status.URL == nil {
		return false
	}
	u, err := url.Parse(*isvc.Status.URL)
	return err == nil && slices.Contains(claims(isvc, cfg), u.Host)
}
