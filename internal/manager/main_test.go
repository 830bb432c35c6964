// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/testkit"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	log.SetOutput(io.Discard) // HTTP servers complain of the clients that these tests send them
	testkit.Main(m)
}

// running is a manager in this process, with all of its endpoints on ports of their own.
type running struct {
	t                *testing.T
	cluster          *testkit.Cluster
	opts             Options
	stop             context.CancelFunc
	done             chan error
	health, hooks    string
	metrics, profile string
}

func options(t *testing.T, namespace string) Options {
	t.Helper()
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)) }
	port := testkit.FreePort(t)
	return Options{
		Namespace: namespace, Workers: 1, CertSource: certs.Self, ShutdownTimeout: 20 * time.Second,
		HealthAddress: address(), MetricsAddress: address(), ProfilingAddress: address(),
		WebhookHost: "127.0.0.1", WebhookPort: port, WebhookURL: fmt.Sprintf("https://127.0.0.1:%d", port),
		WebhookService: "modelplane-webhook", MetricsService: "modelplane-metrics", Log: logr.Discard(),
	}
}

func run(t *testing.T, opts Options, domains ...Domain) *running {
	t.Helper()
	cluster := testkit.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{
		t: t, cluster: cluster, opts: opts, stop: cancel, done: make(chan error, 1),
		health: "http://" + opts.HealthAddress, metrics: "https://" + opts.MetricsAddress,
		hooks: opts.WebhookURL, profile: "http://" + opts.ProfilingAddress,
	}
	go func() { r.done <- Run(ctx, cluster.Config(), opts, domains) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(patience):
			t.Error("the manager does not stop")
		}
	})
	return r
}

// wait returns how the manager ended.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done <- err // for the clean-up
		return err
	case <-time.After(patience):
		r.t.Fatal("the manager does not end")
		return nil
	}
}

func (r *running) ready() {
	r.t.Helper()
	testkit.Eventually(r.t, patience, "the manager to be ready", func() error {
		select {
		case err := <-r.done:
			r.done <- err
			r.t.Fatalf("the manager ended: %v", err)
		default:
		}
		code, body, err := get(http.DefaultClient, r.health+"/readyz?verbose", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

func get(c *http.Client, url, token string) (code int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// trusting is an HTTP client that believes the roots in the Secret and nothing else.
func (r *running) trusting(serverName string) *http.Client {
	r.t.Helper()
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: r.opts.Namespace, Name: certs.DefaultSecret}
	if err := r.cluster.Client().Get(r.t.Context(), key, &secret); err != nil {
		r.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		r.t.Fatal("the Secret holds no roots")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: serverName}, DisableKeepAlives: true}
	return &http.Client{Transport: transport}
}

// configMaps is a domain whose admission of ConfigMaps is decided by the test.
func configMaps(validate func(context.Context, *corev1.ConfigMap) error) Domain {
	return Domain{Name: "test", Admission: []admission.Kind{{
		GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		New: func() client.Object { return &corev1.ConfigMap{} },
		Validate: func(ctx context.Context, _, obj client.Object) ([]string, error) {
			return nil, validate(ctx, obj.(*corev1.ConfigMap))
		},
	}}}
}

// hook makes the API server ask for ConfigMaps of the namespace.
func hook(t *testing.T, cluster *testkit.Cluster, namespace string, kind admission.Kind) {
	t.Helper()
	config := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{certs.PartOfLabel: certs.PartOfValue}},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "configmaps.modelplane.test",
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: namespace, Name: "modelplane-webhook", Path: ptr.To(kind.ValidatePath())}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			FailurePolicy:           ptr.To(admissionv1.Fail),
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := cluster.Client().Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Client().Delete(context.Background(), config) })
}

func create(ctx context.Context, cluster *testkit.Cluster, namespace, name string) error {
	return cluster.Client().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

func contains(body string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(body, part) {
			return fmt.Errorf("%q is missing in:\n%s", part, body)
		}
	}
	return nil
}
