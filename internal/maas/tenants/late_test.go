// SPDX-License-Identifier: Apache-2.0

package tenants_test

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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/tenants"
	"github.com/modelplane/modelplane/internal/testkit"
)

// gate holds back what watches on AITenants tell while it is closed, as a busy machine does.
type gate struct {
	mu   sync.Mutex
	open chan struct{}
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() (reopen func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := make(chan struct{})
	g.open = held
	return sync.OnceFunc(func() { close(held) })
}

func (g *gate) wrap(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && strings.HasSuffix(req.URL.Path, "/aitenants") && req.URL.Query().Get("watch") != "" {
				resp.Body = &gated{ReadCloser: resp.Body, gate: g, ctx: req.Context()}
			}
			return resp, err
		})
	})
	return cfg
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// gated is a watch that tells nothing while the gate is shut.
type gated struct {
	io.ReadCloser
	gate *gate
	ctx  context.Context
}

func (g *gated) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	g.gate.mu.Lock()
	open := g.gate.open
	g.gate.mu.Unlock()
	select {
	case <-open:
		return n, err
	case <-g.ctx.Done():
		return 0, g.ctx.Err()
	}
}

// TestRevokedOnce: the keys of a tenant are revoked once, also when what was put on record about it is seen late.
func TestRevokedOnce(t *testing.T) {
	b, g := newBench(t), newGate()
	b.Install(t, testkit.GatewayAPI)
	b.Create(t, b.gateway("door"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: tenants.DatabaseSecret}, StringData: map[string]string{"DB_CONNECTION_URL": "postgres://x"}})
	obj := b.tenant("red-" + b.id)
	obj.Spec.Gateway = &v1alpha1.AITenantGateway{Name: "door"}
	b.Create(t, obj)
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, g.wrap(b.Manager)) })
	testkit.Eventually(t, domaintest.Patience, "the settings", func() error { return b.settle("ai-tenant-" + obj.Name) })
	b.says(t, obj, "Reconciled")
	b.Delete(t, obj)
	b.says(t, obj, "DeletionInProgress")
	job := &batchv1.Job{}
	b.Exists(t, job, "maas-api-revoke-keys-"+obj.Name)

	reopen := g.shut()
	defer reopen()
	testkit.Eventually(t, domaintest.Patience, "the Job", func() error { return b.finish(obj.Name) })
	b.says(t, obj, "DeletionInProgress")
	first := job.UID
	testkit.Quiet(t, 2*time.Second, "one Job", func() error { return b.sameJob(obj.Name, first) })
	reopen()
	testkit.Eventually(t, domaintest.Patience, "the end", func() error {
		if err := b.sameJob(obj.Name, first); err != nil {
			t.Fatal(err)
		}
		return gone(b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), &v1alpha1.AITenant{}))
	})
}

// sameJob is nil while no other Job than this one revokes keys.
func (b *bench) sameJob(tenant string, uid types.UID) error {
	job := &batchv1.Job{}
	err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: "maas-api-revoke-keys-" + tenant}, job)
	if err == nil && job.UID != uid {
		return errors.New("the keys are revoked once more")
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for the Job: %w", err)
	}
	return nil
}
