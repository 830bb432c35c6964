// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// keepDraining lets components that are no longer wanted, such as a predictor
// whose canary takes over, go on answering until no gateway sends them requests.
// We are woken by the gateway's answer.
func (p *planner) keepDraining(front *frontDoor) {
	routes := front.routes()
	for _, name := range p.draining() {
		if !ingress.StillLeads(routes, p.seen.Routes, p.seen.Door, name) {
			continue
		}
		p.leave(name)
	}
}

// leave lets the pods of a component, if there are any, go on as they are: nothing is decided about them.
func (p *planner) leave(name string, beside ...schema.GroupVersionKind) {
	pods := []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service")}
	for _, gvk := range append(pods, beside...) {
		p.leaveOne(gvk, name)
	}
	if p.seen.Led(name) {
		p.leaveOne(corev1.SchemeGroupVersion.WithKind("Service"), activation.PodsService(name))
		p.leaveActivators(name)
	}
}

// leaveActivators lets the replicas of the activator stay behind the Service of a component as they are.
func (p *planner) leaveActivators(name string) {
	for _, slice := range workload.ActivatorSlices(workload.Part{Name: name, Namespace: p.isvc.Namespace}, &corev1.Service{}, p.seen.Activators) {
		p.leaveOne(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), slice.Name)
	}
}

func (p *planner) leaveOne(gvk schema.GroupVersionKind, name string) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.isvc.Namespace}}
	object.SetGroupVersionKind(gvk)
	p.add(engine.Child{Object: object, Unmanaged: true})
}

// draining are the names of components that have pods and are not in the plan.
func (p *planner) draining() []string {
	names := map[string]bool{}
	for i := range p.seen.Pods {
		if name, ok := strings.CutPrefix(p.seen.Pods[i].Labels[v1beta1.LabelApp], "isvc."); ok {
			names[name] = true
		}
	}
	for _, c := range append(p.parts.List(), p.parts.Canaries...) {
		delete(names, c.Name)
		delete(names, c.Name+"-worker")
	}
	return slices.Sorted(maps.Keys(names))
}
