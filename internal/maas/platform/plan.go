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
	"github.com/modelplane/modelplane/internal/maas/tenancy"
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
	// kuadrant says that Kuadrant is to enforce policies, and builtIn that the payload processor does.
	kuadrant, builtIn bool
	// by is what is told of who enforces, and look when there may be more to tell.
	by   *metav1.Condition
	look time.Duration
	// checking says that what is planned just now checks requests, and must not go with the Config: routes might be left.
	checking bool
	warnings []warning
	children []engine.Child
}

type warning struct{ reason, message string }

// Plan implements engine.Kind.
func (k Kind) Plan(obj *v1alpha1.MaasTenantConfig, seen Seen) engine.Plan {
	p := &planner{Platform: k.Platform, config: obj, seen: &seen}
	if seen.Tenant == "" {
		return engine.Plan{Problem: p.misplaced(), Status: &v1alpha1.MaasTenantConfigStatus{Phase: v1alpha1.TenantFailed}}
	}
	p.decideWho()
	p.by = p.told()
	if plan, decided := p.idle(); decided {
		return plan
	}
	if problem := p.problem(); problem != nil {
		return engine.Plan{KeepChildren: !p.orphaned() || len(seen.Routes) > 0, Problem: problem, Status: p.status(problem)}
	}
	p.decideBy()
	p.all()
	problem := cmp.Or(p.refusals(), p.unserved(), p.unwired(), p.unfinished(), p.switching(), p.moving())
	status := p.status(problem)
	plan := engine.Plan{Children: p.children, Problem: problem, Status: status, RequeueAfter: p.renewal()}
	if p.arrived() {
		plan.SetLabels = map[string]string{naming.LabelChecked: string(seen.Coming.Claim)}
	}
	return plan
}

// decideWho finds out who enforces policies.
func (p *planner) decideWho() {
	asked := p.config.Annotations[naming.AnnotationEnforcement]
	p.kuadrant = asked != string(tenancy.BuiltIn) && (asked == string(tenancy.Kuadrant) || len(p.seen.MissingKuadrant) == 0)
	p.builtIn = !p.kuadrant || !p.handedOver()
}

// orphaned tells whether there is no Config any more, or not for long.
func (p *planner) orphaned() bool {
	return p.seen.Config == nil || p.seen.Config.DeletionTimestamp != nil
}

// unchecked says which models could be reached without checks if what checks requests went; empty if none could.
func (p *planner) unchecked() string {
	if len(p.seen.Routes) == 0 {
		return ""
	}
	return fmt.Sprintf(" What checks requests stays while HTTPRoutes lead to models through Gateway %s: %s. Remove them, or take the Gateway out of them.", p.seen.RoutesAt, tenancy.Some(p.seen.Routes))
}

// misplaced is the problem of settings that are in no tenant's place.
func (p *planner) misplaced() *engine.Problem {
	return engine.MustChange("InvalidPlacement",
		"Namespace %s is not that of a tenant: settings count only where their AITenant has its namespace (%s for %s, %sNAME for another). Change them there, and delete this MaasTenantConfig.",
		p.config.Namespace, p.SubscriptionNamespace, naming.DefaultTenant, naming.TenantNamespacePrefix)
}

// renewal is when a certificate or a pass is to be replaced, or when there is something else to look for.
func (p *planner) renewal() time.Duration {
	at := p.seen.API.RenewAt
	if other := p.seen.Processor.RenewAt; other.Before(at) {
		at = other
	}
	if !at.IsZero() {
		p.lookIn(max(at.Sub(p.seen.Now), time.Second))
	}
	if next := p.nextPass(); next > 0 {
		p.lookIn(next)
	}
	return p.look
}

// idle is what is decided where the tenant is not to be managed.
func (p *planner) idle() (engine.Plan, bool) {
	switch state := p.config.Annotations[AnnotationManagement]; state {
	case "", "Managed":
		return engine.Plan{}, false
	case "Unmanaged":
		problem := engine.MustChange("ManagementStateIdle", "The annotation %s is Unmanaged: what runs for the tenant is left as it is. Set it to Managed to have it looked after.", AnnotationManagement)
		return engine.Plan{KeepChildren: true, Problem: problem, Status: p.status(problem)}, true
	case removed:
		if routes := p.unchecked(); routes != "" {
			problem := engine.WaitFor("WaitingForRemovedTeardown", "The annotation %s asks for the services of the tenant to be removed.%s", AnnotationManagement, routes)
			return engine.Plan{KeepChildren: true, Problem: problem, Status: p.status(problem)}, true
		}
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
	switch {
	case seen.Config == nil:
		return engine.WaitFor("ConfigMissing", "Config %s, which owns what runs for tenants, does not exist. Create it.%s", v1alpha1.ConfigName, p.unchecked())
	case seen.Config.DeletionTimestamp != nil:
		return engine.WaitFor("ConfigTerminating", "Config %s is being deleted. The services come back when there is a new one.%s", v1alpha1.ConfigName, p.unchecked())
	case seen.Lost && seen.Tenant != naming.DefaultTenant:
		return engine.WaitFor("InvalidGateway", "There is no AITenant %s in namespace %s, which would say through which gateway the tenant is reached. Create it, or delete this MaasTenantConfig.", seen.Tenant, p.TenantNamespace)
	case seen.Taken != "":
		return engine.MustChange("InvalidGateway", "Gateway %s belongs to the AITenant %s. Name another one in spec.gateway.name of the AITenant %s.", seen.Gateway.Key, seen.Taken, seen.Tenant)
	case !seen.HasRoutes:
		return engine.WaitFor("GatewayNotReady", "The cluster does not serve the Gateway API. Install it; nothing needs a restart.")
	case !seen.Gateway.Exists:
		return engine.WaitFor("GatewayNotReady", "Gateway %s does not exist. Create it.", seen.Gateway.Key)
	case !seen.DatabaseSecret:
		return engine.WaitFor("PrerequisitesNotMet", "Secret %s with the address of the database does not exist in namespace %s. Create it with the key %s.", databaseSecret, p.InfraNamespace, databaseKey)
	case !seen.Database:
		return engine.WaitFor("PrerequisitesNotMet", "Secret %s in namespace %s has no %s. Put the address of the database there.", databaseSecret, p.InfraNamespace, databaseKey)
	case p.Image == "":
		return engine.WaitFor("PlatformReconcileFailed", "The manager does not know its own image, of which the services are run. Set MODELPLANE_IMAGE for it.")
	}
	return nil
}

// unserved is the problem of a tenant that asks for Kuadrant where there is none. Requests are checked nevertheless.
func (p *planner) unserved() *engine.Problem {
	if !p.kuadrant || len(p.seen.MissingKuadrant) == 0 {
		return nil
	}
	return engine.WaitFor("DependenciesNotAvailable", "The tenant asks for Kuadrant, but the cluster does not serve %s (kuadrant.io): the payload processor checks requests until it does. Install Kuadrant, or take the annotation %s off.",
		strings.Join(p.seen.MissingKuadrant, " and "), naming.AnnotationEnforcement)
}

// all plans everything that a tenant has.
func (p *planner) all() {
	p.api()
	p.route()
	p.checking = true
	p.processors()
	p.wiring()
	p.checking = false
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

// add plans an object. It goes with the settings of the tenant and, unless it checks requests, with the Config, as tools know it.
func (p *planner) add(stage int, objects ...client.Object) {
	for _, o := range objects {
		c := engine.Child{Object: o, Stage: stage, Adopt: true}
		if _, pods := o.(*appsv1.Deployment); pods {
			c.Replace = true // of another controller, whose pods have other labels
		}
		if config := p.seen.Config; config != nil && config.UID != "" && !p.checking {
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

// Teardown implements engine.Teardown: subscriptions and policies go first, then the routes of models, and who enforces last.
func (k Kind) Teardown(obj *v1alpha1.MaasTenantConfig, seen Seen) engine.Ending {
	p := &planner{Platform: k.Platform, config: obj, seen: &seen}
	if seen.Tenant == "" { // nothing depends on these
		return engine.Ending{Finished: true}
	}
	p.decideWho()
	p.by = p.told()
	var children []engine.Child
	for _, o := range seen.Left {
		if o.GetDeletionTimestamp() == nil {
			children = append(children, engine.Child{Object: o, Delete: true})
		}
	}
	problem := engine.WaitFor("DeletionInProgress", "%d subscriptions and policies of the tenant are being removed before its services.", len(seen.Left))
	if len(seen.Left) == 0 {
		routes := p.unchecked()
		if routes == "" {
			return engine.Ending{Finished: true}
		}
		problem = engine.WaitFor("DeletionBlocked", "The services of the tenant are to be removed.%s", routes)
	}
	return engine.Ending{Plan: engine.Plan{KeepChildren: len(children) == 0, Children: p.kept(children), Problem: problem, Status: p.status(problem)}}
}

// kept are all children, as they are, and what is deleted besides.
func (p *planner) kept(more []engine.Child) []engine.Child {
	if len(more) > 0 && p.seen.Config != nil && p.seen.Gateway.Exists {
		p.all()
	}
	return append(p.children, more...)
}
