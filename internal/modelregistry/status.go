// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Conditions of a ModelRegistry. Those after the proxy's are there only while they have something to tell.
const (
	conditionAvailable   = "Available"
	conditionProgressing = "Progressing"
	conditionProxy       = "KubeRBACProxyAvailable"
	conditionDegraded    = "Degraded"
	conditionIgnored     = "SettingsIgnored"
	conditionHeld        = "UpdatesHeld"
)

// Reasons that other programs know.
const (
	reasonAvailable            = "DeploymentAvailable"
	reasonUnavailable          = "DeploymentUnavailable"
	reasonCreating             = "CreatingDeployment"
	reasonUpdating             = "UpdatingDeployment"
	reasonCreated              = "CreatedDeployment"
	reasonResourcesAvailable   = "ResourcesAvailable"
	reasonResourcesUnavailable = "ResourcesUnavailable"
)

// status is what is said of a registry that was planned.
func (p *planner) status() *v1beta1.ModelRegistryStatus {
	s := p.newStatus()
	var said kube.Conditions
	reason, message := p.judge()
	if reason == "" {
		said.True(conditionAvailable, reasonAvailable, "Deployment is available.")
	} else {
		said.False(conditionAvailable, reason, message)
	}
	p.judgeProgress(&said, message)
	p.judgeProxy(&said, reason, message)
	p.tell(&said)
	s.Conditions = said.Standard()
	return s
}

// heldStatus is what is said when nothing could be planned.
func (p *planner) heldStatus(problem *engine.Problem) *v1beta1.ModelRegistryStatus {
	s := p.newStatus()
	var said kube.Conditions
	said.False(conditionAvailable, problem.Reason, problem.Message)
	said.False(conditionProgressing, problem.Reason, problem.Message)
	s.Conditions = said.Standard()
	return s
}

func (p *planner) newStatus() *v1beta1.ModelRegistryStatus {
	s := &v1beta1.ModelRegistryStatus{Hosts: p.hosts(), SpecDefaults: p.specDefaults()}
	s.HostsStr = strings.Join(s.Hosts, ",")
	return s
}

// hosts are the names of the registry, from far to near.
func (p *planner) hosts() []string {
	var out []string
	for _, host := range []string{p.gatewayPath(), p.routeHost()} {
		if host != "" {
			out = append(out, host)
		}
	}
	near := p.name() + "." + p.registry.Namespace
	return append(out, near+".svc.cluster.local", near, p.name())
}

// specDefaults is what the platform adds to the spec, as a merge patch.
func (p *planner) specDefaults() string {
	effective := p.spec.DeepCopy()
	effective.Rest.Image = p.image()
	if effective.Rest.Resources == nil {
		effective.Rest.Resources = platform.ServerResources()
	}
	if effective.KubeRBACProxy = p.proxy; p.proxy != nil {
		effective.OAuthProxy = nil
		effective.KubeRBACProxy = p.proxy.DeepCopy()
		effective.KubeRBACProxy.Image = p.proxyImage()
		effective.KubeRBACProxy.Domain = p.domain()
	}
	before, err := json.Marshal(p.spec)
	if err != nil {
		return ""
	}
	after, err := json.Marshal(effective)
	if err != nil {
		return ""
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return ""
	}
	return string(patch)
}

// judge says why the registry does not answer; nothing if it does. What answers may be older pods, as long as newer ones
// are not ready.
func (p *planner) judge() (reason, message string) {
	d := p.seen.Server.Live()
	switch _, why := p.degraded(); {
	case d == nil:
		return reasonUnavailable, sentence("Deployment is unavailable: it is being made.", why)
	case !kube.Answers(d):
		if finding, ok := p.cause(); why == "" && ok {
			why = p.words(finding)
		}
		return reasonUnavailable, sentence("Deployment is unavailable.", why)
	case p.seen.Endpoints == 0:
		return reasonUnavailable, "Service endpoints not ready: no pod takes requests through the Service yet."
	}
	if route := p.routeProblem(); route != "" {
		return reasonResourcesUnavailable, route
	}
	return "", ""
}

// judgeProgress says whether the newest pods have taken over.
func (p *planner) judgeProgress(said *kube.Conditions, message string) {
	d := p.seen.Server.Live()
	switch {
	case d == nil:
		said.True(conditionProgressing, reasonCreating, "Creating deployment.")
	case cause.Observed(d) && kube.RolledOut(d):
		said.False(conditionProgressing, reasonCreated, "Deployment was successfully created.")
	case !kube.Answers(d):
		said.True(conditionProgressing, reasonCreating, message)
	default:
		why := "The pods of before answer until the new ones are ready."
		if finding, ok := p.cause(); ok && finding.Reason != cause.Waiting {
			why = sentence(p.words(finding), why)
		}
		said.True(conditionProgressing, reasonUpdating, sentence("Updating deployment.", why))
	}
}

// judgeProxy says whether those who ask through the proxy are answered.
func (p *planner) judgeProxy(said *kube.Conditions, reason, message string) {
	switch {
	case p.proxy == nil:
	case reason != "":
		said.False(conditionProxy, reasonResourcesUnavailable, message)
	case p.routed() && p.routeHost() == "" && !p.seen.OpenShift && p.gatewayPath() == "":
		said.True(conditionProxy, reasonResourcesAvailable, "The proxy answers inside the cluster. Nothing leads to it from outside, because no domain is known; "+
			"set spec.kubeRBACProxy.domain for an Ingress.")
	default:
		said.True(conditionProxy, reasonResourcesAvailable, "The proxy answers.")
	}
}

// tell adds the conditions that are there only when they have something to say.
func (p *planner) tell(said *kube.Conditions) {
	if reason, message := p.degraded(); reason != "" {
		said.True(conditionDegraded, reason, message)
	}
	var without []string
	for _, i := range ignoredBy(p.registry, p.seen.OpenShift) {
		without = append(without, i.String())
	}
	if p.proxy == nil && p.spec.Rest.ServiceRoute == v1beta1.Enabled && p.domain() == "" {
		without = append(without, ignored{"spec.rest.serviceRoute", "the cluster has no Routes, and no domain is known for an Ingress"}.String())
	}
	if len(without) > 0 {
		said.True(conditionIgnored, "NoEffect", strings.Join(without, " "))
	}
	if p.held.On() || p.heldDatabase.On() {
		said.True(conditionHeld, "TakenOver", platform.HeldMessage)
	}
}

// routeProblem is why the router of OpenShift does not lead to the proxy; empty if it does.
func (p *planner) routeProblem() string {
	if !p.seen.OpenShift || !p.routed() {
		return ""
	}
	key := client.ObjectKey{Namespace: p.registry.Namespace, Name: p.name() + httpsSuffix}
	return platform.RouteProblem(key, p.seen.Routes[key.Name])
}

// cause is why the newest pods are not ready: those of a generated database come first.
func (p *planner) cause() (cause.Finding, bool) {
	if f, ok := p.causeOf(p.seen.Database, p.databaseName()); ok && p.database.generated {
		if f.Reason != cause.Waiting {
			f.Message = fmt.Sprintf("The generated database %s is not ready: %s", p.databaseName(), f.Message)
			return f, true
		}
		f.Message = fmt.Sprintf("Waiting until the generated database %s is ready.", p.databaseName())
		if mine, ok := p.causeOf(p.seen.Server, p.name()); ok && mine.Blocking && mine.Reason != cause.CrashLoopBackOff {
			return mine, true
		}
		return f, true
	}
	return p.causeOf(p.seen.Server, p.name())
}

func (p *planner) causeOf(w platform.Workload, name string) (cause.Finding, bool) {
	d := w.Live()
	if d == nil {
		return cause.Finding{}, false
	}
	return cause.Of(d, p.podsOf(name))
}

// podsOf are the pods of the server or of its database. Older operators did not give pods a name.
func (p *planner) podsOf(name string) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(p.seen.Pods), func(pod corev1.Pod) bool {
		has, named := pod.Labels[labelName]
		if named {
			return has != name
		}
		return name != p.name()
	})
}

// degraded is what somebody has to do something about, in the order in which it matters; empty if there is nothing.
func (p *planner) degraded() (reason, message string) {
	switch {
	case len(p.seen.Inputs.Missing) > 0:
		return "InputMissing", fmt.Sprintf("The registry needs what does not exist in namespace %s: %s. Create it, or correct the name in the spec.",
			p.registry.Namespace, strings.Join(p.seen.Inputs.Missing, "; "))
	case p.seen.Credentials.Broken:
		return "CredentialsUnusable", fmt.Sprintf("The Secret %s/%s has no %s and %s. Put them in, or delete it to get a new password.",
			p.registry.Namespace, p.name()+credentialsSuffix, keyUsername, keyPassword)
	case p.seen.TLS.Broken:
		return "CertificateUnusable", fmt.Sprintf("The Secret %s/%s has no certificate with its key in %s and %s. Correct it, or delete it to get one made.",
			p.registry.Namespace, p.name()+proxySuffix, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	if finding, ok := p.cause(); ok && finding.Blocking {
		return finding.Reason, p.words(finding)
	}
	if note := p.claimNote(); note != "" {
		return "StorageNotAsAsked", note
	}
	return "", ""
}

// words are a finding for a person. A server that ends or is not ready mostly has trouble with its database, so that is named.
func (p *planner) words(f cause.Finding) string {
	if f.Container != restContainer || f.Reason != cause.CrashLoopBackOff && f.Reason != cause.Unhealthy {
		return f.Message
	}
	return sentence(f.Message, fmt.Sprintf("Its database is %s.", p.database))
}

// sentence joins those that are not empty, each once.
func sentence(parts ...string) string {
	var out []string
	for _, part := range parts {
		if part != "" && !slices.Contains(out, part) && !strings.Contains(strings.Join(out, " "), part) {
			out = append(out, part)
		}
	}
	return strings.Join(out, " ")
}

// events are said when the registry is first looked at, in the words of those who watch for them.
func (p *planner) events() []engine.Event {
	if len(p.registry.Status.Conditions) > 0 || p.seen.Server.Live() != nil {
		return nil
	}
	return []engine.Event{{Reason: "ServiceCreated", Message: fmt.Sprintf("Created service for custom resource %s in namespace %s", p.name(), p.registry.Namespace)}}
}
