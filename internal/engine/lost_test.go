// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// lossy interrupts the watch on our ConfigMaps; what happens meanwhile is never
// told, because the API server has forgotten it by the time the watch is back.
type lossy struct {
	mu     sync.Mutex
	cut    bool
	begun  context.CancelFunc
	forgot bool
}

func (l *lossy) wrap(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			q := r.URL.Query()
			if !strings.HasSuffix(r.URL.Path, "/configmaps") || !strings.Contains(q.Get("labelSelector"), engine.LabelOwner) {
				return next.RoundTrip(r)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.cut {
				return nil, errors.New("the network is down")
			}
			if l.forgot && q.Get("watch") != "" && q.Get("sendInitialEvents") == "" {
				l.forgot = false
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old resource version","code":410}`
				return &http.Response{StatusCode: http.StatusGone, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(body))}, nil
			}
			ctx, cancel := context.WithCancel(r.Context())
			l.begun = cancel
			return next.RoundTrip(r.WithContext(ctx))
		})
	})
	return out
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (l *lossy) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.begun()
}

func (l *lossy) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.forgot = false, true
}

// TestAChildThatWasDeletedUnseen: written, deleted by somebody and listed anew in
// between, so that no event speaks of it.
func TestAChildThatWasDeletedUnseen(t *testing.T) {
	b := enginetest.NewParallel(t)
	net := &lossy{}
	b.Manage(t, net.wrap(b.Manager))
	b.Create(t, b.Sample("first", sample.SampleSpec{}))
	b.WaitReady(t, "first")
	net.interrupt()
	b.Create(t, b.Sample("second", sample.SampleSpec{}))
	cm := enginetest.ConfigMap(b.NS, "second")
	b.Exists(t, enginetest.Deployment(b.NS, "second"), "second") // of a later stage
	if err := b.C.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	net.resume()
	testkit.Eventually(t, time.Minute, "the ConfigMap to be made again", func() error {
		return b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)
	})
	b.WaitReady(t, "second")
}

// watchful counts how often objects are looked at.
type watchful struct {
	sample.Kind
	looks *atomic.Int32
}

func (k watchful) Observe(ctx context.Context, r engine.Reader, s *sample.Sample) (sample.Seen, error) {
	k.looks.Add(1)
	return k.Kind.Observe(ctx, r, s)
}

// TestEveryObjectIsLookedAtAgain without an event and without a request.
func TestEveryObjectIsLookedAtAgain(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter, looks := testkit.NewCounter(), &atomic.Int32{}
	pace := hasty
	pace.LookAgain = time.Second
	b.ManageAt(t, counter.Wrap(b.Manager), pace,
		engine.For[*sample.Sample, sample.Seen](watchful{looks: looks}, sample.Controller().Spec()))
	b.Create(t, b.Sample("one", sample.SampleSpec{Message: "hi"}), b.Sample("two", sample.SampleSpec{Message: "forbidden"}))
	b.WaitReady(t, "one")
	b.WaitReason(t, "two", "Ready", "MessageRefused")
	b.WaitEvents(t, "MessageRefused", 1)
	testkit.NoWrites(t, counter, quietFor, "when all is well")
	before, seen := counter.Snapshot(), looks.Load()
	testkit.Eventually(t, time.Minute, "several looks", func() error {
		if n := looks.Load() - seen; n < 8 {
			return fmt.Errorf("%d looks", n)
		}
		return nil
	})
	if since := counter.Since(before); since.Total() != 0 {
		t.Errorf("looking costs requests:\n%s", since)
	}
}
