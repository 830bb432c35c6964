// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

// quick are lifetimes for a clock that runs 12,000 times as fast as the real one: an authority is replaced every five
// seconds, and a second passes between the steps. Validity begins long before, since the API server has the real time.
var quick = Lifetimes{
	Authority: 27 * time.Hour,
	Serving:   9 * time.Hour,
	Backdate:  1000 * time.Hour,
	Settle:    200 * time.Minute,
	Grace:     200 * time.Minute,
}

// hurry moves the clock 12,000 times as fast as real time until the function is called.
func hurry(c *clocktesting.FakeClock) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	ticker := time.NewTicker(20 * time.Millisecond)
	go func() {
		defer close(done)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				c.Step(4 * time.Minute)
			}
		}
	}()
	return func() { close(quit); <-done }
}

func TestRotationUnderLoadFailsNoAdmission(t *testing.T) {
	b := newBench(t)
	clock := clocktesting.NewFakeClock(time.Now())
	first, _ := b.replica(b.cluster.Config(), clock, quick)
	second, _ := b.replica(b.cluster.Config(), clock, quick)
	b.ready(first, second)
	b.behind(first, second)
	b.settled()

	stopLoad := b.load(4)
	stopClock := hurry(clock)
	const rotations = 5
	seen := map[string]bool{fingerprint(b.roots()[0]): true}
	testkit.Eventually(t, 3*time.Minute, "the authorities to be replaced", func() error {
		for _, root := range b.roots() {
			seen[fingerprint(root)] = true
		}
		if len(seen) <= rotations {
			return fmt.Errorf("%d of %d replaced", len(seen)-1, rotations)
		}
		return nil
	})
	stopClock()
	admitted, failed := stopLoad()
	t.Logf("%d admissions, %d failed; %d authorities replaced; %d certificates served",
		admitted, len(failed), len(seen)-1, b.certificates())
	if len(failed) > 0 {
		t.Errorf("%d of %d admissions failed, the first with: %v", len(failed), admitted, failed[0])
	}
	if admitted < 200 {
		t.Errorf("only %d admissions, too few to prove anything", admitted)
	}
	if served := b.certificates(); served <= rotations {
		t.Errorf("%d certificates were served, want more than %d", served, rotations)
	}
	if got := len(b.roots()); got > 2 {
		t.Errorf("%d roots, want old ones to have left", got)
	}
}

func TestReplicasThatStartAtOnceAgree(t *testing.T) {
	b := newBench(t)
	clock := clocktesting.NewFakeClock(time.Now())
	var keepers []*Keeper
	for range 5 {
		keepers = append(keepers, b.keeper(b.cluster.Config(), Options{Clock: clock, Log: testLog(t)}))
	}
	for _, keeper := range keepers {
		b.run(keeper)
	}
	b.ready(keepers...)
	roots := b.roots()
	if len(roots) != 1 {
		t.Errorf("%d roots, want the one of the replica that was first", len(roots))
	}
	testkit.Eventually(t, patience, "all replicas to serve the same", func() error {
		for _, keeper := range keepers {
			if !keeper.slot.get().cert.Leaf.Equal(keepers[0].slot.get().cert.Leaf) {
				return errors.New("replicas serve different certificates")
			}
		}
		return nil
	})
	if err := b.consistent(); err != nil {
		t.Error(err)
	}
	version := b.secret().ResourceVersion
	testkit.Quiet(t, 2*time.Second, "the Secret's rest", func() error {
		if got := b.secret().ResourceVersion; got != version {
			return fmt.Errorf("the Secret went from %s to %s", version, got)
		}
		return nil
	})
}

func TestSteadyStateMakesNoRequests(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	clock := clocktesting.NewFakeClock(time.Now())
	keeper, stop := b.replica(counter.Wrap(b.cluster.Config()), clock, Lifetimes{})
	b.ready(keeper)
	var before testkit.Counts
	still := func() error {
		if since := counter.Since(before); since.Total() > 0 {
			return fmt.Errorf("requests:\n%s", since)
		}
		return nil
	}
	testkit.Eventually(t, patience, "the first requests to be over", func() error {
		before = counter.Snapshot()
		clock.Step(time.Minute)
		return b.consistent()
	})
	testkit.Quiet(t, 3*time.Second, "the quiet", func() error { clock.Step(time.Minute); return still() })
	stop()
	// A restart writes nothing either.
	keeper, _ = b.replica(counter.Wrap(b.cluster.Config()), clock, Lifetimes{})
	b.ready(keeper)
	if since := counter.Since(before); since.Writes() > 0 {
		t.Errorf("a restart wrote:\n%s", since)
	}
}

func TestDeletedSecretIsAForcedRotation(t *testing.T) {
	b := newBench(t)
	clock := clocktesting.NewFakeClock(time.Now())
	first, _ := b.replica(b.cluster.Config(), clock, quick)
	second, _ := b.replica(b.cluster.Config(), clock, quick)
	b.ready(first, second)
	b.behind(first, second)
	b.settled()
	old := b.roots()[0]
	stopLoad := b.load(2)
	if err := b.cluster.Client().Delete(t.Context(), b.secret()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "a Secret with a new authority and the old one", func() error {
		secret, err := b.findSecret()
		if err != nil {
			return err
		}
		roots, err := decodeCertificates(secret.Data[keyRoots])
		if err == nil && (len(roots) != 2 || !contains(roots, old)) {
			err = fmt.Errorf("%d roots", len(roots))
		}
		return err
	})
	defer hurry(clock)()
	testkit.Eventually(t, patience, "the old authority to leave", func() error {
		if contains(b.roots(), old) {
			return errors.New("it is still there")
		}
		return b.consistent()
	})
	if admitted, failed := stopLoad(); len(failed) > 0 || admitted == 0 {
		t.Errorf("%d admissions, %d failed: %v", admitted, len(failed), failed[0])
	}
}

func TestGarbageInTheSecretIsRepaired(t *testing.T) {
	for _, running := range []bool{true, false} {
		for _, key := range []string{keyRoots, keySigner, keyServing, keyPrivate, keyRotation} {
			t.Run(fmt.Sprintf("%s/running=%v", key, running), func(t *testing.T) {
				b := newBench(t)
				clock := clocktesting.NewFakeClock(time.Now())
				keeper, stop := b.replica(b.cluster.Config(), clock, Lifetimes{})
				b.ready(keeper)
				b.behind(keeper)
				b.settled()
				stopLoad := func() (int64, []error) { return 1, nil }
				if running {
					stopLoad = b.load(2)
				} else {
					stop()
				}
				secret := b.secret()
				secret.Data[key] = []byte("-----BEGIN NONSENSE-----")
				if err := b.cluster.Client().Update(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
				if !running {
					keeper, _ = b.replica(b.cluster.Config(), clock, Lifetimes{})
					b.behind(keeper)
				}
				testkit.Eventually(t, patience, "a usable Secret", func() error {
					if _, problem := decode(b.secret().Data, clock.Now()); problem != nil {
						return problem
					}
					return errors.Join(b.consistent(), keeper.Check(nil), b.admit(t.Context()))
				})
				if admitted, failed := stopLoad(); len(failed) > 0 || admitted == 0 {
					t.Errorf("%d admissions, %d failed: %v", admitted, len(failed), failed[0])
				}
			})
		}
	}
}

func TestPrivateKeysStayOutOfLogs(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	var lines bytes.Buffer
	clock := clocktesting.NewFakeClock(time.Now())
	keeper := b.keeper(b.cluster.Config(), Options{Clock: clock, Log: funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&lines, prefix, args)
	}, funcr.Options{Verbosity: 10})})
	stop := b.run(keeper)
	b.ready(keeper)
	secret := b.secret()
	secret.Data[keyRoots] = secret.Data[keySigner] // a key where a certificate belongs
	if err := b.cluster.Client().Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "the repair", func() error {
		_, problem := decode(b.secret().Data, clock.Now())
		return problem
	})
	stop()
	mu.Lock()
	defer mu.Unlock()
	if lines.Len() == 0 {
		t.Fatal("nothing was logged at all")
	}
	if bytes.Contains(lines.Bytes(), []byte("PRIVATE KEY-----")) || bytes.Contains(lines.Bytes(), []byte("BEGIN")) {
		t.Errorf("the log holds a key:\n%s", &lines)
	}
}

// TestRootsInUseOutliveTheSecret: a replica that starts without a Secret keeps trusting what others may still serve.
func TestRootsInUseOutliveTheSecret(t *testing.T) {
	b := newBench(t)
	clock := clocktesting.NewFakeClock(time.Now())
	first, stop := b.replica(b.cluster.Config(), clock, Lifetimes{})
	b.ready(first)
	old := first.slot.get().root
	stop() // it no longer looks after the Secret, but its last certificate may still be in use
	if err := b.cluster.Client().Delete(context.Background(), &corev1.Secret{ObjectMeta: b.secret().ObjectMeta},
		client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	second, _ := b.replica(b.cluster.Config(), clock, Lifetimes{})
	b.ready(second)
	if !contains(b.roots(), old) || len(b.roots()) != 2 {
		t.Errorf("%d roots, want the old one among two", len(b.roots()))
	}
	checkTrust(b, first, clock)
	checkTrust(b, second, clock)
}
