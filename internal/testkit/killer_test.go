// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func isKilled(k *Killer) bool {
	select {
	case <-k.Killed():
		return true
	default:
		return false
	}
}

func TestKillerKills(t *testing.T) {
	cluster := Start(t)
	namespace, ctx := cluster.Namespace(t), t.Context()
	killer := NewKiller(4)
	kube := kubernetes.NewForConfigOrDie(killer.Wrap(cluster.Config()))
	configs := kube.CoreV1().ConfigMaps(namespace)

	watch, err := configs.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for _, name := range []string{"a", "b"} {
		if err := create(configs, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kube.CoordinationV1().Leases(namespace).Apply(ctx, coordinationv1ac.Lease("l", namespace), metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Fatalf("a lease counts although it should not: %v", err)
	}
	if isKilled(killer) || killer.Calls() != 3 {
		t.Fatalf("killed = %v after %d calls, want alive after 3", isKilled(killer), killer.Calls())
	}

	if err := create(configs, "last"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the last call: error = %v, want its answer lost", err)
	}
	if !isKilled(killer) {
		t.Error("not killed by the last call")
	}
	if err := create(configs, "never"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the cut: error = %v, want refused", err)
	}
	if _, err := kube.CoordinationV1().Leases(namespace).Get(ctx, "l", metav1.GetOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a lease after the cut: error = %v, want refused", err)
	}
	deadline := time.After(10 * time.Second)
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-deadline:
			t.Fatal("the watch is still open")
		}
	}
	if killer.Calls() != 4 {
		t.Errorf("calls = %d, want 4", killer.Calls())
	}
	for name, want := range map[string]bool{"a": true, "b": true, "last": true, "never": false} {
		err := cluster.Client().Get(ctx, clientKey(namespace, name), &corev1.ConfigMap{})
		if (err == nil) != want {
			t.Errorf("%s on the server: error = %v, want there = %v", name, err, want)
		}
	}
}

func TestWriteKillerCountsWrites(t *testing.T) {
	cluster := Start(t)
	namespace, ctx := cluster.Namespace(t), t.Context()
	killer := NewWriteKiller(2)
	configs := kubernetes.NewForConfigOrDie(killer.Wrap(cluster.Config())).CoreV1().ConfigMaps(namespace)
	if err := create(configs, "a"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := configs.List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatalf("a read counts although it should not: %v", err)
		}
	}
	if err := create(configs, "b"); !errors.Is(err, syscall.ECONNREFUSED) || !isKilled(killer) {
		t.Errorf("the last write: error = %v, killed = %v, want its answer lost", err, isKilled(killer))
	}
	if _, err := configs.List(ctx, metav1.ListOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a read after the cut: error = %v, want refused", err)
	}
	if killer.Calls() != 5 || killer.Writes() != 2 {
		t.Errorf("%d calls and %d writes passed, want 5 and 2", killer.Calls(), killer.Writes())
	}
}

func TestKillerAtZeroAndNever(t *testing.T) {
	if !isKilled(NewKiller(0)) {
		t.Error("NewKiller(0) lives")
	}
	cluster := Start(t)
	killer := NewKiller(-1)
	kube := kubernetes.NewForConfigOrDie(killer.Wrap(cluster.Config()))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if isKilled(killer) || killer.Calls() != 20 {
		t.Errorf("killed = %v after %d calls, want alive after 20", isKilled(killer), killer.Calls())
	}
}

func TestKillerLetsExactlyNThroughAtOnce(t *testing.T) {
	cluster := Start(t)
	namespace := cluster.Namespace(t)
	killer := NewKiller(7)
	configs := kubernetes.NewForConfigOrDie(killer.Wrap(cluster.Config())).CoreV1().ConfigMaps(namespace)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() { _ = create(configs, fmt.Sprint("c", i)) })
	}
	wg.Wait()
	var list corev1.ConfigMapList
	if err := cluster.Client().List(t.Context(), &list, inNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 7 {
		t.Errorf("%d objects were created, want 7", len(list.Items))
	}
}

// chain is a small process: it makes three ConfigMaps, one after the other, and
// then sleeps. What it does with those it finds decides whether it survives.
func chain(namespace *string, names func() []string) func(ctx context.Context, cfg *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		configs := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(*namespace)
		for _, name := range names() {
			if err := create(configs, name); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		<-ctx.Done()
		return nil
	}
}

// chainTest is a KillTest over a chain, and the number of its rounds.
func chainTest(t *testing.T, names func() []string) (KillTest, *int) {
	cluster := Start(t)
	var namespace string
	rounds := 0
	list := func() (found []string, err error) {
		var list corev1.ConfigMapList
		err = cluster.Client().List(context.Background(), &list, inNamespace(namespace))
		for _, item := range list.Items {
			found = append(found, item.Name[:1])
		}
		return found, err
	}
	return KillTest{
		Config: cluster.Config(),
		Settle: 50 * time.Millisecond, Timeout: time.Minute,
		Reset: func(t testing.TB) { rounds++; namespace = cluster.Namespace(t) },
		Run:   chain(&namespace, names),
		Converged: func() error {
			found, err := list()
			if err == nil && len(found) < 3 {
				err = fmt.Errorf("only %v", found)
			}
			return err
		},
		Verify: func(t testing.TB) {
			found, err := list()
			if diff := cmp.Diff([]string{"a", "b", "c"}, found); diff != "" || err != nil {
				t.Errorf("error %v, objects (-want +got):\n%s", err, diff)
			}
		},
	}, &rounds
}

func TestKillEverywhere(t *testing.T) {
	test, rounds := chainTest(t, func() []string { return []string{"a", "b", "c"} })
	KillEverywhere(t, test)
	if *rounds != 4 {
		t.Errorf("%d rounds, want one undisturbed and one for each of 3 calls", *rounds)
	}
}

// TestKillFindsAnOrphan plants the classic fault: a process that gives its
// objects new names at every start forgets those of its former life.
func TestKillFindsAnOrphan(t *testing.T) {
	starts := 0
	test, _ := chainTest(t, func() []string {
		starts++
		return []string{fmt.Sprint("a", starts), "b", "c"}
	})
	var found []string
	verify := test.Verify
	test.Verify = func(testing.TB) { found = try(t, verify) }
	test.Reset(t)
	if !test.runUntilKilled(t, NewKiller(1), new(bool)) {
		t.Fatal("the process was not killed")
	}
	test.runToRest(t, new(bool))
	if !strings.Contains(strings.Join(found, "\n"), `"a"`) {
		t.Errorf("complaints = %q, want the orphan of the first life", found)
	}
}

func TestKillTestReportsAProcessThatEnds(t *testing.T) {
	test, _ := chainTest(t, func() []string { return nil })
	test.Run = func(context.Context, *rest.Config) error { return errors.New("no room") }
	test.Reset(t)
	killer := NewKiller(-1)
	p := test.start(killer)
	if err := test.rest(t, p, killer, test.Converged); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("error = %v, want the words of the process", err)
	}
}

func TestKillTestReportsWhatIsMissing(t *testing.T) {
	test, _ := chainTest(t, func() []string { return []string{"a"} })
	test.Timeout = 300 * time.Millisecond
	test.Reset(t)
	killer := NewKiller(-1)
	p := test.start(killer)
	defer p.stop(t, time.Minute)
	if err := test.rest(t, p, killer, test.Converged); err == nil || !strings.Contains(err.Error(), "only [a]") {
		t.Errorf("error = %v, want what is missing", err)
	}
}
