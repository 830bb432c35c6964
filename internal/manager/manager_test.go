// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestHealthAndProfiling(t *testing.T) {
	r := run(t, options(t, testkit.Start(t).Namespace(t)))
	r.ready()
	for _, path := range []string{"/healthz", "/readyz", "/readyz/certificates", "/readyz/webhooks", "/readyz/caches", "/readyz/shutdown"} {
		if code, body, err := get(http.DefaultClient, r.health+path, ""); err != nil || code != http.StatusOK {
			t.Errorf("%s: %d %s %v", path, code, body, err)
		}
	}
	if code, body, err := get(http.DefaultClient, r.profile+"/debug/pprof/", ""); err != nil || code != http.StatusOK || contains(body, "goroutine") != nil {
		t.Errorf("profiling: %d %v", code, err)
	}
	if code, _, _ := get(http.DefaultClient, r.health+"/debug/pprof/", ""); code != http.StatusNotFound {
		t.Errorf("profiling on the health address: %d, want 404", code)
	}
	r.stop()
	if err := r.wait(); err != nil {
		t.Errorf("Run = %v, want a clean stop", err)
	}
}

func TestMetricsAskTheAPIServer(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	r := run(t, options(t, namespace))
	r.ready()
	reader := cluster.ServiceAccountConfig(t, namespace, "reader")
	stranger := cluster.ServiceAccountConfig(t, namespace, "stranger")
	meta := metav1.ObjectMeta{Name: namespace + "-metrics"}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reader"}}}
	for _, obj := range []client.Object{role, binding} {
		if err := cluster.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cluster.Client().Delete(context.Background(), obj) })
	}
	// The certificate is good for the metrics Service, so that a scraper can verify it.
	scraper := r.trusting("modelplane-metrics." + namespace + ".svc")
	for _, c := range []struct {
		name, token string
		want        int
	}{
		{"no token", "", http.StatusUnauthorized},
		{"a wrong token", "nonsense", http.StatusUnauthorized},
		{"a token without permission", stranger.BearerToken, http.StatusForbidden},
		{"a token with permission", reader.BearerToken, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body, err := get(scraper, r.metrics+"/metrics", c.token)
			if err != nil || code != c.want {
				t.Fatalf("%d %v, want %d", code, err, c.want)
			}
			if shown := strings.Contains(body, "modelplane_"); shown != (c.want == http.StatusOK) {
				t.Errorf("metrics shown: %v", shown)
			}
			if c.want == http.StatusOK {
				if err := contains(body, "modelplane_build_info{", "modelplane_serving_certificate_expiry_timestamp_seconds"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if code, _, _ := get(http.DefaultClient, "http://"+r.opts.MetricsAddress+"/metrics", reader.BearerToken); code == http.StatusOK {
		t.Error("metrics are served without TLS")
	}
}

func TestTLSIsNarrow(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			opts := options(t, testkit.Start(t).Namespace(t))
			opts.HTTP2 = http2
			r := run(t, opts)
			r.ready()
			for _, address := range []string{opts.MetricsAddress, strings.TrimPrefix(opts.WebhookURL, "https://")} {
				conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
				if err != nil {
					t.Fatal(err)
				}
				protocol := conn.ConnectionState().NegotiatedProtocol
				conn.Close()
				if want := map[bool]string{false: "http/1.1", true: "h2"}[http2]; protocol != want {
					t.Errorf("%s speaks %q, want %q", address, protocol, want)
				}
				if conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil {
					conn.Close()
					t.Errorf("%s speaks TLS 1.1", address)
				}
			}
		})
	}
}

// TestShutdownAnswersWhatIsInFlight: a webhook that is being decided when the signal comes is answered, later ones are
// still accepted for a while, and the process ends without an error.
func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	entered, decide := make(chan struct{}), make(chan struct{})
	domain := configMaps(func(_ context.Context, cm *corev1.ConfigMap) error {
		if cm.Name == "slow" {
			close(entered)
			<-decide
		}
		return nil
	})
	hook(t, cluster, namespace, domain.Admission[0])
	opts := options(t, namespace)
	opts.ShutdownDelay = time.Second
	opts.LeaderElection = true
	r := run(t, opts, domain)
	r.ready()
	testkit.Eventually(t, patience, "the webhook", func() error { return create(t.Context(), cluster, namespace, "first") })

	slow := make(chan error, 1)
	go func() { slow <- create(context.Background(), cluster, namespace, "slow") }()
	<-entered
	r.stop()
	testkit.Eventually(t, patience, "the manager to be unready", func() error {
		code, _, err := get(http.DefaultClient, r.health+"/readyz", "")
		if err == nil && code == http.StatusOK {
			err = errors.New("still ready")
		}
		return err
	})
	if err := create(t.Context(), cluster, namespace, "late"); err != nil {
		t.Errorf("a request right after the signal: %v", err)
	}
	code, closing := review(t, r.trusting("127.0.0.1"), r.hooks+domain.Admission[0].ValidatePath())
	if code != http.StatusOK || !closing {
		t.Errorf("a late answer: %d, asks to connect anew: %v; want 200 and true", code, closing)
	}
	select {
	case err := <-slow:
		t.Fatalf("the slow request ended early: %v", err)
	case err := <-r.done:
		t.Fatalf("the manager ended before it had answered: %v", err)
	case <-time.After(opts.ShutdownDelay + 500*time.Millisecond):
	}
	close(decide)
	if err := <-slow; err != nil {
		t.Errorf("the request that was in flight: %v", err)
	}
	if err := r.wait(); err != nil {
		t.Errorf("Run = %v, want a clean stop", err)
	}
	var lease coordinationv1.Lease
	if err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: LeaseName}, &lease); err != nil {
		t.Fatal(err)
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
		t.Errorf("the lease is still held by %q", holder)
	}
}

// review posts an empty review and tells whether the server will close the connection.
func review(t *testing.T, c *http.Client, url string) (code int, closing bool) {
	t.Helper()
	transport := c.Transport.(*http.Transport)
	transport.DisableKeepAlives = false
	resp, err := c.Post(url, "application/json", strings.NewReader(
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE"}}`))
	if err != nil {
		t.Error(err)
		return 0, false
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Close
}

// TestShutdownHasAnEnd: a webhook that never answers does not keep the process alive.
func TestShutdownHasAnEnd(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	domain := configMaps(func(_ context.Context, cm *corev1.ConfigMap) error {
		if cm.Name == "stuck" {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	hook(t, cluster, namespace, domain.Admission[0])
	opts := options(t, namespace)
	opts.ShutdownTimeout = time.Second
	r := run(t, opts, domain)
	r.ready()
	testkit.Eventually(t, patience, "the webhook", func() error { return create(t.Context(), cluster, namespace, "first") })
	go func() { _ = create(context.Background(), cluster, namespace, "stuck") }()
	<-entered
	begin := time.Now()
	r.stop()
	if err := r.wait(); err == nil || time.Since(begin) > 10*time.Second {
		t.Errorf("Run = %v after %s, want an error after about a second", err, time.Since(begin))
	}
}

// leading is a domain that reports who leads.
func leading(leads *atomic.Int32) Domain {
	return Domain{Name: "test", Setup: func(_ context.Context, mgr ctrl.Manager, o SetupOptions) error {
		if o.Namespace == "" || o.Workers == 0 {
			return errors.New("the domain is not told about the process")
		}
		return mgr.Add(ctrlmanager.RunnableFunc(func(ctx context.Context) error {
			leads.Add(1)
			<-ctx.Done()
			leads.Add(-1)
			return nil
		}))
	}}
}

// TestTwoManagersShareOneLease: the other one leads as soon as the controllers of the first have ended, also while that one
// still answers webhooks.
func TestTwoManagersShareOneLease(t *testing.T) {
	namespace := testkit.Start(t).Namespace(t)
	var leads [2]atomic.Int32
	var managers [2]*running
	entered, release := make(chan struct{}, 2), make(chan struct{})
	answer := sync.OnceFunc(func() { close(release) })
	defer answer()
	stuck := configMaps(func(context.Context, *corev1.ConfigMap) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	for i := range managers {
		opts := options(t, namespace)
		opts.LeaderElection = true
		opts.Lease = Lease{Duration: 20 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond}
		managers[i] = run(t, opts, leading(&leads[i]), stuck)
	}
	for _, r := range managers {
		r.ready()
	}
	leader := func() int {
		switch a, b := leads[0].Load(), leads[1].Load(); {
		case a == 1 && b == 0:
			return 0
		case a == 0 && b == 1:
			return 1
		}
		return -1
	}
	testkit.Eventually(t, patience, "one leader", func() error {
		if leader() < 0 {
			return errors.New("none")
		}
		return nil
	})
	first := leader()
	testkit.Quiet(t, time.Second, "the leadership", func() error {
		if leader() != first {
			return errors.New("it changed")
		}
		return nil
	})
	go func() {
		resp, err := anyServer().Post(managers[first].hooks+stuck.Admission[0].ValidatePath(), "application/json", strings.NewReader(
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",`+
				`"object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"stuck"}}}}`))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-entered
	managers[first].stop()
	testkit.Eventually(t, patience, "the other to lead", func() error {
		if leader() != 1-first {
			return errors.New("not yet")
		}
		return nil
	})
	select {
	case err := <-managers[first].done:
		t.Errorf("the first has ended with an answer to give: %v", err)
	default:
	}
	answer()
	if err := managers[first].wait(); err != nil {
		t.Errorf("Run = %v, want a clean stop", err)
	}
}

// TestACrashedLeaderLeadsAgain: a process that is started again in its pod does not wait until the lease of the one before
// runs out.
func TestACrashedLeaderLeadsAgain(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	opts := options(t, namespace)
	opts.LeaderElection, opts.PodUID = true, "9a1c"
	holder, err := identity(opts.PodUID)
	if err != nil {
		t.Fatal(err)
	}
	left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: ptr.To(metav1.NowMicro())}}
	if err := cluster.Client().Create(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	var leads atomic.Int32
	run(t, opts, leading(&leads)).ready()
	testkit.Eventually(t, patience, "the lead", func() error {
		if leads.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestLostLeadershipIsAFailure(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	var leads atomic.Int32
	opts := options(t, namespace)
	opts.LeaderElection = true
	opts.Lease = Lease{Duration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond}
	r := run(t, opts, leading(&leads))
	r.ready()
	testkit.Eventually(t, patience, "the lead", func() error {
		if leads.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	testkit.Eventually(t, patience, "the theft", func() error {
		var lease coordinationv1.Lease
		if err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: LeaseName}, &lease); err != nil {
			return err
		}
		lease.Spec.HolderIdentity = ptr.To("thief")
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](600)
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(time.Hour)))
		return cluster.Client().Update(t.Context(), &lease)
	})
	if err := r.wait(); err == nil || !strings.Contains(err.Error(), "leader election lost") {
		t.Errorf("Run = %v, want the loss of the lease", err)
	}
}

func TestRunFails(t *testing.T) {
	cluster := testkit.Start(t)
	for _, c := range []struct {
		name   string
		edit   func(*Options)
		domain Domain
		want   string
	}{
		{name: "wrong options", edit: func(o *Options) { o.Workers = 0 }, want: "--workers"},
		{name: "no certificates", edit: func(o *Options) { o.CertSource, o.CertDir = certs.Dir, t.TempDir() }, want: "keep certificates: read the serving certificate"},
		{name: "a domain", domain: Domain{Name: "broken", Setup: func(context.Context, ctrl.Manager, SetupOptions) error {
			return errors.New("no idea")
		}}, want: "set up broken: no idea"},
		{name: "types that do not register", domain: Domain{Name: "broken", AddToScheme: func(*runtime.Scheme) error {
			return errors.New("twice")
		}}, want: "register types: twice"},
		{name: "a kind that is not in the scheme", domain: Domain{Name: "broken", Admission: []admission.Kind{{
			GVK: schema.GroupVersionKind{Version: "v1", Kind: "Unheard"}, New: func() client.Object { return &corev1.ConfigMap{} },
		}}}, want: "set up the webhooks of broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := options(t, cluster.Namespace(t))
			if c.edit != nil {
				c.edit(&opts)
			}
			if err := run(t, opts, c.domain).wait(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run = %v, want an error that says %q", err, c.want)
			}
		})
	}
}

// TestStopsWithoutAnAPIServer: a manager that never got anywhere still stops when it is asked to.
func TestStopsWithoutAnAPIServer(t *testing.T) {
	opts := options(t, "modelplane-system")
	opts.ShutdownTimeout = 2 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cfg := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", testkit.FreePort(t))}
	go func() { done <- Run(ctx, cfg, opts, nil) }()
	testkit.Eventually(t, patience, "the health endpoint", func() error {
		code, _, err := get(http.DefaultClient, "http://"+opts.HealthAddress+"/healthz", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
	if code, _, err := get(http.DefaultClient, "http://"+opts.HealthAddress+"/readyz", ""); err != nil || code == http.StatusOK {
		t.Errorf("ready without an API server: %d %v", code, err)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run = %v, want a clean stop", err)
		}
	case <-time.After(patience):
		t.Error("the manager does not stop")
	}
}
