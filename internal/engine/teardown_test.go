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
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// lastSeen is what the end of an object depends on.
type lastSeen struct {
	sample.Seen
	Finished bool
}

// lastly is a sample that runs a Job before its end: the Deployment goes first,
// the Service is needed until the Job is done.
type lastly struct{ sample.Kind }

func (k lastly) Observe(ctx context.Context, r engine.Reader, s *sample.Sample) (lastSeen, error) {
	seen, err := k.Kind.Observe(ctx, r, s)
	if err != nil {
		return lastSeen{}, err
	}
	job := &batchv1.Job{}
	job.Namespace, job.Name = s.Namespace, s.Name+"-job"
	err = r.Child(ctx, job)
	return lastSeen{Seen: seen, Finished: err == nil && job.Status.Succeeded > 0}, client.IgnoreNotFound(err)
}

func (k lastly) Plan(s *sample.Sample, seen lastSeen) engine.Plan { return k.Kind.Plan(s, seen.Seen) }

func (k lastly) Teardown(s *sample.Sample, seen lastSeen) engine.Ending {
	if seen.Finished {
		return engine.Ending{Finished: true}
	}
	last := s.DeepCopy()
	last.Spec.Job = "farewell"
	ending := engine.Ending{}
	for _, c := range k.Kind.Plan(last, seen.Seen).Children {
		switch c.Object.(type) {
		case *corev1.Service, *batchv1.Job:
			ending.Children = append(ending.Children, c)
		}
	}
	return ending
}

func lastlyController() engine.Controller {
	return engine.For[*sample.Sample, lastSeen](lastly{}, sample.Controller().Spec())
}

func TestTeardown(t *testing.T) {
	b := enginetest.NewParallel(t)
	far := b.Namespace(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), lastlyController())
	s := b.Sample("one", sample.SampleSpec{Far: far, Keep: true})
	b.Create(t, s)
	b.WaitReady(t, "one")
	if err := b.C.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{}
	b.Exists(t, job, "one-job")
	b.Gone(t, &appsv1.Deployment{}, "one")
	b.WaitReason(t, "one", "Ready", "Deleting")
	b.Exists(t, &corev1.Service{}, "one")
	testkit.NoWrites(t, counter, quietFor, "while the Job runs")
	before := counter.Snapshot().Total()
	testkit.NoWrites(t, counter, quietFor, "while the Job runs")
	if n := counter.Snapshot().Total() - before; n > 0 {
		t.Errorf("waiting cost %d requests", n)
	}
	job.Status.Succeeded = 1
	if err := b.C.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	b.WaitGone(t, s)
	b.WaitGone(t, enginetest.ConfigMap(far, b.NS+"-one"))
	b.Exists(t, &corev1.ConfigMap{}, "one-kept")
}

// TestTeardownInANamespaceThatGoes: where nothing can be made any more, nothing is
// waited for.
func TestTeardownInANamespaceThatGoes(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager, lastlyController())
	s := b.Sample("one", sample.SampleSpec{})
	b.Create(t, s)
	b.WaitReady(t, "one")
	ns := &corev1.Namespace{}
	ns.Name = b.NS
	for _, obj := range []client.Object{ns, s} {
		if err := b.C.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	b.WaitGone(t, s)
}

// gate holds the watches on one resource of ours back while it is closed.
type gate struct {
	path string
	mu   sync.Mutex
	open chan struct{}
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if open {
		close(g.open)
		return
	}
	g.open = make(chan struct{})
}

func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) wrap(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			query := req.URL.Query()
			if err == nil && strings.HasSuffix(req.URL.Path, g.path) && query.Get("watch") != "" && strings.Contains(query.Get("labelSelector"), engine.LabelOwner) {
				resp.Body = &gated{ReadCloser: resp.Body, gate: g, ctx: req.Context()}
			}
			return resp, err
		})
	})
	return cfg
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// gated is a watch that delivers nothing while the gate is closed.
type gated struct {
	io.ReadCloser
	gate *gate
	ctx  context.Context
}

func (g *gated) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if gateErr := g.gate.wait(g.ctx); gateErr != nil {
		return 0, gateErr
	}
	return n, err
}

// TestFarChildThatIsNotSeenYet: an object is deleted before the cache knows of the
// child that it has in another namespace.
func TestFarChildThatIsNotSeenYet(t *testing.T) {
	b := enginetest.NewParallel(t)
	far := b.Namespace(t)
	g := &gate{path: "/configmaps"}
	g.set(false)
	g.set(true)
	b.Manage(t, g.wrap(b.Manager))
	b.Create(t, b.Sample("first", sample.SampleSpec{}))
	b.WaitReady(t, "first")
	g.set(false)
	s := b.Sample("one", sample.SampleSpec{Far: far})
	b.Create(t, s)
	remote := enginetest.ConfigMap(far, b.NS+"-one")
	testkit.Eventually(t, 30*time.Second, "the far child", func() error {
		return b.C.Get(t.Context(), client.ObjectKeyFromObject(remote), remote)
	})
	if err := b.C.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, "the object to go", func() error {
		err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(remote), remote); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the far child was left behind: %v", fmt.Sprint(remote.Labels, err))
	}
	g.set(true)
}
