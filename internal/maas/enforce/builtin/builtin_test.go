// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	_ "modernc.org/sqlite" // a driver of database/sql
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/redis"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const key = "sk-oai-abc_def"

// keeper is the internal side of the API: one key, and usage in SQLite. It answers only whoever shows the token.
func keeper(t *testing.T) (address string, usage *metering.SQL) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "usage.db")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	usage = metering.NewSQL(db, false)
	if err := usage.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+metering.PathAdd, metering.Receive(usage, "t", slog.New(slog.DiscardHandler)))
	mux.HandleFunc("POST /internal/v1/api-keys/validate", func(w http.ResponseWriter, req *http.Request) {
		var ask struct{ Key string }
		if err := json.NewDecoder(req.Body).Decode(&ask); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"valid": ask.Key == key, "tenant": "t", "username": "alice", "groups": []string{"team"}, "keyId": "id-1", "subscription": "gold"})
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer ours" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return server.URL, usage
}

// fed is an index that is filled when it runs: a model, a subscription with a limit of 10 tokens, and a policy.
type fed struct {
	index *selection.Index
	group string
	done  atomic.Bool
}

func (f *fed) Synced() bool { return f.done.Load() }

func (f *fed) Run(ctx context.Context) error {
	model := selection.Model{Namespace: "llm", Name: "granite"}
	f.index.PutModelRef(&selection.ModelRef{Model: model, Ready: true})
	f.index.PutSubscription(&selection.Subscription{
		Namespace: "n", Name: "gold", Groups: []string{"team", f.group}, Phase: selection.Active,
		Models: []selection.SubscribedModel{{Model: model, Limits: []selection.Limit{{Tokens: 10, Window: "1h"}}}},
	})
	f.index.PutAuthPolicy(&selection.AuthPolicy{Namespace: "n", Name: "open", Groups: []string{"team", f.group}, Models: []selection.Model{model}})
	f.done.Store(true)
	<-ctx.Done()
	return nil
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTogether has a real API server, a real counters' server, and an API over a socket.
func TestTogether(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	c, err := client.New(cluster.Config(), client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bob"}}); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "bob", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address, usage := keeper(t)
	counters := redis.Start(t)
	f := Flags{API: address, TokenFile: write(t, "token", "ours"), Tenant: "t", Namespace: "n", CountersFile: write(t, "url", counters.URL(0)+"\n"), Patience: 5 * time.Second, Expect: 100}
	index := selection.NewIndex()
	feed := &fed{index: index, group: "system:serviceaccounts:" + namespace}
	parts, err := New(f, cluster.Config(), index, feed, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(credential string) enforcer.Decision {
		t.Helper()
		d, err := parts.Decide(t.Context(), enforcer.Request{
			Method: http.MethodPost, Path: "/v1/chat/completions", Model: "granite", Format: enforcer.ChatCompletions, Headers: http.Header{"Authorization": {"Bearer " + credential}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := ask(key); d.Status != http.StatusServiceUnavailable {
		t.Errorf("before anything was read: %+v", d)
	}
	began := time.Now()
	err = around(t.Context(), parts, func(ctx context.Context) error {
		testkit.Eventually(t, time.Minute, "subscriptions to be read", parts.Ready)
		for _, credential := range []string{key, token.Status.Token} {
			d := ask(credential)
			if !d.Allowed() || d.Headers["X-MaaS-Subscription"] != "gold" {
				return fmt.Errorf("it was to be let through: %+v", d)
			}
			d.Report(enforcer.Usage{Prompt: 4, Completion: 6, Total: 10, Known: true, Status: 200, Complete: true})
			if d := ask(credential); d.Status != http.StatusTooManyRequests {
				return fmt.Errorf("it was over the limit: %+v", d)
			}
		}
		if d := ask("sk-oai-no_no"); d.Status != http.StatusForbidden {
			return fmt.Errorf("an unknown key: %+v", d)
		}
		if d := ask("nonsense"); d.Status != http.StatusUnauthorized {
			return fmt.Errorf("an unknown token: %+v", d)
		}
		counters.Stop()
		if d := ask(key); d.Status != http.StatusServiceUnavailable {
			return fmt.Errorf("without counters: %+v", d)
		}
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	hour := began.Truncate(time.Hour)
	rows, err := usage.Sum(t.Context(), metering.Query{Tenant: "t", From: hour, To: hour.Add(3 * time.Hour), By: []metering.Dimension{metering.ByUser, metering.ByKey}})
	if err != nil || len(rows) != 2 || rows[0].Username != "alice" || rows[0].KeyID != "id-1" || rows[0].Total != 10 || !strings.HasSuffix(rows[1].Username, ":bob") || rows[1].Total != 10 {
		t.Errorf("what was used is not with the API: %+v, %v", rows, err)
	}
}

// around runs a server, and all tasks from before its beginning until after its end.
func around(ctx context.Context, p *Parts, serve func(context.Context) error) error {
	longer, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, len(p.Tasks))
	for _, task := range p.Tasks {
		go func() { ended <- task(longer) }()
	}
	err := serve(ctx)
	stop()
	for range p.Tasks {
		err = errors.Join(err, <-ended)
	}
	return err
}

func TestFlags(t *testing.T) {
	nothing := func(string) string { return "" }
	good := func() *Flags {
		var f Flags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Register(flags)
		if err := flags.Parse([]string{"--maas-api-url=https://maas-api:9443", "--tenant=t", "--subscription-namespace=n"}); err != nil {
			t.Fatal(err)
		}
		return &f
	}
	if err := good().Check("", nil, nothing); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Flags){
		"no address":         func(f *Flags) { f.API = "maas-api:9443" },
		"a password":         func(f *Flags) { f.API = "https://a:b@maas-api:9443" },
		"no tenant":          func(f *Flags) { f.Tenant = "" },
		"no namespace":       func(f *Flags) { f.Namespace = "" },
		"nothing":            func(f *Flags) { f.Expect = 0 },
		"no patience":        func(f *Flags) { f.Patience = 0 },
		"half a provider":    func(f *Flags) { f.OIDC.Issuer = "https://issuer" },
		"a provider without": func(f *Flags) { f.OIDC.Issuer, f.OIDC.ClientID = "http://issuer", "c" },
	} {
		f := good()
		if spoil(f); f.Check("", nil, nothing) == nil {
			t.Errorf("%s: it was to be refused", name)
		}
	}
	empty := good()
	empty.CA = write(t, "ca.crt", "")
	if _, err := empty.client(); err == nil {
		t.Error("an empty file was taken for authorities")
	}
	f := good()
	f.CountersFile = write(t, "url", "redis://user:hunter2@host:port:1/x")
	if _, _, err := f.ledger(slog.Default()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	f.CountersFile = "/does/not/exist"
	if _, _, err := f.ledger(slog.Default()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
