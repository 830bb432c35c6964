// SPDX-License-Identifier: Apache-2.0

package graphs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is a cluster with graphs.
type bench struct{ *servingtest.Bench }

// graph leads to services one after the other.
func (b bench) graph(name string, services ...string) *v1alpha1.InferenceGraph {
	g := &v1alpha1.InferenceGraph{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	root := v1alpha1.InferenceRouter{RouterType: v1alpha1.Sequence}
	for _, s := range services {
		root.Steps = append(root.Steps, v1alpha1.InferenceStep{InferenceTarget: v1alpha1.InferenceTarget{ServiceName: s}})
	}
	g.Spec.Nodes = map[string]v1alpha1.InferenceRouter{v1alpha1.GraphRootNodeName: root}
	return g
}

// said is nil when a graph's Ready has a status and reason, for its present
// generation.
func (b bench) said(name string, status corev1.ConditionStatus, reason string) error {
	g := &v1alpha1.InferenceGraph{}
	if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, g); err != nil {
		return err
	}
	for _, c := range g.Status.Conditions {
		if c.Type == v1beta1.ConditionReady && c.Status == status && c.Reason == reason && g.Status.ObservedGeneration == g.Generation {
			return nil
		}
	}
	return fmt.Errorf("generation %d of %d says %+v", g.Status.ObservedGeneration, g.Generation, g.Status.Conditions)
}

func (b bench) waitFor(t testing.TB, name string, status corev1.ConditionStatus, reason string) *v1alpha1.InferenceGraph {
	t.Helper()
	testkit.Eventually(t, servingtest.Patience, fmt.Sprintf("graph %s to be %s %s", name, status, reason), func() error { return b.said(name, status, reason) })
	g := &v1alpha1.InferenceGraph{}
	if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: name}, g); err != nil {
		t.Fatal(err)
	}
	testkit.LintConditions(t, g, testkit.KnativeConditions(), testkit.AllowUnready("Stopped"), testkit.ForeignMessages("Stopped", "RoutesReady", "ConfigurationsReady"))
	return g
}

// serve brings up an InferenceService.
func (b bench) serve(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		b.Create(t, b.Service(name, "sklearn"))
	}
	for _, name := range names {
		b.RollOut(t, name+"-predictor")
		b.Status(t, name, "Ready", corev1.ConditionTrue, "")
	}
}

// deployment is the router's.
func (b bench) deployment(t testing.TB, name string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	b.Exists(t, d, name)
	return d
}

// TestGraphFollowsItsServices takes a graph through its life: it waits for its
// services, is woken by them, and keeps its router when they go.
func TestGraphFollowsItsServices(t *testing.T) {
	b := bench{servingtest.New(t)}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.Create(t, b.graph("review", "language", "sentiment"))
	b.waitFor(t, "review", corev1.ConditionFalse, "InferenceServiceMissing")
	b.Create(t, b.Service("language", "sklearn"), b.Service("sentiment", "sklearn"))
	b.waitFor(t, "review", corev1.ConditionUnknown, "InferenceServiceNotReady")
	b.RollOut(t, "language-predictor", "sentiment-predictor")
	b.waitFor(t, "review", corev1.ConditionUnknown, "Starting")
	b.Exists(t, &corev1.Service{}, "review")
	b.Exists(t, &autoscalingv2.HorizontalPodAutoscaler{}, "review")
	b.RollOut(t, "review")
	g := b.waitFor(t, "review", corev1.ConditionTrue, "")
	if g.Status.URL == nil || *g.Status.URL != "http://review-"+b.NS+".example.com" || g.Status.DeploymentMode != "Standard" {
		t.Errorf("status is %+v", g.Status)
	}
	servingtest.Quiet(t, counter, "when the graph is ready")

	before := b.deployment(t, "review")
	if err := b.C.Delete(t.Context(), b.Service("language", "sklearn")); err != nil {
		t.Fatal(err)
	}
	b.waitFor(t, "review", corev1.ConditionFalse, "InferenceServiceMissing")
	servingtest.Quiet(t, counter, "while a service is gone")
	after := b.deployment(t, "review")
	if before.UID != after.UID || before.Generation != after.Generation {
		t.Errorf("the router was touched: generation %d, then %d", before.Generation, after.Generation)
	}
	b.serve(t, "language")
	g = b.waitFor(t, "review", corev1.ConditionTrue, "")

	b.Change(t, g, func() {
		root := g.Spec.Nodes[v1alpha1.GraphRootNodeName]
		root.Steps = root.Steps[:1]
		g.Spec.Nodes[v1alpha1.GraphRootNodeName] = root
	})
	b.waitFor(t, "review", corev1.ConditionUnknown, "Starting")
	if args := strings.Join(b.deployment(t, "review").Spec.Template.Spec.Containers[0].Args, " "); strings.Contains(args, "sentiment") {
		t.Errorf("the router still gets the old graph: %s", args)
	}
	b.RollOut(t, "review")
	b.waitFor(t, "review", corev1.ConditionTrue, "")
	t.Logf("requests:\n%s", counter)
}

func TestStopAndResume(t *testing.T) {
	b := bench{servingtest.New(t)}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.serve(t, "iris")
	g := b.graph("g", "iris")
	b.Create(t, g)
	b.RollOut(t, "g")
	b.waitFor(t, "g", corev1.ConditionTrue, "")
	b.Change(t, g, func() { g.Annotations = map[string]string{v1beta1.AnnotationStop: "true"} })
	b.Gone(t, &appsv1.Deployment{}, "g")
	b.Gone(t, &corev1.Service{}, "g")
	b.Gone(t, &autoscalingv2.HorizontalPodAutoscaler{}, "g")
	if g := b.waitFor(t, "g", corev1.ConditionFalse, "Stopped"); g.Status.URL != nil {
		t.Errorf("a stopped graph has the URL %s", *g.Status.URL)
	}
	servingtest.Quiet(t, counter, "while the graph is stopped")
	b.Change(t, g, func() { g.Annotations = nil })
	b.RollOut(t, "g")
	b.waitFor(t, "g", corev1.ConditionTrue, "")
}

// TestKnative installs Knative while the graph waits for it.
func TestKnative(t *testing.T) {
	b := bench{servingtest.New(t)}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.serve(t, "iris")
	g := b.graph("g", "iris")
	g.Annotations = map[string]string{v1beta1.AnnotationDeploymentMode: "Serverless"}
	b.Create(t, g)
	b.waitFor(t, "g", corev1.ConditionFalse, "ServerlessModeRejected")
	b.Install(t, testkit.Knative)
	b.waitFor(t, "g", corev1.ConditionUnknown, "Starting")
	ksvc := &unstructured.Unstructured{}
	ksvc.SetAPIVersion("serving.knative.dev/v1")
	ksvc.SetKind("Service")
	b.Exists(t, ksvc, "g")
	ksvc.Object["status"] = map[string]any{
		"observedGeneration": ksvc.GetGeneration(), "url": "http://g.example.com",
		"conditions": []any{
			map[string]any{"type": "ConfigurationsReady", "status": "True"},
			map[string]any{"type": "Ready", "status": "True"},
			map[string]any{"type": "RoutesReady", "status": "True"},
		},
	}
	if err := b.C.Status().Update(t.Context(), ksvc); err != nil {
		t.Fatal(err)
	}
	if g := b.waitFor(t, "g", corev1.ConditionTrue, ""); g.Status.URL == nil || *g.Status.URL != "http://g.example.com" {
		t.Errorf("status is %+v", g.Status)
	}
	b.Exists(t, &v1beta1.InferenceService{}, "iris")
	servingtest.Quiet(t, counter, "when the graph is ready")
}

// rollOut plays the Deployment controller for all routers until the test ends.
func (b bench) rollOut(t testing.TB, names ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, name := range names {
				_ = b.rollOutOnce(ctx, name)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func (b bench) rollOutOnce(ctx context.Context, name string) error {
	d := &appsv1.Deployment{}
	if err := b.C.Get(ctx, client.ObjectKey{Namespace: b.NS, Name: name}, d); err != nil {
		return err
	}
	if d.Status.ObservedGeneration == d.Generation {
		return nil
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		},
	}
	return b.C.Status().Update(ctx, d)
}

// children lists what belongs to graphs, as "Kind name".
func (b bench) children() ([]string, error) {
	var out []string
	ours := []client.ListOption{client.InNamespace(b.NS), client.HasLabels{engine.LabelOwner, v1beta1.LabelInferenceGraph}}
	deployments, services, scalers := &appsv1.DeploymentList{}, &corev1.ServiceList{}, &autoscalingv2.HorizontalPodAutoscalerList{}
	err := errors.Join(b.C.List(context.Background(), deployments, ours...), b.C.List(context.Background(), services, ours...),
		b.C.List(context.Background(), scalers, ours...))
	for i := range deployments.Items {
		out = append(out, "Deployment "+deployments.Items[i].Name)
	}
	for i := range services.Items {
		out = append(out, "Service "+services.Items[i].Name)
	}
	for i := range scalers.Items {
		out = append(out, "HPA "+scalers.Items[i].Name)
	}
	slices.Sort(out)
	return out, err
}

// TestKilledEverywhere kills the manager after every single API call in turn.
func TestKilledEverywhere(t *testing.T) {
	b := bench{servingtest.New(t)}
	b.Configure(t, map[string]string{
		"ingress": `{"ingressGateway": "a/b", "domainTemplate": "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"}`,
	})
	test := testkit.KillTest{
		Config: b.Manager,
		Run:    b.Run,
		Reset: func(t testing.TB) {
			b.NS = b.Namespace(t) // a long name, which makes a longer host
			b.Create(t, b.Runtime("sklearn"), b.Service("iris", "sklearn"), b.graph("g", "iris"))
			b.rollOut(t, "iris-predictor", "g")
		},
		Converged: func() error { return b.said("g", corev1.ConditionTrue, "") },
		Verify: func(t testing.TB) {
			have, err := b.children()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"Deployment g", "HPA g", "Service g"}, have); diff != "" {
				t.Errorf("children: %s", diff)
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, b.graph("g", "iris"), b.Service("iris", "sklearn")) },
		Gone:   func() error { return b.Ended(b.graph("g", "iris"), b.Service("iris", "sklearn")) },
	}
	if testing.Short() {
		test.Stride = 5
	}
	testkit.KillEverywhere(t, test)
}

// TestFailingCalls converges while about half of the calls fail, in every way
// that a call can fail.
func TestFailingCalls(t *testing.T) {
	const n = 10
	b := bench{servingtest.New(t)}
	faults := testkit.NewFaults(7).AddEach(0.1)
	counter := testkit.NewCounter()
	b.Insist(t, counter.Wrap(faults.Wrap(b.Manager)))
	b.Create(t, b.Service("iris", "sklearn"))
	deployments := []string{"iris-predictor"}
	var want []string
	for i := range n {
		name := fmt.Sprintf("g%d", i)
		b.Create(t, b.graph(name, "iris"))
		deployments = append(deployments, name)
		want = append(want, "Deployment "+name, "HPA "+name, "Service "+name)
	}
	b.rollOut(t, deployments...)
	testkit.Eventually(t, 3*time.Minute, "all graphs to be ready in spite of faults", func() error {
		for i := range n {
			if err := b.said(fmt.Sprintf("g%d", i), corev1.ConditionTrue, ""); err != nil {
				return err
			}
		}
		return nil
	})
	b.Create(t, b.graph("short", "iris"))
	b.Delete(t, b.graph("short", "iris"))
	testkit.Eventually(t, time.Minute, "a graph to go in spite of faults", func() error { return b.Ended(b.graph("short", "iris")) })
	t.Logf("%d of %d calls failed", faults.Injected(), counter.Snapshot().Total())
	if faults.Injected() < n {
		t.Error("too few faults to have shown anything")
	}
	faults.Off()
	slices.Sort(want)
	have, err := b.children()
	if err != nil {
		t.Fatal(err)
	}
	have = slices.DeleteFunc(have, func(child string) bool { return strings.HasSuffix(child, " short") }) // for the garbage collector
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("children: %s", diff)
	}
	for i := range n {
		b.waitFor(t, fmt.Sprintf("g%d", i), corev1.ConditionTrue, "")
	}
	servingtest.Quiet(t, counter, "when the faults are over")
}
