// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Conditions of a Catalog. Those after the first are there only while they have something to tell.
const (
	conditionAvailable = "Available"
	conditionIgnored   = "SettingsIgnored"
	conditionSources   = "SourcesIgnored"
	conditionHeld      = "UpdatesHeld"
	conditionKept      = "LeftoversKept"
)

// Reasons that other programs know.
const (
	reasonAvailable     = "DeploymentAvailable"
	reasonUnavailable   = "DeploymentUnavailable"
	reasonConfiguration = "ConfigurationError"
	reasonRoute         = "ResourcesUnavailable"
)

// status is what is said of a catalog that was planned.
func (p *planner) status() *v1alpha1.CatalogStatus {
	var said kube.Conditions
	if reason, message := p.judge(); reason == "" {
		said.True(conditionAvailable, reasonAvailable, "Deployment is available.")
	} else {
		said.False(conditionAvailable, reason, message)
	}
	if ignored := ignoredBy(p.catalog, p.seen.Settings); len(ignored) > 0 {
		said.True(conditionIgnored, "NoEffect", strings.Join(ignored, " "))
	}
	if len(p.seen.Unusable) > 0 {
		said.True(conditionSources, "SourceUnusable", fmt.Sprintf("ConfigMaps with the label %s are left out of the catalog: %s. Give them the key %s and a name that a volume can have.",
			labelSource, strings.Join(p.seen.Unusable, "; "), sourcesKey))
	}
	if p.held.On() || p.heldDatabase.On() {
		said.True(conditionHeld, "TakenOver", platform.HeldMessage)
	}
	if kept := p.kept(); kept != "" {
		said.True(conditionKept, "ChangedByPeople", fmt.Sprintf("The catalog does not need what an earlier operator left in namespace %s, but people have changed it: %s. "+
			"Save what you need of it, and delete it.", p.catalog.Namespace, kept))
	}
	return &v1alpha1.CatalogStatus{ObservedGeneration: p.catalog.Generation, Conditions: said.Standard()}
}

// heldStatus is what is said when nothing could be planned.
func (p *planner) heldStatus(problem *engine.Problem) *v1alpha1.CatalogStatus {
	var said kube.Conditions
	said.False(conditionAvailable, problem.Reason, problem.Message)
	return &v1alpha1.CatalogStatus{ObservedGeneration: p.catalog.Generation, Conditions: said.Standard()}
}

// judge says why the catalog does not answer; nothing if it does. What answers may be older pods, as long as newer ones are
// not ready.
func (p *planner) judge() (reason, message string) {
	d := p.seen.Server.Live()
	switch {
	case p.seen.TLS.Broken:
		return reasonConfiguration, fmt.Sprintf("The Secret %s/%s has no certificate with its key in %s and %s. Correct it, or delete it to get one made.",
			p.catalog.Namespace, tlsSecret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	case d == nil:
		return reasonUnavailable, "Deployment is unavailable: it is being made."
	case !kube.Answers(d):
		return p.whyNot()
	case p.seen.Endpoints == 0:
		return reasonUnavailable, "Service endpoints not ready: no pod takes requests through the Service yet."
	}
	if route := p.routeProblem(); route != "" {
		return reasonRoute, route
	}
	return "", ""
}

// routeProblem is why people do not reach the catalog from outside, where a router or a gateway is to lead to it; empty if they do.
func (p *planner) routeProblem() string {
	if p.seen.OpenShift {
		if why := platform.RouteProblem(client.ObjectKey{Namespace: p.catalog.Namespace, Name: routeName}, p.seen.Route); why != "" {
			return why
		}
	}
	if !p.seen.HasGateways {
		return ""
	}
	to := p.seen.Settings
	return platform.GatewayProblem(client.ObjectKey{Namespace: to.RouteNamespace, Name: name},
		client.ObjectKey{Namespace: to.GatewayNamespace, Name: to.GatewayName}, p.seen.Gateway)
}

// whyNot finds out why no pod answers: those of the database come first.
func (p *planner) whyNot() (reason, message string) {
	for _, one := range []struct {
		*appsv1.Deployment
		database bool
	}{{p.seen.Database.Live(), true}, {p.seen.Server.Live(), false}} {
		if one.Deployment == nil {
			continue
		}
		found, ok := cause.Of(one.Deployment, p.podsOf(one.database))
		if ok && found.Blocking {
			return reasonConfiguration, "Deployment is unavailable. " + found.Message
		}
		if ok && found.Reason != cause.Waiting {
			return reasonUnavailable, "Deployment is unavailable. " + found.Message
		}
	}
	return reasonUnavailable, "Deployment is unavailable: its pods are not ready yet."
}

// podsOf are the pods of the database or of the server. Another operator tells them apart by another label.
func (p *planner) podsOf(database bool) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(p.seen.Pods), func(pod corev1.Pod) bool {
		return database != (pod.Labels[labelComponent] == databaseName || pod.Labels[labelName] == databaseName)
	})
}

// ignoredBy are sentences about settings that nothing is made of.
func ignoredBy(c *v1alpha1.Catalog, s Settings) []string {
	if !s.own() {
		return nil
	}
	var out []string
	for path, set := range map[string]bool{
		"spec.database":           c.Spec.Database != nil,
		"spec.resources.postgres": c.Spec.Resources != nil && c.Spec.Resources.Postgres != nil,
	} {
		if set {
			out = append(out, path+" has no effect: the catalog of this platform needs no database.")
		}
	}
	slices.Sort(out)
	return out
}
