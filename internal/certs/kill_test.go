// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelplane/modelplane/internal/testkit"
)

// fuse cuts the line to the API server at the n-th request: before it is sent, or after it was carried out, in which
// case only writes count, since a read that was carried out leaves nothing behind.
type fuse struct {
	after bool
	blown chan struct{}

	mu   sync.Mutex
	left int
}

var errCut = errors.New("the process was killed")

func (f *fuse) wrap(cfg *rest.Config) *rest.Config {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			counts := req.URL.Query().Get("watch") != "true" && (!f.after || req.Method != http.MethodGet)
			cut, now := f.burn(counts)
			if now && f.after {
				if resp, err := next.RoundTrip(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
			if cut {
				return nil, errCut
			}
			return next.RoundTrip(req)
		})
	})
	return cfg
}

// burn tells whether the line is cut, and whether this request cut it.
func (f *fuse) burn(counts bool) (cut, now bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left > 0 && counts {
		if f.left--; f.left == 0 {
			now = true
			close(f.blown)
		}
	}
	return f.left == 0, now
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestKilledAtEveryRequest goes through a first start and a whole rotation, kills the only replica at each request in
// turn, and lets another finish. What was being served must be trusted at the moment of death, and after it.
func TestKilledAtEveryRequest(t *testing.T) {
	namespace := testkit.Start(t).Namespace(t)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			t.Run(fmt.Sprintf("request=%d/carriedOut=%v", n, after), func(t *testing.T) {
				died = killedAt(newBenchIn(t, namespace, fmt.Sprintf("webhook-%d-%v", n, after)), n, after)
			})
			if t.Failed() {
				return
			}
			if !died {
				// Create, inject, confirm, issue; announce, inject, confirm, issue, confirm, retire and inject.
				if n < 11 {
					t.Errorf("the rotation was over after %d requests, too few to be true", n-1)
				}
				break
			}
		}
	}
}

// slow keeps a serving certificate for as long as its authority, so that only authorities become due.
var slow = Lifetimes{
	Authority: quick.Authority,
	Serving:   quick.Authority,
	Backdate:  quick.Backdate,
	Settle:    quick.Settle,
	Grace:     quick.Grace,
}

func killedAt(b *bench, n int, after bool) (died bool) {
	clock := clocktesting.NewFakeClock(time.Now())
	cut := &fuse{left: n, after: after, blown: make(chan struct{})}
	victim, kill := b.replica(cut.wrap(b.cluster.Config()), clock, slow)
	finished := rotate(b, victim, clock, cut.blown)
	kill()
	if finished {
		return false
	}
	checkTrust(b, victim, clock)
	heir, _ := b.replica(b.cluster.Config(), clock, slow)
	eagerly(b.t, "the heir", func() error { return heir.Check(nil) })
	checkTrust(b, heir, clock)
	if !rotate(b, heir, clock, nil) {
		b.t.Error("the heir did not finish the rotation")
	}
	return true
}

func checkTrust(b *bench, keeper *Keeper, clock *clocktesting.FakeClock) {
	b.t.Helper()
	if cert := keeper.slot.get().cert; cert != nil {
		if err := b.trusts(cert, clock.Now()); err != nil {
			b.t.Error(err)
		}
	}
}

// rotate moves the clock to each moment at which something is due, until the authority of a ready replica has been
// replaced and the old one is gone, or the channel is closed.
func rotate(b *bench, keeper *Keeper, clock *clocktesting.FakeClock, died <-chan struct{}) bool {
	b.t.Helper()
	var old *x509.Certificate
	finished := false
	eagerly(b.t, "the rotation", func() error {
		select {
		case <-died:
			return nil
		default:
		}
		if err := keeper.Check(nil); err != nil {
			return err
		}
		s, err := decode(b.secret().Data, clock.Now())
		if err := errors.Join(err, b.consistent()); err != nil {
			return err
		}
		due, at := s.next(clock.Now(), slow, keeper.hosts())
		if due != stepNone {
			return fmt.Errorf("%s is due", due)
		}
		if old == nil {
			old = s.signer.cert
		}
		if len(s.roots) == 1 && !s.signer.cert.Equal(old) {
			finished = true
			return nil
		}
		clock.SetTime(at)
		return errors.New("the time has not come")
	})
	return finished
}

// eagerly is testkit.Eventually for a test that waits a few hundred times.
func eagerly(t *testing.T, what string, check func() error) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %s for %s, in vain: %v", patience, what, err)
		}
	}
}
