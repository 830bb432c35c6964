// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/modelplane/modelplane/internal/kube/cause"
)

var (
	podKind        = corev1.SchemeGroupVersion.WithKind("Pod")
	deploymentKind = schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}
	knativeKind    = schema.GroupKind{Group: "serving.knative.dev", Kind: "Service"}
)

// knativeLabel is on the pods of a Knative Service.
const knativeLabel = "serving.knative.dev/service"

// maxPods of one workload are shown, those that are not ready first.
const maxPods = 5

// workload is a child that has pods.
type workload struct {
	child      *unstructured.Unstructured
	deployment *appsv1.Deployment // nil for other kinds
	selector   labels.Selector
	pods       []corev1.Pod
	// finding is why it is not as wanted, nil if it is.
	finding *cause.Finding
}

// findWorkloads reads the pods of the children that have any.
func (x *exploration) findWorkloads(ctx context.Context) []*workload {
	var out []*workload
	for i := range x.children {
		w := newWorkload(&x.children[i])
		if w == nil {
			continue
		}
		for _, u := range x.list(ctx, podKind, query{namespace: w.child.GetNamespace(), labels: w.selector}) {
			p := corev1.Pod{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p) == nil {
				w.pods = append(w.pods, p)
			}
		}
		slices.SortFunc(w.pods, worseFirst)
		w.judge()
		out = append(out, w)
	}
	return out
}

// newWorkload knows how to find the pods of a child, nil if it has none.
func newWorkload(child *unstructured.Unstructured) *workload {
	w := &workload{child: child}
	switch child.GroupVersionKind().GroupKind() {
	case deploymentKind:
		w.deployment = &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(child.Object, w.deployment); err != nil {
			return nil
		}
		selector, err := metav1.LabelSelectorAsSelector(w.deployment.Spec.Selector)
		if err != nil {
			return nil
		}
		w.selector = selector
	case knativeKind:
		w.selector = labels.SelectorFromSet(labels.Set{knativeLabel: child.GetName()})
	default:
		return nil
	}
	return w
}

// judge finds the first cause why the workload is not as wanted. What is not a
// Deployment is judged by itself, so only pods that cannot start count.
func (w *workload) judge() {
	if w.deployment != nil {
		if f, ok := cause.Of(w.deployment, w.pods); ok {
			w.finding = &f
		}
		return
	}
	for i := range w.pods {
		if f, ok := cause.Pod(&w.pods[i]); ok && f.Blocking {
			w.finding = &f
			return
		}
	}
}

// down tells whether nothing answers, and waiting will not help.
func (w *workload) down() bool {
	if w.finding == nil || !w.finding.Blocking {
		return false
	}
	if w.deployment != nil {
		return w.deployment.Status.AvailableReplicas == 0
	}
	return !slices.ContainsFunc(w.pods, func(p corev1.Pod) bool { return podReady(&p) })
}

func (x *exploration) workloadOf(child *unstructured.Unstructured) *workload {
	for _, w := range x.workloads {
		if w.child.GetUID() == child.GetUID() && w.child.GetName() == child.GetName() && w.child.GetKind() == child.GetKind() {
			return w
		}
	}
	return nil
}

// addPods puts the pods beneath their workload.
func (x *exploration) addPods(n *Node, w *workload) {
	for i := range w.pods {
		if i < maxPods {
			n.Nodes = append(n.Nodes, x.podNode(&w.pods[i]))
			continue
		}
		n.More++
		if podReady(&w.pods[i]) {
			n.MoreReady++
		}
	}
}

func (x *exploration) podNode(p *corev1.Pod) Node {
	n := Node{Kind: "Pod", Name: p.Name, Namespace: x.elsewhere(p.Namespace)}
	ready, restarts := 0, int32(0)
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Ready {
			ready++
		}
		restarts = max(restarts, p.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range p.Status.InitContainerStatuses {
		restarts = max(restarts, p.Status.InitContainerStatuses[i].RestartCount)
	}
	phase := string(p.Status.Phase)
	if p.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	parts := []string{phase, fmt.Sprintf("%d of %d containers ready", ready, len(p.Spec.Containers))}
	if restarts > 0 {
		parts = append(parts, counted(int(restarts), "restart"))
	}
	if !p.CreationTimestamp.IsZero() {
		parts = append(parts, duration.HumanDuration(x.Now().Sub(p.CreationTimestamp.Time))+" old")
	}
	n.State = strings.Join(parts, ", ")
	if f, ok := cause.Pod(p); ok {
		n.Health, n.Reason = grade(f)
	} else if podReady(p) {
		n.Health = Well
	}
	return n
}

// grade says how bad a finding is. What a healthy start passes through has no
// reason worth showing.
func grade(f cause.Finding) (Health, string) {
	switch {
	case f.Blocking:
		return Failing, f.Reason
	case f.Reason == cause.Waiting:
		return Pending, ""
	}
	return Pending, f.Reason
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// worseFirst puts pods that are not ready before the others, so that they are
// among those that are shown.
func worseFirst(a, b corev1.Pod) int {
	weight := func(p *corev1.Pod) int {
		f, ok := cause.Pod(p)
		switch {
		case ok && f.Blocking:
			return 0
		case ok:
			return 1
		}
		return 2
	}
	if d := weight(&a) - weight(&b); d != 0 {
		return d
	}
	return strings.Compare(a.Name, b.Name)
}

// counted is a number with its word.
func counted(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
