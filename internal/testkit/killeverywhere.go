// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// KillTest describes a process and the state it should reach however often it
// dies on the way. Leader election should be off: the lease of a dead process
// would keep its successor waiting.
type KillTest struct {
	// Config is the way to the API server, as the process would have it if
	// nobody were to kill it.
	Config *rest.Config
	// Reset prepares the fresh state of a round: usually a new namespace with the
	// objects that the process is to look after. It must not rely on the state
	// of the round before; what it registers with t.Cleanup runs after the round.
	Reset func(t testing.TB)
	// Run is the process. It works until ctx ends and then returns.
	Run func(ctx context.Context, cfg *rest.Config) error
	// Converged returns nil when the wanted state is reached, and else what is missing.
	Converged func() error
	// Verify fails the test when the state that was reached is not as it should
	// be: something missing, something too much, something different.
	Verify func(t testing.TB)
	// Delete, if it is set, deletes the objects that Reset made, once the process
	// has converged; the process is killed on the way of their deletion as well.
	Delete func(t testing.TB)
	// Gone returns nil when the objects are gone with all that must go with them,
	// and else what is left.
	Gone func() error
	// Timeout bounds the wait for convergence; 0 stands for one minute.
	Timeout time.Duration
	// Settle is how long a process must make no call before it counts as being at
	// rest; 0 stands for 300 ms.
	Settle time.Duration
	// Stride leaves out rounds: 1 or 0 kills after every write, 5 after every fifth.
	Stride int
}

// KillAtReadsToo is the environment variable that, when it is set, makes
// KillEverywhere kill after every single call, for a run that may take long.
const KillAtReadsToo = "MODELPLANE_KILL_AT_READS_TOO"

// someReads is after how many reads a process is killed otherwise: a read leaves
// nothing behind, so that one is much like the other.
const someReads = 3

// KillEverywhere lets a process converge once to see which API calls that
// takes. Then, for each call that changes something and for a few others, it
// starts from a fresh state, kills the process right after that call, starts it
// again, waits until it converged, and verifies. Every round is a subtest.
func KillEverywhere(t *testing.T, test KillTest) {
	t.Helper()
	test.Timeout = cmp.Or(test.Timeout, time.Minute)
	test.Settle = cmp.Or(test.Settle, 300*time.Millisecond)
	test.Stride = max(1, test.Stride)

	var calls, writes int
	if !t.Run("undisturbed", func(t *testing.T) {
		test.Reset(t)
		calls, writes = test.runToRest(t, new(bool))
	}) {
		return
	}
	cuts := 0
	round := func(name string, killer *Killer) {
		t.Run(name, func(t *testing.T) {
			test.Reset(t)
			deleted := false
			if test.runUntilKilled(t, killer, &deleted) {
				cuts++
			}
			test.runToRest(t, &deleted)
		})
	}
	for n := 1; n <= writes; n += test.Stride {
		round(fmt.Sprintf("killed after %d of %d writes", n, writes), NewWriteKiller(n))
	}
	step := max(1, (calls-writes)/someReads)
	if os.Getenv(KillAtReadsToo) != "" {
		step = 1
	}
	for n := step; n <= calls-writes; n += step {
		round(fmt.Sprintf("killed after %d of %d reads", n, calls-writes), newKiller(n, func(c Call) bool { return !c.Mutating() }))
	}
	t.Logf("a full convergence takes %d calls, %d of them writes; killed in the middle %d times", calls, writes, cuts)
	if cuts == 0 {
		t.Error("the process was never killed, so this test has shown nothing")
	}
}

// runToRest runs the process without disturbance until it has converged and has
// nothing more to do, verifies, lets it delete, ends it, and returns the number
// of its calls and of those among them that changed something. deleted says how
// far an earlier process came.
func (k KillTest) runToRest(t *testing.T, deleted *bool) (calls, writes int) {
	t.Helper()
	killer := NewKiller(-1)
	process := k.start(killer)
	defer process.stop(t, k.Timeout)
	if err := k.live(t, process, killer, deleted); err != nil {
		t.Fatalf("no convergence: %v", err)
	}
	return killer.Calls(), killer.Writes()
}

// runUntilKilled tells whether the process was killed; it may come to rest
// before, when it needs fewer calls this time.
func (k KillTest) runUntilKilled(t *testing.T, killer *Killer, deleted *bool) bool {
	t.Helper()
	process := k.start(killer)
	defer process.stop(t, k.Timeout)
	err := k.live(t, process, killer, deleted)
	if killer.killed() {
		return true
	}
	if err != nil {
		t.Fatalf("neither killed, after %d calls, nor converged: %v", killer.Calls(), err)
	}
	return false
}

// live takes the objects from where they are to their end.
func (k KillTest) live(t *testing.T, p *process, killer *Killer, deleted *bool) error {
	t.Helper()
	if !*deleted {
		if err := k.rest(t, p, killer, k.Converged); err != nil || killer.killed() {
			return err
		}
		k.Verify(t)
	}
	if k.Delete == nil {
		return nil
	}
	if !*deleted {
		*deleted = true
		k.Delete(t)
	}
	return k.rest(t, p, killer, k.Gone)
}

// rest waits until the process reached a state and went quiet, or is dead.
func (k KillTest) rest(t testing.TB, p *process, killer *Killer, reached func() error) error {
	limit := patience(t, k.Timeout)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var missing error
	calls, since := -1, time.Now()
	err := poll(ctx, func() (bool, error) {
		select {
		case <-killer.Killed():
			return true, nil
		case <-p.ended:
			return false, fmt.Errorf("the process ended by itself: %w", p.err)
		default:
		}
		if now := killer.Calls(); now != calls {
			calls, since = now, time.Now()
		}
		missing = reached()
		return missing == nil && time.Since(since) >= k.Settle, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		if missing == nil {
			return fmt.Errorf("it converged and then did not come to rest within %s; %d calls so far", limit, calls)
		}
		return fmt.Errorf("after %s: %w", limit, missing)
	}
	return err
}

// process is a running KillTest.Run.
type process struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func (k KillTest) start(killer *Killer) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cancel: cancel, ended: make(chan struct{})}
	// A dead process does not wait to be told: its context ends with the cut.
	context.AfterFunc(killer.dead, cancel)
	go func() {
		defer close(p.ended)
		p.err = k.Run(ctx, killer.Wrap(k.Config))
		if p.err == nil && ctx.Err() == nil {
			p.err = errors.New("without an error")
		}
	}()
	return p
}

// stop ends the process and waits until it has gone, so that it cannot disturb
// the next one.
func (p *process) stop(t testing.TB, timeout time.Duration) {
	t.Helper()
	p.cancel()
	timeout = patience(t, timeout)
	select {
	case <-p.ended:
	case <-time.After(timeout):
		t.Fatalf("the process still runs %s after its context ended", timeout)
	}
}
