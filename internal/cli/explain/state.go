// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

var sliceKind = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")

// endpoints counts what stands behind a Service, by namespace and name.
type endpoints map[string]struct{ ready, all int }

// findEndpoints asks once for all Services of the object.
func (x *exploration) findEndpoints(ctx context.Context) endpoints {
	byNamespace := map[string][]string{}
	for i := range x.children {
		if gvk := x.children[i].GroupVersionKind(); gvk.Group == "" && gvk.Kind == "Service" {
			byNamespace[x.children[i].GetNamespace()] = append(byNamespace[x.children[i].GetNamespace()], x.children[i].GetName())
		}
	}
	out := endpoints{}
	for namespace, names := range byNamespace {
		of, err := labels.NewRequirement(discoveryv1.LabelServiceName, selection.In, names)
		if err != nil {
			continue // no name of a Service is refused
		}
		for _, u := range x.list(ctx, sliceKind, query{namespace: namespace, labels: labels.NewSelector().Add(*of)}) {
			out.add(&u)
		}
	}
	return out
}

func (e endpoints) add(u *unstructured.Unstructured) {
	s := &discoveryv1.EndpointSlice{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s) != nil {
		return
	}
	key := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
	sum := e[key]
	for i := range s.Endpoints {
		sum.all++
		if ptr.Deref(s.Endpoints[i].Conditions.Ready, true) {
			sum.ready++
		}
	}
	e[key] = sum
}

// nodeOf is the line of a child.
func (x *exploration) nodeOf(u *unstructured.Unstructured, behind endpoints) Node {
	n := Node{Kind: kindName(u), Name: u.GetName(), Namespace: x.elsewhere(u.GetNamespace())}
	n.State, n.Health, n.Reason = x.stateOf(u, behind)
	n.State = clip(n.State, 80)
	if u.GetDeletionTimestamp() != nil {
		n.State, n.Health = "being deleted", Pending
	}
	if w := x.workloadOf(u); w != nil {
		x.addPods(&n, w)
	}
	return n
}

// kindName tells Services of others from those of Kubernetes.
func kindName(u *unstructured.Unstructured) string {
	if gk := u.GroupVersionKind().GroupKind(); gk.Kind == "Service" {
		return gk.String()
	}
	return u.GetKind()
}

// stateOf says how a child is. Kinds that are not known here are taken at the
// word of their conditions.
func (x *exploration) stateOf(u *unstructured.Unstructured, behind endpoints) (state string, health Health, reason string) {
	gvk := u.GroupVersionKind()
	if private(gvk) {
		return "", "", ""
	}
	switch gvk.Group + "/" + gvk.Kind {
	case "apps/Deployment":
		if w := x.workloadOf(u); w != nil {
			return deploymentState(w)
		}
	case "/Service":
		if s := as[corev1.Service](u); s != nil {
			return x.serviceState(s, behind)
		}
	case "autoscaling/HorizontalPodAutoscaler":
		if h := as[autoscalingv2.HorizontalPodAutoscaler](u); h != nil {
			return hpaState(h)
		}
	case "networking.k8s.io/Ingress":
		if i := as[networkingv1.Ingress](u); i != nil {
			return ingressState(i)
		}
	case "gateway.networking.k8s.io/HTTPRoute":
		if r := as[gatewayv1.HTTPRoute](u); r != nil {
			return routeState(r)
		}
	}
	return conditionState(u)
}

// as reads an object into its type, nil if it does not fit.
func as[T any](u *unstructured.Unstructured) *T {
	out := new(T)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out) != nil {
		return nil
	}
	return out
}

func deploymentState(w *workload) (state string, health Health, reason string) {
	d := w.deployment
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	if wanted == 0 {
		return "scaled to 0", "", ""
	}
	state = fmt.Sprintf("%d of %d pods ready", d.Status.ReadyReplicas, wanted)
	if d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas < wanted && d.Status.Replicas > 0 {
		state += fmt.Sprintf(", %d of them new", d.Status.UpdatedReplicas)
	}
	if w.finding == nil {
		return state, Well, ""
	}
	health, reason = grade(*w.finding)
	if health == Failing && d.Status.AvailableReplicas > 0 {
		health = Pending // others still answer
	}
	return state, health, reason
}

func (x *exploration) serviceState(s *corev1.Service, behind endpoints) (state string, health Health, reason string) {
	sum := behind[s.Namespace+"/"+s.Name]
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return "leads to " + s.Spec.ExternalName, "", ""
	case !x.readAll(sliceKind):
		return "endpoints not read", "", ""
	case sum.ready > 0:
		return counted(sum.ready, "endpoint") + " ready", Well, ""
	case sum.all > 0:
		return fmt.Sprintf("0 of %d endpoints ready", sum.all), Pending, ""
	}
	return "no endpoints", Pending, ""
}

// hpaState is never failing: pods answer also when nobody counts them.
func hpaState(h *autoscalingv2.HorizontalPodAutoscaler) (state string, health Health, reason string) {
	if len(h.Status.Conditions) == 0 {
		return fmt.Sprintf("not at work yet, between %d and %d", ptr.Deref(h.Spec.MinReplicas, 1), h.Spec.MaxReplicas), "", ""
	}
	state = fmt.Sprintf("%s, wants %d, between %d and %d", counted(int(h.Status.CurrentReplicas), "pod"),
		h.Status.DesiredReplicas, ptr.Deref(h.Spec.MinReplicas, 1), h.Spec.MaxReplicas)
	for _, c := range h.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Type != autoscalingv2.ScalingLimited && c.Reason != "ScalingDisabled" {
			return state, Pending, c.Reason
		}
	}
	return state, Well, ""
}

// ingressState has no health: whether an Ingress gets an address depends on who
// serves it.
func ingressState(i *networkingv1.Ingress) (state string, health Health, reason string) {
	var hosts, addresses []string
	for _, r := range i.Spec.Rules {
		if r.Host != "" && !slices.Contains(hosts, r.Host) {
			hosts = append(hosts, r.Host)
		}
	}
	for _, a := range i.Status.LoadBalancer.Ingress {
		addresses = append(addresses, a.IP+a.Hostname)
	}
	state = "for " + abridge(hosts)
	if len(addresses) == 0 {
		return state + ", no address", "", ""
	}
	return state + ", at " + abridge(addresses), Well, ""
}

// abridge names the first and counts the others.
func abridge(names []string) string {
	switch len(names) {
	case 0:
		return "any host"
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// routeState is the worst of what the gateways say.
func routeState(r *gatewayv1.HTTPRoute) (state string, health Health, reason string) {
	var took []string
	for _, ref := range r.Spec.ParentRefs {
		who := gatewayName(r, ref)
		verdict, why := answerOf(r, ref)
		switch verdict {
		case Failing:
			return "refused by gateway " + who, Failing, why
		case Pending:
			return "gateway " + who + " has not answered", Pending, ""
		}
		took = append(took, who)
	}
	if len(took) == 0 {
		return "no gateway named", Failing, "NoParents"
	}
	return "accepted by gateway " + strings.Join(took, ", "), Well, ""
}

func gatewayName(r *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) string {
	return string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.Namespace))) + "/" + string(ref.Name)
}

// answerOf is what a gateway says of the route as it is now.
func answerOf(r *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) (Health, string) {
	verdict := Pending
	for _, p := range r.Status.Parents {
		if gatewayName(r, p.ParentRef) != gatewayName(r, ref) || ptr.Deref(p.ParentRef.SectionName, "") != ptr.Deref(ref.SectionName, "") {
			continue
		}
		for _, c := range p.Conditions {
			if c.ObservedGeneration != 0 && c.ObservedGeneration < r.Generation {
				continue
			}
			switch {
			case c.Status == metav1.ConditionFalse && (c.Type == string(gatewayv1.RouteConditionAccepted) || c.Type == string(gatewayv1.RouteConditionResolvedRefs)):
				return Failing, c.Reason
			case c.Status == metav1.ConditionTrue && c.Type == string(gatewayv1.RouteConditionAccepted):
				verdict = Well
			}
		}
	}
	return verdict, ""
}
