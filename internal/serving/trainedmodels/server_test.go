// SPDX-License-Identifier: Apache-2.0

package trainedmodels_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is a cluster with models.
type bench struct{ *servingtest.Bench }

// many is a service whose server takes several models.
func (b bench) many(name string) *v1beta1.InferenceService {
	isvc := b.Service(name, "sklearn")
	isvc.Spec.Predictor.Model.StorageURI = nil
	return isvc
}

func (b bench) model(name, service, memory string) *v1alpha1.TrainedModel {
	tm := &v1alpha1.TrainedModel{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	tm.Spec.InferenceService = service
	tm.Spec.Model = v1alpha1.TrainedModelSource{StorageURI: "s3://models/" + name, Framework: "sklearn", Memory: resource.MustParse(memory)}
	return tm
}

// said is nil when a model's Ready has a status and reason.
func (b bench) said(name string, status corev1.ConditionStatus, reason string) error {
	tm := &v1alpha1.TrainedModel{}
	if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, tm); err != nil {
		return err
	}
	for _, c := range tm.Status.Conditions {
		if c.Type == v1beta1.ConditionReady && c.Status == status && c.Reason == reason && tm.Status.ObservedGeneration == tm.Generation {
			return nil
		}
	}
	return fmt.Errorf("%s says %+v", name, tm.Status.Conditions)
}

func (b bench) waitFor(t testing.TB, name string, status corev1.ConditionStatus, reason string) *v1alpha1.TrainedModel {
	t.Helper()
	testkit.Eventually(t, servingtest.Patience, fmt.Sprintf("model %s to be %s %s", name, status, reason), func() error { return b.said(name, status, reason) })
	tm := &v1alpha1.TrainedModel{}
	if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: name}, tm); err != nil {
		t.Fatal(err)
	}
	testkit.LintConditions(t, tm, testkit.KnativeConditions())
	return tm
}

// TestModelGoesWithItsService takes a model through its life: it waits for its
// service, is woken by it, and goes when it goes, also with the finalizer that
// an earlier controller left.
func TestModelGoesWithItsService(t *testing.T) {
	b := bench{servingtest.New(t)}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	tm := b.model("setosa", "many", "256Mi")
	tm.Finalizers = []string{v1beta1.FinalizerTrainedModel}
	b.Create(t, tm)
	b.waitFor(t, "setosa", corev1.ConditionFalse, "InferenceServiceMissing")
	servingtest.Quiet(t, counter, "while the model waits")
	isvc := b.many("many")
	b.Create(t, isvc)
	b.waitFor(t, "setosa", corev1.ConditionUnknown, "InferenceServiceNotReady")
	b.RollOut(t, "many-predictor")
	tm = b.waitFor(t, "setosa", corev1.ConditionTrue, "")
	if tm.Status.URL == nil || !strings.HasSuffix(*tm.Status.URL, "/v1/models/setosa:predict") || tm.Status.Address == nil {
		t.Errorf("status is %+v", tm.Status)
	}
	servingtest.Quiet(t, counter, "when the model is ready")
	if err := b.C.Delete(t.Context(), isvc); err != nil {
		t.Fatal(err)
	}
	b.Gone(t, &v1alpha1.TrainedModel{}, "setosa")
	if n := counter.Snapshot().Of("delete", "serving.kserve.io/trainedmodels"); n != 1 {
		t.Errorf("the model was deleted %d times", n)
	}
	t.Logf("requests:\n%s", counter)
}

// TestMemoryIsShared lets models compete for a server.
func TestMemoryIsShared(t *testing.T) {
	b := bench{servingtest.New(t)}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	isvc := b.many("many")
	isvc.Spec.Predictor.Model.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	b.Create(t, isvc, b.model("a", "many", "600Mi"))
	b.RollOut(t, "many-predictor")
	b.waitFor(t, "a", corev1.ConditionTrue, "")
	b.Create(t, b.model("b", "many", "600Mi"), b.model("c", "many", "400Mi"))
	b.waitFor(t, "b", corev1.ConditionFalse, "MemoryResourceNotAvailable")
	b.waitFor(t, "c", corev1.ConditionTrue, "")
	servingtest.Quiet(t, counter, "while a model waits for memory")
	if err := b.C.Delete(t.Context(), b.model("a", "many", "600Mi")); err != nil {
		t.Fatal(err)
	}
	b.waitFor(t, "b", corev1.ConditionTrue, "")
	b.waitFor(t, "c", corev1.ConditionTrue, "")
	servingtest.Quiet(t, counter, "at the end")
}

func TestServerOfOneModel(t *testing.T) {
	b := bench{servingtest.New(t)}
	b.Manage(t, b.Manager)
	isvc := b.Service("one", "sklearn")
	b.Create(t, isvc, b.model("setosa", "one", "1Mi"))
	if tm := b.waitFor(t, "setosa", corev1.ConditionFalse, "IsNotMMSPredictor"); tm.Status.URL != nil {
		t.Errorf("a model that is not served has the URL %s", *tm.Status.URL)
	}
	b.RollOut(t, "one-predictor")
	b.Status(t, "one", "Ready", corev1.ConditionTrue, "")
	b.Change(t, isvc, func() { isvc.Spec.Predictor.Model.StorageURI = nil })
	b.RollOut(t, "one-predictor")
	b.waitFor(t, "setosa", corev1.ConditionTrue, "")
}

// orphan is a model whose service is gone, as its status shows.
func (b bench) orphan(t testing.TB, name string) {
	t.Helper()
	tm := b.model(name, "gone", "1Mi")
	tm.Finalizers = []string{v1beta1.FinalizerTrainedModel}
	b.Create(t, tm)
	tm.Status.Conditions = []v1beta1.Condition{{Type: "InferenceServiceReady", Status: corev1.ConditionTrue}}
	if err := b.C.Status().Update(context.Background(), tm); err != nil {
		t.Fatal(err)
	}
}

func (b bench) gone(name string) error {
	err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, &v1alpha1.TrainedModel{})
	if err == nil {
		return errors.New(name + " is still there")
	}
	return client.IgnoreNotFound(err)
}

// TestKilledEverywhere kills the manager after every single API call in turn,
// while one model waits for its service and another must go.
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
			b.orphan(t, "orphan")
			b.Create(t, b.Runtime("sklearn"), b.many("many"), b.model("setosa", "many", "1Mi"))
		},
		Converged: func() error {
			return errors.Join(b.gone("orphan"), b.said("setosa", corev1.ConditionUnknown, "InferenceServiceNotReady"))
		},
		Verify: func(t testing.TB) {
			left := &v1alpha1.TrainedModelList{}
			if err := b.C.List(context.Background(), left, client.InNamespace(b.NS)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"setosa"}, names(left.Items)); diff != "" {
				t.Errorf("models: %s", diff)
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, b.model("setosa", "many", "1Mi"), b.many("many")) },
		Gone:   func() error { return b.Ended(b.model("setosa", "many", "1Mi"), b.many("many")) },
	}
	if testing.Short() {
		test.Stride = 5
	}
	testkit.KillEverywhere(t, test)
}

// TestFailingCalls converges while about half of the calls fail, in every way
// that a call can fail.
func TestFailingCalls(t *testing.T) {
	const n = 20
	b := bench{servingtest.New(t)}
	faults := testkit.NewFaults(11).AddEach(0.1)
	for i := range n {
		b.orphan(t, fmt.Sprintf("orphan%d", i))
	}
	counter := testkit.NewCounter()
	b.Insist(t, counter.Wrap(faults.Wrap(b.Manager)))
	b.Create(t, b.many("many"))
	for i := range n {
		b.Create(t, b.model(fmt.Sprintf("m%d", i), "many", "1Mi"))
	}
	b.RollOut(t, "many-predictor")
	testkit.Eventually(t, 3*time.Minute, "all models to be ready or gone in spite of faults", func() error {
		for i := range n {
			if err := errors.Join(b.said(fmt.Sprintf("m%d", i), corev1.ConditionTrue, ""), b.gone(fmt.Sprintf("orphan%d", i))); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%d of %d calls failed", faults.Injected(), counter.Snapshot().Total())
	if faults.Injected() < n {
		t.Error("too few faults to have shown anything")
	}
	faults.Off()
	for i := range n {
		b.waitFor(t, fmt.Sprintf("m%d", i), corev1.ConditionTrue, "")
	}
	servingtest.Quiet(t, counter, "when the faults are over")
}
