// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

var lint = []testkit.LintOption{testkit.KnativeConditions(), testkit.AllowUnready("Stopped")}

// watched fails the test when a condition of a service lies or flaps on the way.
func watched(t *testing.T, b *servingtest.Bench, more ...testkit.LintOption) {
	t.Helper()
	w := b.WatchConditions(t, v1beta1.GroupVersion.WithKind("InferenceService"), b.NS, append(more, lint...)...)
	t.Cleanup(func() { w.Stop(t) })
}

// portIsSetBack edits a child of iris and waits until somebody has mended it.
func portIsSetBack(t *testing.T, b *servingtest.Bench) {
	t.Helper()
	service := &corev1.Service{}
	b.Exists(t, service, "iris-predictor")
	b.Change(t, service, func() { service.Spec.Ports[0].TargetPort.IntVal = 9999 })
	testkit.Eventually(t, servingtest.Patience, "the port to be set back", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		if got := service.Spec.Ports[0].TargetPort.IntVal; got != 8080 {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
}

func TestChildIsRepaired(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	watched(t, b)
	b.Create(t, b.Service("iris", "sklearn"))
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	portIsSetBack(t, b)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	b.Exists(t, hpa, "iris-predictor")
	uid := hpa.UID
	if err := b.C.Delete(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, servingtest.Patience, "the autoscaler to be made again", func() error {
		hpa := &autoscalingv2.HorizontalPodAutoscaler{}
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "iris-predictor"}, hpa); err != nil {
			return err
		}
		if hpa.UID == uid {
			return fmt.Errorf("it is still the old one")
		}
		return nil
	})
}

func TestAutoscalerOwnsTheNumberOfPods(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	isvc := b.Service("iris", "sklearn")
	isvc.Spec.Predictor.MinReplicas, isvc.Spec.Predictor.MaxReplicas = ptr.To[int32](2), 9
	b.Create(t, isvc)
	d := &appsv1.Deployment{}
	b.Exists(t, d, "iris-predictor")
	if got := *d.Spec.Replicas; got != 2 {
		t.Errorf("it starts with %d replicas, want 2", got)
	}
	b.Change(t, d, func() { d.Spec.Replicas = ptr.To[int32](7) }) // as the autoscaler would
	b.Change(t, isvc, func() { isvc.Spec.Predictor.Model.Args = []string{"--verbose"} })
	testkit.Eventually(t, servingtest.Patience, "the argument to reach the pods", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; len(args) != 2 {
			return fmt.Errorf("arguments are %v", args)
		}
		return nil
	})
	if got := *d.Spec.Replicas; got != 7 {
		t.Errorf("%d replicas after a change, want the autoscaler's 7", got)
	}
}

func TestRuntimeComesLater(t *testing.T) {
	b := servingtest.New(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	watched(t, b)
	b.Create(t, b.Service("iris", "sklearn"), b.Service("tree", "exotic"))
	b.Status(t, "tree", "PredictorReady", corev1.ConditionFalse, string(v1beta1.NoSupportingRuntime))
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	b.Create(t, b.Runtime("exotic"))
	b.RollOut(t, "tree-predictor")
	isvc := b.Status(t, "tree", "Ready", corev1.ConditionTrue, "")
	if isvc.Status.ModelStatus.LastFailureInfo != nil {
		t.Errorf("a failure that is over is still told: %+v", isvc.Status.ModelStatus.LastFailureInfo)
	}
	// A runtime that concerns nobody costs nothing; one in use that changes reaches its service only.
	before := counter.Snapshot()
	b.Create(t, b.Runtime("other"))
	rt := b.Runtime("exotic")
	b.Change(t, rt, func() { rt.Spec.Containers[0].Image = "server:2" })
	testkit.Eventually(t, servingtest.Patience, "the new image", func() error {
		d := &appsv1.Deployment{}
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "tree-predictor"}, d); err != nil {
			return err
		}
		if got := d.Spec.Template.Spec.Containers[0].Image; got != "server:2" {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	if got := counter.Since(before).Of("apply", "apps/deployments"); got != 1 {
		t.Errorf("%d Deployments were written, want 1", got)
	}
}

func TestWhatIsNoLongerWantedGoes(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	isvc := b.Service("iris", "sklearn")
	isvc.Spec.Transformer = &v1beta1.TransformerSpec{PodSpec: v1beta1.PodSpec{Containers: []corev1.Container{{Name: "kserve-container", Image: "t:1"}}}}
	b.Create(t, isvc)
	b.RollOut(t, "iris-predictor", "iris-transformer")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	b.Change(t, isvc, func() {
		isvc.Spec.Transformer = nil
		isvc.Annotations = map[string]string{v1beta1.AnnotationAutoscalerClass: "none"}
	})
	b.Gone(t, &appsv1.Deployment{}, "iris-transformer")
	b.Gone(t, &corev1.Service{}, "iris-transformer")
	b.Gone(t, &autoscalingv2.HorizontalPodAutoscaler{}, "iris-transformer")
	b.Gone(t, &autoscalingv2.HorizontalPodAutoscaler{}, "iris-predictor")
	b.RollOut(t, "iris-predictor")
	isvc = b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	for _, c := range isvc.Status.Conditions {
		if c.Type == "TransformerReady" {
			t.Errorf("a condition of the transformer is left: %+v", c)
		}
	}
	if _, ok := isvc.Status.Components[v1beta1.TransformerComponent]; ok {
		t.Error("the status still has the transformer")
	}
}

func TestStopAndResume(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	isvc := b.Service("iris", "sklearn")
	b.Create(t, isvc)
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	b.Change(t, isvc, func() { isvc.Annotations = map[string]string{v1beta1.AnnotationStop: "true"} })
	b.Gone(t, &appsv1.Deployment{}, "iris-predictor")
	b.Gone(t, &networkingv1.Ingress{}, "iris")
	stopped := b.Status(t, "iris", "Stopped", corev1.ConditionTrue, "Stopped")
	if stopped.Status.URL != nil || len(stopped.Status.Components) > 0 || stopped.Status.DeploymentMode != config.ModeStandard {
		t.Errorf("status of a stopped service: %+v", stopped.Status)
	}
	b.Change(t, isvc, func() { isvc.Annotations = nil })
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
}

func TestGatewayAPIComesLater(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	b.Configure(t, servingtest.Gateway())
	b.Create(t, b.Service("iris", "sklearn"))
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "IngressReady", corev1.ConditionFalse, "GatewayAPIMissing")
	b.Install(t, testkit.GatewayAPI)
	b.Accept(t, "iris", "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	// The other way round: the routes go when the configuration no longer asks for them.
	b.Configure(t, map[string]string{})
	b.Exists(t, &networkingv1.Ingress{}, "iris")
	b.Gone(t, &gatewayv1.HTTPRoute{}, "iris")
	b.Gone(t, &gatewayv1.HTTPRoute{}, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
}

// TestGatewayGoesAndComes: what a gateway said of routes stays on them when it goes, and says nothing then. A route that it
// refuses is accepted later, and each time the service says so in the gateway's words.
func TestGatewayGoesAndComes(t *testing.T) {
	b := servingtest.New(t)
	b.Install(t, testkit.GatewayAPI)
	namespace := b.Cluster.Namespace(t)
	b.Configure(t, map[string]string{config.KeyIngress: fmt.Sprintf(
		`{"enableGatewayApi": true, "kserveIngressGateway": "%s/front", "ingressGateway": "a/b", "ingressDomain": "models.test"}`, namespace)})
	b.Manage(t, b.Manager)
	b.Create(t, b.Service("iris", "sklearn"))
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "IngressReady", corev1.ConditionFalse, "GatewayMissing")
	b.Accept(t, "iris", "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")

	gate := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "front"}}
	if err := b.C.Delete(t.Context(), gate); err != nil {
		t.Fatal(err)
	}
	gone := b.Status(t, "iris", "IngressReady", corev1.ConditionFalse, "GatewayMissing")
	if gone.Status.URL == nil {
		t.Error("the address is lost, although it comes back with the gateway")
	}
	b.Exists(t, &gatewayv1.HTTPRoute{}, "iris")
	if err := servingtest.Gate(t.Context(), b.C, namespace, "front"); err != nil {
		t.Fatal(err)
	}
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")

	b.Answer(t, "iris", metav1.ConditionFalse, "NotAllowedByListeners", "No listeners included by this parent ref allowed this attachment.")
	refused := b.Status(t, "iris", "IngressReady", corev1.ConditionFalse, "NotAllowedByListeners")
	for _, c := range refused.Status.Conditions {
		if c.Type == "IngressReady" && !strings.Contains(c.Message, "No listeners included by this parent ref allowed this attachment") {
			t.Errorf("the gateway's words are missing: %s", c.Message)
		}
	}
	b.Accept(t, "iris")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
}

func TestDeletion(t *testing.T) {
	for _, configured := range []bool{true, false} {
		t.Run(fmt.Sprintf("configured=%v", configured), func(t *testing.T) {
			b := servingtest.New(t)
			if configured {
				b.Configure(t, map[string]string{})
			}
			b.Manage(t, b.Manager)
			isvc := b.Service("iris", "sklearn")
			isvc.Finalizers = []string{v1beta1.FinalizerInferenceService} // of the controller before us
			b.Create(t, isvc)
			b.Exists(t, &appsv1.Deployment{}, "iris-predictor")
			if err := b.C.Delete(t.Context(), isvc); err != nil {
				t.Fatal(err)
			}
			b.Gone(t, &v1beta1.InferenceService{}, "iris")
		})
	}
}

func TestRestartAndRestCostNothing(t *testing.T) {
	b := servingtest.New(t)
	b.BehindGateway(t)
	counter := testkit.NewCounter()
	stop := b.Manage(t, counter.Wrap(b.Manager))
	names := []string{"one", "two", "three"}
	for _, name := range names {
		b.Create(t, b.Service(name, "sklearn"))
		b.RollOut(t, name+"-predictor")
		b.Accept(t, name, name+"-predictor")
		b.Status(t, name, "Ready", corev1.ConditionTrue, "")
	}
	testkit.NoWrites(t, counter, 3*time.Second, "when nothing changes")
	before := counter.Snapshot()
	if per := float64(before.Writes()) / float64(len(names)); per > 9 {
		t.Errorf("%.1f writes for a service:\n%s", per, counter)
	}
	stop()
	b.Manage(t, counter.Wrap(b.Manager))
	testkit.Quiet(t, 5*time.Second, "the rest after a restart", func() error {
		if since := counter.Since(before); since.Writes() > 0 {
			return fmt.Errorf("writes:\n%s", since)
		}
		return nil
	})
}

func TestFaultsDelayButDoNotPrevent(t *testing.T) {
	b := servingtest.New(t)
	b.BehindGateway(t)
	faults := testkit.NewFaults(7).Add(
		testkit.Rule{Fault: testkit.Unavailable, Probability: 0.04},
		testkit.Rule{Fault: testkit.Conflict, Probability: 0.03},
		testkit.Rule{Fault: testkit.Timeout, Probability: 0.03},
	)
	b.Manage(t, faults.Wrap(b.Manager))
	watched(t, b)
	for i := range 10 {
		b.Create(t, b.Service(fmt.Sprintf("s%d", i), "sklearn"))
	}
	for i := range 10 {
		name := fmt.Sprintf("s%d", i)
		b.RollOut(t, name+"-predictor")
		b.Accept(t, name, name+"-predictor")
		b.Status(t, name, "Ready", corev1.ConditionTrue, "")
	}
	for i := range 10 {
		b.Delete(t, b.Service(fmt.Sprintf("s%d", i), "sklearn"))
	}
	for i := range 10 {
		testkit.Eventually(t, servingtest.Patience, "the end in spite of faults", func() error { return b.Ended(b.Service(fmt.Sprintf("s%d", i), "sklearn")) })
	}
	if faults.Injected() == 0 {
		t.Error("no fault was injected")
	}
	t.Logf("%d faults", faults.Injected())
}

func TestKilledAtEveryCall(t *testing.T) {
	b := servingtest.New(t)
	// Names of the rounds' namespaces are long; a dot keeps the hosts valid.
	b.Configure(t, map[string]string{config.KeyIngress: `{"ingressGateway": "a/b", "domainTemplate": "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"}`})
	children := map[string]client.Object{
		"iris-predictor Deployment": &appsv1.Deployment{}, "iris-predictor Service": &corev1.Service{},
		"iris-predictor HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{}, "iris Ingress": &networkingv1.Ingress{},
	}
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.Run,
		Reset: func(t testing.TB) {
			b.NS = b.Namespace(t)
			b.Create(t, b.Runtime("sklearn"), b.Service("iris", "sklearn"))
		},
		Converged: func() error {
			isvc := &v1beta1.InferenceService{}
			if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: "iris"}, isvc); err != nil {
				return err
			}
			if isvc.Status.ObservedGeneration != isvc.Generation {
				return errors.New("the service has no status yet")
			}
			for what, obj := range children {
				name, _, _ := strings.Cut(what, " ")
				if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, obj); err != nil {
					return fmt.Errorf("%w; the service says %+v", err, isvc.Status.Conditions)
				}
			}
			return nil
		},
		Verify: func(t testing.TB) {
			for name, list := range map[string]client.ObjectList{
				"Deployment": &appsv1.DeploymentList{}, "Service": &corev1.ServiceList{},
				"HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscalerList{}, "Ingress": &networkingv1.IngressList{},
			} {
				if err := b.C.List(context.Background(), list, client.InNamespace(b.NS)); err != nil {
					t.Fatal(err)
				}
				if n := meta.LenList(list); n != 1 {
					t.Errorf("%d objects of kind %s, want 1", n, name)
				}
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, b.Service("iris", "sklearn")) },
		Gone:   func() error { return b.Ended(b.Service("iris", "sklearn")) },
	})
}

// TestTakeOver: what another controller made is ours without a change that the
// pods would notice.
func TestTakeOver(t *testing.T) {
	b := servingtest.New(t)
	isvc := b.Service("iris", "sklearn")
	b.Create(t, isvc)
	// Let a first manager make the children, then make them look as if they were made by hand by another one.
	stop := b.Manage(t, b.Manager)
	d := &appsv1.Deployment{}
	b.Exists(t, d, "iris-predictor")
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	stop()
	foreign := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.NS, Name: "iris-predictor", Labels: d.Labels, Annotations: d.Annotations, OwnerReferences: d.OwnerReferences,
	}, Spec: d.Spec}
	delete(foreign.Labels, "modelplane.dev/owner-uid")
	delete(foreign.Labels, "modelplane.dev/intent")
	if err := b.C.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := b.C.Create(t.Context(), foreign, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	generation, spec := foreign.Generation, foreign.Spec.DeepCopy()
	frozen, theirs := frozenByAnother(t, b, foreign)
	stop = b.Manage(t, b.Manager)
	takenOver := func(d *appsv1.Deployment) {
		t.Helper()
		testkit.Eventually(t, servingtest.Patience, "the Deployment to be taken over", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			if d.Labels["modelplane.dev/owner-uid"] == "" {
				return fmt.Errorf("labels are %v", d.Labels)
			}
			return nil
		})
	}
	takenOver(foreign)
	held := b.Status(t, "frozen", "UpdatesHeld", corev1.ConditionTrue, "AutoUpdateDisabled")
	testkit.LintConditions(t, held, lint...)
	before := theirs.ResourceVersion
	if b.Exists(t, theirs, "frozen-predictor"); theirs.ResourceVersion != before {
		t.Errorf("what the user keeps as it is was changed: %+v", theirs)
	}
	b.Change(t, frozen, func() { frozen.Labels = map[string]string{"team": "flowers"} })
	takenOver(theirs)
	if foreign.Generation != generation {
		t.Errorf("the generation went from %d to %d: pods restart (-before +after):\n%s", generation, foreign.Generation, cmp.Diff(*spec, foreign.Spec))
	}
	stop()
	givenBack(t, b, isvc, foreign)
}

// givenBack proves what the page about moving says of the way back: without a manager, the controller before us may change
// what is there, and nothing of ours holds an object that is deleted.
func givenBack(t *testing.T, b *servingtest.Bench, isvc *v1beta1.InferenceService, d *appsv1.Deployment) {
	t.Helper()
	for _, o := range []client.Object{isvc, d} {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	if len(isvc.Finalizers) > 0 || !metav1.IsControlledBy(d, isvc) {
		t.Errorf("the service has finalizers %v, the Deployment owners %v", isvc.Finalizers, d.OwnerReferences)
	}
	for key := range d.Spec.Template.Labels {
		if strings.HasPrefix(key, "modelplane.dev/") {
			t.Errorf("the pods have the label %s", key)
		}
	}
	d.Spec.Template.Spec.Containers[0].Env, d.Spec.Paused = nil, true
	if err := b.C.Update(t.Context(), d, client.FieldOwner("manager")); err != nil {
		t.Errorf("the controller before us cannot change the Deployment: %v", err)
	}
	b.Delete(t, isvc)
	b.Gone(t, &v1beta1.InferenceService{}, "iris")
}

// frozenByAnother is a ready service that another controller made and its user keeps as it is, with its Deployment.
func frozenByAnother(t *testing.T, b *servingtest.Bench, like *appsv1.Deployment) (*v1beta1.InferenceService, *appsv1.Deployment) {
	t.Helper()
	isvc := b.Service("frozen", "sklearn")
	isvc.Annotations = map[string]string{v1beta1.AnnotationDisableAutoUpdate: "true", v1beta1.AnnotationDeploymentMode: "RawDeployment"}
	b.Create(t, isvc)
	for _, typ := range []string{"IngressReady", "PredictorReady", "Ready"} {
		isvc.Status.Conditions = append(isvc.Status.Conditions, v1beta1.Condition{Type: typ, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	isvc.Status.DeploymentMode = "RawDeployment"
	if err := b.C.Status().Update(t.Context(), isvc); err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "frozen-predictor"}, Spec: *like.Spec.DeepCopy()}
	d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(isvc, v1beta1.GroupVersion.WithKind("InferenceService"))}
	app := map[string]string{"app": "isvc.frozen-predictor"}
	d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: app}, app
	if err := b.C.Create(t.Context(), d, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "frozen-predictor-x", Labels: map[string]string{
		"app": "isvc.frozen-predictor", v1beta1.LabelComponent: "predictor", v1beta1.LabelInferenceService: "frozen",
	}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kserve-container", Image: "server:0"}}}}
	b.Create(t, pod)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := b.C.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return isvc, d
}

// TestHPAGivesWayToKEDA: KEDA refuses a ScaledObject while an HPA scales the
// same Deployment, however long that one takes to go.
func TestHPAGivesWayToKEDA(t *testing.T) {
	b := servingtest.New(t)
	b.Install(t, testkit.KEDA)
	b.Manage(t, b.Manager)
	isvc := b.Service("iris", "sklearn")
	b.Create(t, isvc)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	b.Exists(t, hpa, "iris-predictor")
	const slow = "test.dev/slow"
	b.Change(t, hpa, func() { hpa.Finalizers = []string{slow} })
	b.Change(t, isvc, func() {
		isvc.Annotations = map[string]string{v1beta1.AnnotationAutoscalerClass: "keda"}
		isvc.Spec.Predictor.MaxReplicas = 3
	})
	testkit.Eventually(t, servingtest.Patience, "the HPA to be deleted", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(hpa), hpa); err != nil {
			return err
		}
		if hpa.DeletionTimestamp == nil {
			return errors.New("nobody deleted it")
		}
		return nil
	})
	scaled := &unstructured.Unstructured{}
	scaled.SetAPIVersion("keda.sh/v1alpha1")
	scaled.SetKind("ScaledObject")
	key := client.ObjectKey{Namespace: b.NS, Name: "iris-predictor"}
	testkit.Quiet(t, 2*time.Second, "the ScaledObject while the HPA is there", func() error {
		err := b.C.Get(t.Context(), key, scaled)
		if err == nil {
			return errors.New("it was made")
		}
		return client.IgnoreNotFound(err)
	})
	b.Change(t, hpa, func() { hpa.Finalizers = nil })
	b.Exists(t, scaled, "iris-predictor")
	b.Gone(t, hpa, "iris-predictor")
}

// TestServiceIsMadeAnew: whether a Service has an address cannot be changed.
func TestServiceIsMadeAnew(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	b.Create(t, b.Service("iris", "sklearn"))
	service := &corev1.Service{}
	b.Exists(t, service, "iris-predictor")
	for _, none := range []bool{true, false, true} {
		b.Configure(t, map[string]string{config.KeyService: fmt.Sprintf(`{"serviceClusterIPNone": %v}`, none)})
		testkit.Eventually(t, servingtest.Patience, fmt.Sprintf("a Service with serviceClusterIPNone=%v", none), func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
				return err
			}
			if ip := service.Spec.ClusterIP; none != (ip == corev1.ClusterIPNone) {
				return fmt.Errorf("its address is %s", ip)
			}
			return nil
		})
	}
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
}

// TestBadConfigurationAfterARestart: what the key said before nobody knows, so
// nothing is changed until it is mended.
func TestBadConfigurationAfterARestart(t *testing.T) {
	good := map[string]string{config.KeyIngress: `{"ingressGateway": "a/b", "ingressDomain": "models.test"}`}
	b := servingtest.New(t)
	b.Configure(t, good)
	stop := b.Manage(t, b.Manager)
	isvc := b.Service("iris", "sklearn")
	b.Create(t, isvc)
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	door := &networkingv1.Ingress{}
	b.Exists(t, door, "iris")
	stop()

	b.Configure(t, map[string]string{config.KeyIngress: `{"ingressDomain": 7}`})
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	watched(t, b, testkit.AllowFlap("InvalidConfiguration"))
	held := b.Status(t, "iris", "UpdatesHeld", corev1.ConditionTrue, "InvalidConfiguration")
	testkit.LintConditions(t, held, lint...)
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	b.Create(t, b.Service("later", "sklearn"))
	b.Status(t, "later", "PredictorReady", corev1.ConditionFalse, "InvalidConfiguration")
	b.Change(t, isvc, func() { isvc.Spec.Predictor.Model.Args = []string{"--verbose"} })
	b.Status(t, "iris", "PredictorReady", corev1.ConditionFalse, "InvalidConfiguration")
	for _, kind := range []string{"apps/deployments", "services", "autoscaling/horizontalpodautoscalers", "networking.k8s.io/ingresses"} {
		if n := counter.Snapshot().Of("apply", kind) + counter.Snapshot().Of("delete", kind); n > 0 {
			t.Errorf("%d writes to %s:\n%s", n, kind, counter)
		}
	}

	b.Configure(t, good)
	testkit.Eventually(t, servingtest.Patience, "the argument to reach the pods", func() error {
		d := &appsv1.Deployment{}
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "iris-predictor"}, d); err != nil {
			return err
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; len(args) != 2 {
			return fmt.Errorf("arguments are %v", args)
		}
		return nil
	})
	b.RollOut(t, "iris-predictor", "later-predictor")
	b.Status(t, "later", "Ready", corev1.ConditionTrue, "")
	now := b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
	for _, c := range now.Status.Conditions {
		if c.Type == "UpdatesHeld" {
			t.Errorf("it still says %+v", c)
		}
	}
	same := &networkingv1.Ingress{}
	if b.Exists(t, same, "iris"); same.UID != door.UID || same.Generation != door.Generation {
		t.Errorf("the Ingress was rewritten: generation %d, then %d", door.Generation, same.Generation)
	}
}

// TestFrozenServiceTakesOnlyItsOwnChanges: repairs and the user's changes go
// through, those of the platform wait for one.
func TestFrozenServiceTakesOnlyItsOwnChanges(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	watched(t, b)
	isvc := b.Service("iris", "sklearn")
	isvc.Annotations = map[string]string{v1beta1.AnnotationDisableAutoUpdate: "true"}
	b.Create(t, isvc)
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")

	portIsSetBack(t, b)

	rt := b.Runtime("sklearn")
	b.Change(t, rt, func() { rt.Spec.Containers[0].Image = "server:2" })
	b.Status(t, "iris", "UpdatesHeld", corev1.ConditionTrue, "AutoUpdateDisabled")
	image := func(want string) error {
		d := &appsv1.Deployment{}
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "iris-predictor"}, d); err != nil {
			return err
		}
		if got := d.Spec.Template.Spec.Containers[0].Image; got != want {
			return fmt.Errorf("the image is %s, want %s", got, want)
		}
		return nil
	}
	if err := image("server:1"); err != nil {
		t.Error(err)
	}
	b.Change(t, isvc, func() { isvc.Labels = map[string]string{"team": "flowers"} })
	testkit.Eventually(t, servingtest.Patience, "the image with the user's change", func() error { return image("server:2") })
	b.RollOut(t, "iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")

	if err := b.C.Delete(t.Context(), rt); err != nil {
		t.Fatal(err)
	}
	held := b.Status(t, "iris", "UpdatesHeld", corev1.ConditionTrue, "AutoUpdateDisabled")
	testkit.LintConditions(t, held, lint...)
	b.Status(t, "iris", "Ready", corev1.ConditionTrue, "")
}

// An annotation that would configure the proxy of all reaches no new Ingress; one that is older than the refusal is left
// alone, because the annotation may be what protects the service.
func TestAnnotationIsRefused(t *testing.T) {
	const auth = "nginx.ingress.kubernetes.io/auth-url"
	b := servingtest.New(t)
	b.Configure(t, map[string]string{config.KeyIngress: `{"ingressGateway": "a/b", "allowedAnnotations": ["nginx.ingress.kubernetes.io/auth-*"]}`})
	b.Manage(t, b.Manager)
	old := b.Service("old", "sklearn")
	old.Annotations = map[string]string{auth: "https://auth.test"}
	b.Create(t, old)
	ingress := &networkingv1.Ingress{}
	b.Exists(t, ingress, "old")
	b.Configure(t, map[string]string{config.KeyIngress: `{"ingressGateway": "a/b", "ingressDomain": "other.test"}`})
	b.Status(t, "old", "SettingsIgnored", corev1.ConditionTrue, "NoEffect")
	young := b.Service("new", "sklearn")
	young.Annotations = map[string]string{auth: "https://auth.test"}
	b.Create(t, young)
	isvc := b.Status(t, "new", "IngressReady", corev1.ConditionFalse, "AnnotationRefused")
	if message := conditionMessage(isvc, "IngressReady"); !strings.Contains(message, auth) {
		t.Errorf("the condition does not name the annotation: %s", message)
	}
	b.Gone(t, &networkingv1.Ingress{}, "new")
	uid := ingress.UID
	b.Exists(t, ingress, "old")
	if ingress.UID != uid || ingress.Annotations[auth] == "" || ingress.Spec.Rules[0].Host != "old-"+b.NS+".example.com" {
		t.Errorf("the old Ingress was changed: %+v", ingress)
	}
}

func conditionMessage(isvc *v1beta1.InferenceService, typ string) string {
	for _, c := range isvc.Status.Conditions {
		if c.Type == typ {
			return c.Message
		}
	}
	return ""
}

// Name and namespace run into each other in the usual hosts: iris in a-NS and iris-a in NS become the same one.
func TestHostIsTaken(t *testing.T) {
	b := servingtest.New(t)
	b.BehindGateway(t)
	ns := "a-" + b.NS // comes first, should both be made in the same second
	b.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	rt := b.Runtime("sklearn")
	rt.Namespace = ns
	first := b.Service("iris", "sklearn")
	first.Namespace = ns
	b.Create(t, rt, first)
	b.Manage(t, b.Manager)
	testkit.Eventually(t, servingtest.Patience, "the first to have its route", func() error {
		return b.C.Get(t.Context(), client.ObjectKeyFromObject(first), &gatewayv1.HTTPRoute{})
	})
	b.Create(t, b.Service("iris-a", "sklearn"))
	b.RollOut(t, "iris-a-predictor")
	isvc := b.Status(t, "iris-a", "IngressReady", corev1.ConditionFalse, "HostTaken")
	host := "iris-" + ns + ".models.test"
	message := conditionMessage(isvc, "IngressReady")
	if rest, named := strings.CutPrefix(message, host); !named || strings.Contains(rest, ns) {
		t.Errorf("the condition is to name the host, and not whose it is: %s", message)
	}
	b.Status(t, "iris-a", "PredictorReady", corev1.ConditionTrue, "")
	b.Gone(t, &gatewayv1.HTTPRoute{}, "iris-a")
	b.Gone(t, &gatewayv1.HTTPRoute{}, "iris-a-predictor")
	if err := b.C.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	b.Accept(t, "iris-a", "iris-a-predictor")
	b.Status(t, "iris-a", "Ready", corev1.ConditionTrue, "")
}
