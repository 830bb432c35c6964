// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// Base names of what a tenant has.
const (
	apiName          = "maas-api"
	processorName    = "payload-processing"
	preProcessorName = "payload-pre-processing"
	pluginsName      = "payload-processing-plugins"
)

// Ports of the services.
const (
	apiPort, internalPort, apiMetricsPort = 8443, 8444, 9090
	processorPort, processorMetricsPort   = 9004, 9005
	processorHealthPort                   = 9006
)

// planner decides about one tenant.
type planner struct {
	*Platform
	config *v1alpha1.MaasTenantConfig
	seen   *Seen
	// builtIn says that the payload processor enforces policies, and not Kuadrant.
	builtIn  bool
	warnings []warning
	children []engine.Child
}

type warning struct{ reason, message string }

// Plan implements engine.Kind.
func (k Kind) Plan(obj *v1alpha1.MaasTenantConfig, seen Seen) engine.Plan {
	p := &planner{Platform: k.Platform, config: obj, seen: &seen}
	asked := obj.Annotations[naming.AnnotationEnforcement]
	p.builtIn = asked == "built-in" || asked != "kuadrant" && len(seen.MissingKuadrant) > 0
	if plan, decided := p.idle(); decided {
		return plan
	}
	if problem := p.problem(); problem != nil {
		return engine.Plan{KeepChildren: true, Problem: problem, Status: p.status(problem)}
	}
	p.all()
	problem := cmp.Or(p.unwired(), p.unfinished())
	return engine.Plan{Children: p.children, Problem: problem, Status: p.status(problem), RequeueAfter: p.renewal()}
}

// renewal is when a certificate is to be replaced.
func (p *planner) renewal() time.Duration {
	at := p.seen.API.RenewAt
	if other := p.seen.Processor.RenewAt; other.Before(at) {
		at = other
	}
	if at.IsZero() {
		return 0
	}
	return max(at.Sub(p.seen.Now), time.Second)
}

// idle is what is decided where the tenant is not to be managed.
func (p *planner) idle() (engine.Plan, bool) {
	switch state := p.config.Annotations[AnnotationManagement]; state {
	case "", "Managed":
		return engine.Plan{}, false
	case "Unmanaged":
		problem := engine.MustChange("ManagementStateIdle", "The annotation %s is Unmanaged: what runs for the tenant is left as it is. Set it to Managed to have it looked after.", AnnotationManagement)
		return engine.Plan{KeepChildren: true, Problem: problem, Status: p.status(problem)}, true
	case "Removed":
		problem := engine.MustChange("ManagementStateIdle", "The annotation %s is Removed: nothing runs for the tenant. Set it to Managed to have its services again.", AnnotationManagement)
		if len(p.seen.Deployments) > 0 {
			problem = engine.WaitFor("WaitingForRemovedTeardown", "The services of the tenant are being removed, as the annotation %s asks.", AnnotationManagement)
		}
		return engine.Plan{Problem: problem, Status: p.status(problem)}, true
	default:
		problem := engine.MustChange("UnexpectedManagementState", "The annotation %s is %q. Set it to Managed, Unmanaged or Removed.", AnnotationManagement, state)
		return engine.Plan{KeepChildren: true, Problem: problem, Status: p.status(problem)}, true
	}
}

// problem is what keeps anything from being decided.
func (p *planner) problem() *engine.Problem {
	seen := p.seen
	switch asked := p.config.Annotations[naming.AnnotationEnforcement]; {
	case seen.Config == nil:
		return engine.WaitFor("ConfigMissing", "Config %s, which owns what runs for tenants, does not exist. Create it.", v1alpha1.ConfigName)
	case seen.Config.DeletionTimestamp != nil:
		return engine.WaitFor("ConfigTerminating", "Config %s is being deleted. The services come back when there is a new one.", v1alpha1.ConfigName)
	case seen.Lost && seen.Tenant != naming.DefaultTenant:
		return engine.WaitFor("InvalidGateway", "There is no AITenant %s in namespace %s, which would say through which gateway the tenant is reached. Create it, or delete this MaasTenantConfig.", seen.Tenant, p.TenantNamespace)
	case !seen.HasRoutes:
		return engine.WaitFor("GatewayNotReady", "The cluster does not serve the Gateway API. Install it; nothing needs a restart.")
	case !seen.Gateway.Exists:
		return engine.WaitFor("GatewayNotReady", "Gateway %s does not exist. Create it.", seen.Gateway.Key)
	case asked == "kuadrant" && len(seen.MissingKuadrant) > 0:
		return engine.WaitFor("DependenciesNotAvailable", "The tenant asks for Kuadrant, but the cluster does not serve %s (kuadrant.io). Install Kuadrant, or take the annotation %s off.",
			strings.Join(seen.MissingKuadrant, " and "), naming.AnnotationEnforcement)
	case !seen.DatabaseSecret:
		return engine.WaitFor("PrerequisitesNotMet", "Secret %s with the address of the database does not exist in namespace %s. Create it with the key %s.", databaseSecret, p.InfraNamespace, databaseKey)
	case !seen.Database:
		return engine.WaitFor("PrerequisitesNotMet", "Secret %s in namespace %s has no %s. Put the address of the database there.", databaseSecret, p.InfraNamespace, databaseKey)
	case p.Image == "":
		return engine.WaitFor("PlatformReconcileFailed", "The manager does not know its own image, of which the services are run. Set MODELPLANE_IMAGE for it.")
	}
	return nil
}

// all plans everything that a tenant has.
func (p *planner) all() {
	p.api()
	p.route()
	p.processors()
	p.wiring()
	p.monitoring()
}

// name of an object of the tenant.
func (p *planner) name(base string) string { return naming.OfTenant(base, p.seen.Tenant) }

// labels of what belongs to a service, and the ones that its pods are found by.
func (p *planner) labels(app string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": app, naming.LabelPartOf: "models-as-a-service", naming.LabelManagedBy: naming.ManagedBy,
		"app.opendatahub.io/modelsasservice": "true", naming.LabelTenantName: p.seen.Tenant,
	}
}

func (p *planner) selector(app string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": app, naming.LabelTenantInstance: p.seen.Tenant}
}

func (p *planner) infra(app, base string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.InfraNamespace, Name: p.name(base), Labels: p.labels(app)}
}

func (p *planner) edge(app, base string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.GatewayNamespace, Name: p.name(base), Labels: p.labels(app)}
}

// add plans an object. It goes with the Config, as tools know it, and with the settings of the tenant.
func (p *planner) add(stage int, objects ...client.Object) {
	for _, o := range objects {
		c := engine.Child{Object: o, Stage: stage, Adopt: true}
		if _, pods := o.(*appsv1.Deployment); pods {
			c.Replace = true // of another controller, whose pods have other labels
		}
		if config := p.seen.Config; config != nil && config.UID != "" {
			c.Owner = &metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Config", Name: config.Name, UID: config.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
		}
		p.children = append(p.children, c)
	}
}

// replicas reads a number from an annotation; what is no number is told and not used.
func (p *planner) replicas(annotation string, otherwise int32) int32 {
	const most = 100
	text, given := p.config.Annotations[annotation]
	if !given {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > most {
		p.warnings = append(p.warnings, warning{reason: "InvalidReplicaAnnotation",
			message: fmt.Sprintf("The annotation %s is no number from 1 to %d, and is not used. Correct it, or take it off.", annotation, most)})
		return otherwise
	}
	return int32(n)
}

// Teardown implements engine.Teardown: subscriptions and policies go while those who enforce them still run.
func (k Kind) Teardown(obj *v1alpha1.MaasTenantConfig, seen Seen) engine.Ending {
	if len(seen.Left) == 0 {
		return engine.Ending{Finished: true}
	}
	p := &planner{Platform: k.Platform, config: obj, seen: &seen}
	var children []engine.Child
	for _, o := range seen.Left {
		if o.GetDeletionTimestamp() == nil {
			children = append(children, engine.Child{Object: o, Delete: true})
		}
	}
	problem := engine.WaitFor("DeletionInProgress", "%d subscriptions and policies of the tenant are being removed before its services.", len(seen.Left))
	return engine.Ending{Plan: engine.Plan{KeepChildren: len(children) == 0, Children: p.kept(children), Problem: problem, Status: p.status(problem)}}
}

// kept are all children, as they are, and what is deleted besides.
func (p *planner) kept(more []engine.Child) []engine.Child {
	p.builtIn = len(p.seen.MissingKuadrant) > 0
	if p.seen.Config != nil && p.seen.Gateway.Exists {
		p.all()
	}
	return append(p.children, more...)
}
