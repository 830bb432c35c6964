// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// configMaps returns clients for the ConfigMaps of a fresh namespace: one whose
// requests are subject to faults, and one behind it.
func configMaps(t *testing.T, faults *Faults) (broken, sound corev1client.ConfigMapInterface) {
	t.Helper()
	cluster := Start(t)
	namespace := cluster.Namespace(t)
	return kubernetes.NewForConfigOrDie(faults.Wrap(cluster.Config())).CoreV1().ConfigMaps(namespace),
		kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().ConfigMaps(namespace)
}

func create(configs corev1client.ConfigMapInterface, name string) error {
	_, err := configs.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func TestFaultsHappen(t *testing.T) {
	isTimeout := func(err error) bool {
		var timeout interface{ Timeout() bool }
		return errors.As(err, &timeout) && timeout.Timeout()
	}
	tests := []struct {
		rule Rule
		// is recognises the error at the client; nil stands for no error.
		is      func(error) bool
		created bool
		atLeast time.Duration
	}{
		{rule: Rule{Fault: InternalError}, is: apierrors.IsInternalError},
		{rule: Rule{Fault: Unavailable}, is: apierrors.IsServiceUnavailable},
		{rule: Rule{Fault: Conflict}, is: apierrors.IsConflict},
		{rule: Rule{Fault: Timeout}, is: isTimeout},
		{rule: Rule{Fault: Timeout, Delay: 80 * time.Millisecond}, is: isTimeout, atLeast: 80 * time.Millisecond},
		{rule: Rule{Fault: ClosedBefore}, is: func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		{rule: Rule{Fault: ClosedAfter}, is: func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }, created: true},
		{rule: Rule{Fault: Slow, Delay: 80 * time.Millisecond}, created: true, atLeast: 80 * time.Millisecond},
		// The client obeys Retry-After and succeeds at the second attempt.
		{rule: Rule{Fault: TooManyRequests, Nth: 1}, created: true, atLeast: time.Second},
	}
	for _, test := range tests {
		t.Run(string(test.rule.Fault), func(t *testing.T) {
			test.rule.Verbs, test.rule.Targets = []string{"create"}, []string{"configmaps"}
			faults := NewFaults(1).Add(test.rule)
			broken, sound := configMaps(t, faults)
			begin := time.Now()
			err := create(broken, "c")
			if (err != nil) != (test.is != nil) || err != nil && !test.is(err) {
				t.Errorf("error = %v (%T)", err, err)
			}
			if took := time.Since(begin); took < test.atLeast {
				t.Errorf("took %s, want %s at least", took, test.atLeast)
			}
			if _, err := sound.Get(t.Context(), "c", metav1.GetOptions{}); (err == nil) != test.created {
				t.Errorf("looking on the server: error = %v, want created = %v", err, test.created)
			}
			if diff := cmp.Diff(map[Fault]int{test.rule.Fault: 1}, faults.ByFault()); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaultsChooseByVerbTargetAndNumber(t *testing.T) {
	faults := NewFaults(1).Add(
		Rule{Fault: InternalError, Verbs: []string{"create"}, Targets: []string{"configmaps"}, Nth: 3},
		Rule{Fault: Conflict, Verbs: []string{"delete"}, Limit: 2},
		Rule{Fault: Unavailable, Targets: []string{"secrets"}},
	)
	broken, _ := configMaps(t, faults)
	for i := 1; i <= 5; i++ {
		if err := create(broken, fmt.Sprint("c", i)); (err != nil) != (i == 3) {
			t.Errorf("create %d: error = %v", i, err)
		}
	}
	for i := 1; i <= 4; i++ {
		err := broken.Delete(t.Context(), "c1", metav1.DeleteOptions{})
		if apierrors.IsConflict(err) != (i <= 2) {
			t.Errorf("delete %d: error = %v", i, err)
		}
	}
	if got := faults.Injected(); got != 3 {
		t.Errorf("faults = %d, want 3", got)
	}
}

func TestFaultsOffAndOn(t *testing.T) {
	faults := NewFaults(1).Add(Rule{Fault: InternalError})
	broken, _ := configMaps(t, faults)
	faults.Off()
	if err := create(broken, "off"); err != nil {
		t.Errorf("switched off: %v", err)
	}
	faults.On()
	if err := create(broken, "on"); err == nil {
		t.Error("switched on: no error")
	}
	faults.Clear()
	if err := create(broken, "on"); err != nil {
		t.Errorf("without rules: %v", err)
	}
	if got := faults.Injected(); got != 1 {
		t.Errorf("faults = %d, want 1", got)
	}
}

func TestFaultsEndWithTheRequest(t *testing.T) {
	broken, _ := configMaps(t, NewFaults(1).Add(Rule{Fault: Slow, Delay: time.Hour}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := broken.List(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want the request's own deadline", err)
	}
}

func TestFaultsFollowTheSeed(t *testing.T) {
	call := Call{Verb: "list", Resource: "pods"}
	pattern := func(seed uint64) (out string) {
		faults := NewFaults(seed).Add(Rule{Fault: Conflict, Probability: 0.1})
		for range 2000 {
			_, struck := faults.choose(call)
			out += map[bool]string{true: "x", false: "."}[struck]
		}
		if n := faults.Injected(); n < 140 || n > 260 {
			t.Errorf("seed %d: %d of 2000 failed, want about 200", seed, n)
		}
		return out
	}
	seven := pattern(7)
	if again := pattern(7); seven != again {
		t.Error("the same seed chose differently")
	}
	if seven == pattern(8) {
		t.Error("two seeds chose the same")
	}
}

// TestFaultsCountTheSameInAnyOrder: many goroutines get the same number of
// faults as one, and the race detector has something to look at.
func TestFaultsCountTheSameInAnyOrder(t *testing.T) {
	rule := Rule{Fault: Conflict, Probability: 0.3}
	alone, together := NewFaults(3).Add(rule), NewFaults(3).Add(rule)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				together.choose(Call{Verb: "get"})
			}
		})
	}
	wg.Wait()
	for range 1000 {
		alone.choose(Call{Verb: "get"})
	}
	if alone.Injected() != together.Injected() {
		t.Errorf("alone %d, together %d", alone.Injected(), together.Injected())
	}
}
