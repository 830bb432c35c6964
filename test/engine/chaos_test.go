// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	engine "github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// family lists the children in a namespace as "Kind name owner".
func family(ctx context.Context, b *enginetest.Bench, namespace string) ([]string, error) {
	var out []string
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &appsv1.DeploymentList{}} {
		if err := b.C.List(ctx, list, client.InNamespace(namespace), client.HasLabels{engine.LabelOwner}); err != nil {
			return nil, err
		}
		switch l := list.(type) {
		case *corev1.ConfigMapList:
			for _, o := range l.Items {
				out = append(out, "ConfigMap "+o.Name)
			}
		case *corev1.SecretList:
			for _, o := range l.Items {
				out = append(out, "Secret "+o.Name)
			}
		case *corev1.ServiceList:
			for _, o := range l.Items {
				out = append(out, "Service "+o.Name)
			}
		case *appsv1.DeploymentList:
			for _, o := range l.Items {
				out = append(out, "Deployment "+o.Name)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// TestKilledEverywhere kills the manager after every single API call in turn.
// The object asks for children of which one must be pruned (made by an earlier
// plan), one must be taken over from another controller, and one lies in
// another namespace; then it is deleted.
func TestKilledEverywhere(t *testing.T) {
	b := enginetest.New(t)
	far := ""
	test := testkit.KillTest{
		Config: b.Manager,
		Run:    enginetest.Run,
		Reset: func(t testing.TB) {
			b.NS, far = b.Namespace(t), b.Namespace(t)
			s := b.Sample("one", sample.SampleSpec{Message: "hi", Extra: "Secret", Far: far})
			b.Create(t, s)
			// Left over from an earlier plan.
			old := enginetest.ConfigMap(b.NS, "one-extra")
			old.Labels = map[string]string{engine.LabelOwner: string(s.UID)}
			b.Create(t, old)
			// Made by the controller that was there before us.
			taken := enginetest.ConfigMap(b.NS, "one")
			taken.Data = map[string]string{"message": "hi"}
			taken.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, sample.GroupVersion.WithKind("Sample"))}
			if err := b.C.Create(context.Background(), taken, client.FieldOwner("sample-old")); err != nil {
				t.Fatal(err)
			}
		},
		Converged: func() error { return b.Ready(context.Background(), "one") },
		Verify: func(t testing.TB) {
			near, err := family(context.Background(), b, b.NS)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"ConfigMap one", "Deployment one", "Secret one-extra", "Service one"}, near); diff != "" {
				t.Errorf("children: %s", diff)
			}
			remote, err := family(context.Background(), b, far)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"ConfigMap " + b.NS + "-one"}, remote); diff != "" {
				t.Errorf("children in the other namespace: %s", diff)
			}
			taken := enginetest.ConfigMap(b.NS, "one")
			if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(taken), taken); err != nil {
				t.Fatal(err)
			}
			for _, m := range taken.ManagedFields {
				if m.Manager == "sample-old" {
					t.Error("the earlier controller still owns fields")
				}
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, b.Sample("one", sample.SampleSpec{})) },
		Gone: func() error {
			return b.Ended([]client.Object{b.Sample("one", sample.SampleSpec{})}, []engine.Controller{sample.Controller()}, far)
		},
	}
	if testing.Short() {
		test.Stride = 5
	}
	testkit.KillEverywhere(t, test)
}

// TestFailingCalls converges while about half of the calls fail, in every way
// that a call can fail.
func TestFailingCalls(t *testing.T) {
	const objects = 60
	b := enginetest.New(t)
	far := b.Namespace(t)
	faults := testkit.NewFaults(20).AddEach(0.1)
	counter := testkit.NewCounter()
	cfg := counter.Wrap(faults.Wrap(b.Manager))
	testkit.Insist(t, func(ctx context.Context) error { return enginetest.Run(ctx, cfg) })
	createMany(t, b, objects)
	testkit.Eventually(t, 3*time.Minute, "all objects to be ready in spite of faults", func() error { return allReady(b, objects) })
	for i := range objects / 2 {
		s := b.Sample(fmt.Sprintf("many-%d", i), sample.SampleSpec{})
		b.Change(t, s, func() { s.Spec.Headless, s.Spec.Message = true, "changed" })
	}
	for i := range objects {
		b.WaitReady(t, fmt.Sprintf("many-%d", i))
	}
	endInSpiteOfFaults(t, b, far)
	t.Logf("%d of %d calls failed: %v", faults.Injected(), counter.Snapshot().Total(), faults.ByFault())
	if faults.Injected() < objects {
		t.Error("too few faults to have shown anything")
	}
	faults.Off()
	var want []string
	for i := range objects {
		want = append(want, fmt.Sprintf("ConfigMap many-%d", i), fmt.Sprintf("Deployment many-%d", i))
		if i >= objects/2 {
			want = append(want, fmt.Sprintf("Service many-%d", i))
		}
	}
	slices.Sort(want)
	testkit.Eventually(t, time.Minute, "exactly the wanted children", func() error {
		have, err := family(context.Background(), b, b.NS)
		if err != nil {
			return err
		}
		have = slices.DeleteFunc(have, func(child string) bool { return strings.Contains(child, " short-") }) // for the garbage collector
		if diff := cmp.Diff(want, have); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	for i := range objects {
		s := b.Sample(fmt.Sprintf("many-%d", i), sample.SampleSpec{})
		testkit.Eventually(t, time.Minute, s.Name+" not to speak of the faults", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
				return err
			}
			if len(s.Status.Conditions) != 1 {
				return fmt.Errorf("it says %+v", s.Status.Conditions)
			}
			return nil
		})
	}
	testkit.Rest(t, 5*time.Second, "the last retry", counter.Writes)
	testkit.NoWrites(t, counter, 5*time.Second, "when the faults are over")
}

// endInSpiteOfFaults deletes objects with children in another namespace, some of
// them before they were ready.
func endInSpiteOfFaults(t *testing.T, b *enginetest.Bench, far string) {
	t.Helper()
	var ended []client.Object
	for i := range 10 {
		s := b.Sample(fmt.Sprintf("short-%d", i), sample.SampleSpec{Far: far})
		b.Create(t, s)
		ended = append(ended, s)
		if i%2 == 0 {
			b.WaitReady(t, s.Name)
		}
		b.Delete(t, s)
	}
	testkit.Eventually(t, time.Minute, "the objects to go in spite of faults", func() error {
		return b.Ended(ended, []engine.Controller{sample.Controller()}, far)
	})
}
