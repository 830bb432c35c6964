// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	testclock "k8s.io/utils/clock/testing"
)

func blockerKey(name string) childKey {
	return childKey{gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
}

// TestBlockersAreBounded: who finds no place among the watches comes back at
// growing intervals, and a place is free when nobody waits any more.
func TestBlockersAreBounded(t *testing.T) {
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	b := newBlockers(fake.NewSimpleMetadataClient(scheme), mapper)
	defer b.stop()
	b.most = 1
	c := newWaker()
	one, two := waiter{c, types.NamespacedName{Name: "one"}}, waiter{c, types.NamespacedName{Name: "two"}}
	if again := b.wait(one, map[childKey]string{blockerKey("a"): ""}); again != 0 {
		t.Errorf("the first is woken by the watch, not after %s", again)
	}
	first := b.wait(two, map[childKey]string{blockerKey("b"): ""})
	second := b.wait(two, map[childKey]string{blockerKey("b"): ""})
	if first != blockedPause || second != 2*blockedPause {
		t.Errorf("pauses are %s and %s", first, second)
	}
	for range 20 {
		b.wait(two, map[childKey]string{blockerKey("b"): ""})
	}
	if last := b.wait(two, map[childKey]string{blockerKey("b"): ""}); last != longestBlocked {
		t.Errorf("the longest pause is %s", last)
	}
	if again := b.wait(two, map[childKey]string{blockerKey("a"): ""}); again != 0 {
		t.Errorf("a watch can be shared, but: %s", again)
	}
	b.wait(one, nil)
	b.wait(two, nil)
	if len(b.by)+len(b.byWaiter)+len(b.tries) != 0 {
		t.Errorf("something is left: %v %v %v", b.by, b.byWaiter, b.tries)
	}
}

func TestRivals(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	r := newRivals(steady.Contest, clock)
	key := blockerKey("a")
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	repair := func(who string, fields ...string) (on, begun bool) { return r.repaired("uid", key, who, taken, fields) }

	for _, field := range []string{"spec.a", "spec.b", "spec.c", "spec.d"} { // one after the other
		if on, _ := repair("kubectl", field); on {
			t.Fatal("a person who edits is no rival")
		}
	}
	for range 5 {
		pass(6 * time.Minute)
		if on, _ := repair("kubectl", "spec.d"); on {
			t.Fatal("neither is one who edits now and then")
		}
	}
	pass(time.Hour)
	for i := range 3 {
		on, begun := repair("manager", "spec.a", "spec.b")
		if want := i == 2; on != want || begun != want {
			t.Fatalf("repair %d: %v %v", i, on, begun)
		}
	}
	if !r.held("uid", key) || r.problem("Sample", "uid") == nil {
		t.Error("the contest is not told of")
	}
	for _, pause := range []int{1, 2, 4, 8, 16, 30, 30} {
		pass(time.Duration(pause)*time.Minute - time.Second)
		if !r.held("uid", key) || r.due("uid") <= 0 {
			t.Fatalf("repaired before %d minutes were over", pause)
		}
		pass(time.Second)
		if r.held("uid", key) {
			t.Fatalf("not repaired after %d minutes", pause)
		}
		if on, begun := repair("manager", "spec.b"); !on || begun {
			t.Fatal("it is still the same contest")
		}
	}
	r.calm("uid", key)
	if r.problem("Sample", "uid") == nil {
		t.Error("over too early")
	}
	pass(10 * time.Minute)
	r.calm("uid", key)
	if r.problem("Sample", "uid") != nil || len(r.by) != 0 || r.due("uid") != 0 {
		t.Error("not over")
	}
}

func TestNamesOfManagersAreBounded(t *testing.T) {
	m := managerNames{known: map[string]bool{}}
	for i := range 100 {
		m.bounded(string(rune('a' + i)))
	}
	if len(m.known) != mostManagerNames || m.bounded("a") != "a" || m.bounded("new") != "other" {
		t.Errorf("%d names are known", len(m.known))
	}
}
