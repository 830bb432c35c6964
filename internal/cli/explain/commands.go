// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/kube/cause"
)

// maxCommands are suggested.
const maxCommands = 6

// commands are what to type next, the most telling first.
func (v *verdict) commands() []string {
	if v.Report.Ready {
		return nil
	}
	var out []string
	blamed := v.blamed()
	if blamed != nil {
		out = append(out, v.aboutPods(blamed)...)
	}
	for _, c := range v.kind.about.Commands[v.Cause.Reason] {
		out = append(out, v.Kubectl+" "+strings.NewReplacer("NAMESPACE", v.obj.GetNamespace(), "NAME", v.obj.GetName()).Replace(c))
	}
	out = append(out, v.aboutRoutes()...)
	out = append(out, v.aboutUses()...)
	if blamed == nil && v.live != nil {
		out = append(out, v.aboutPods(v.live)...)
	}
	if v.Cause.Reason == reasonNotLookedAt || v.Cause.Reason == reasonBehind {
		out = append(out, v.Kubectl+" get deployments -A -l app.kubernetes.io/part-of=modelplane")
	}
	out = append(out, v.aboutStart()...)
	if len(out) == 0 {
		out = append(out, v.kubectl(v.obj.GetNamespace(), "describe", v.kind.short(), v.obj.GetName()))
	}
	seen := map[string]bool{}
	out = slices.DeleteFunc(out, func(c string) bool {
		again := seen[c]
		seen[c] = true
		return again
	})
	return out[:min(len(out), maxCommands)]
}

// kubectl is a command on objects of a namespace.
func (v *verdict) kubectl(namespace string, words ...string) string {
	begin := v.Kubectl
	if namespace != "" {
		begin += " -n " + namespace
	}
	return begin + " " + strings.Join(words, " ")
}

// blamed is the workload where the cause was found, nil if it is not about one.
func (v *verdict) blamed() *workload {
	for _, w := range v.workloads {
		if w.finding != nil && w.finding.Reason == v.Cause.Reason && strings.HasSuffix(v.Cause.Message, w.finding.Message) {
			return w
		}
	}
	return nil
}

// aboutPods depends on what happened: a container that ran has a log, one that
// did not has events.
func (v *verdict) aboutPods(w *workload) []string {
	f, ns := w.finding, w.child.GetNamespace()
	var out []string
	switch f.Reason {
	case cause.CrashLoopBackOff, cause.OOMKilled, cause.InitContainerFailed, cause.InitContainerRunning, cause.Unhealthy, cause.RunContainerError:
		if f.Pod != "" {
			out = append(out, v.kubectl(ns, w.logs()...))
		}
	case cause.QuotaExceeded:
		out = append(out, v.kubectl(ns, "describe", "resourcequotas"))
	case cause.DeploymentPaused:
		out = append(out, v.kubectl(ns, "rollout", "resume", "deployment/"+w.child.GetName()))
	case cause.Unschedulable:
		if f.Volumes {
			return []string{v.kubectl(ns, "describe", "pod", f.Pod), v.kubectl(ns, "get", "persistentvolumeclaims")}
		}
		return []string{v.kubectl(ns, "describe", "pod", f.Pod), v.Kubectl + " describe nodes"}
	case cause.NodeLost:
		out = append(out, v.Kubectl+" get nodes")
	}
	switch {
	case f.Pod != "":
		out = append(out, v.kubectl(ns, "describe", "pod", f.Pod))
	case w.deployment != nil && f.Reason != cause.DeploymentPaused:
		out = append(out, v.kubectl(ns, "describe", "replicasets", "-l", "'"+w.selector.String()+"'"))
	}
	return out
}

// aboutStart watches pods that are on their way.
func (v *verdict) aboutStart() []string {
	if v.Cause.Status != string(metav1.ConditionUnknown) {
		return nil
	}
	for _, w := range v.workloads {
		if w.finding != nil && w.finding.Reason == cause.Waiting {
			return []string{v.kubectl(w.child.GetNamespace(), "get", "pods", "-l", "'"+w.selector.String()+"'", "--watch")}
		}
	}
	return nil
}

// logs are the words of the command that shows the last words of a container:
// those of the run before, where it has been started again since.
func (w *workload) logs() []string {
	f := w.finding
	words := []string{"logs", f.Pod, "-c", f.Container}
	i := slices.IndexFunc(w.pods, func(p corev1.Pod) bool { return p.Name == f.Pod })
	if i < 0 {
		return words
	}
	for _, s := range slices.Concat(w.pods[i].Status.InitContainerStatuses, w.pods[i].Status.ContainerStatuses) {
		if s.Name == f.Container && s.State.Terminated == nil && s.LastTerminationState.Terminated != nil {
			return append(words, "--previous")
		}
	}
	return words
}

// aboutRoutes leads to the routes and gateways that the cause speaks of.
func (v *verdict) aboutRoutes() []string {
	var out []string
	for i := range v.children {
		u := &v.children[i]
		if u.GetKind() != "HTTPRoute" {
			continue
		}
		r := as[gatewayv1.HTTPRoute](u)
		if r == nil {
			continue
		}
		if _, health, _ := routeState(r); health == Well {
			continue
		}
		for _, ref := range r.Spec.ParentRefs {
			if who := gatewayName(r, ref); strings.Contains(v.Cause.Message, who) {
				namespace, _, _ := strings.Cut(who, "/")
				out = append(out, v.kubectl(u.GetNamespace(), "describe", "httproute", u.GetName()),
					v.kubectl(namespace, "describe", "gateway", string(ref.Name)))
			}
		}
	}
	return out
}

// aboutUses leads to what the object needs and does not find well.
func (v *verdict) aboutUses() []string {
	var out []string
	for _, n := range v.exploration.uses {
		namespace := n.Namespace
		if namespace == "" {
			namespace = v.obj.GetNamespace()
		}
		switch {
		case n.Reason == "NotFound":
			out = append(out, v.kubectl(namespace, "get", strings.ToLower(n.Kind)+"s"))
		case n.Health == Failing || n.Health == Pending:
			out = append(out, v.Self+" "+strings.ToLower(n.Kind)+"/"+n.Name+" -n "+namespace)
		}
	}
	return out
}
