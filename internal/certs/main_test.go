// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is one namespace with a webhook that allows every ConfigMap, behind an address that several replicas share as
// they would share a Service.
type bench struct {
	t         *testing.T
	cluster   *testkit.Cluster
	namespace string
	service   string
	secretKey client.ObjectKey
	config    *admissionv1.ValidatingWebhookConfiguration
	address   *url.URL
	turn      atomic.Uint64

	mu       sync.Mutex
	replicas []getCertificate
	served   map[string]int // handshakes by serial number
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchIn(t, testkit.Start(t).Namespace(t), "webhook")
}

// newBenchIn puts several benches into one namespace, told apart by the name of the Service.
func newBenchIn(t *testing.T, namespace, service string) *bench {
	t.Helper()
	b := &bench{t: t, cluster: testkit.Start(t), namespace: namespace, service: service, served: map[string]int{}}
	b.secretKey = client.ObjectKey{Namespace: namespace, Name: service + "-cert"}
	server := httptest.NewUnstartedServer(http.HandlerFunc(allow))
	server.TLS = &tls.Config{GetCertificate: b.getCertificate}
	server.Config.SetKeepAlivesEnabled(false) // every admission is a handshake
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Listener.Close()
	server.Listener = tls.NewListener(listener, server.TLS)
	server.Start()
	t.Cleanup(server.Close)
	b.address = &url.URL{Scheme: "https", Host: listener.Addr().String()}
	b.config = b.createConfig("validate")
	return b
}

// createConfig is what a chart installs: a Service and no roots.
func (b *bench) createConfig(path string) *admissionv1.ValidatingWebhookConfiguration {
	b.t.Helper()
	config := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace + "-" + b.service + "-" + path, Labels: map[string]string{PartOfLabel: PartOfValue}},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "configmaps.modelplane.test",
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: b.namespace, Name: b.service, Path: ptr.To("/" + path),
			}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": b.namespace}},
			FailurePolicy:           ptr.To(admissionv1.Fail),
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := b.cluster.Client().Create(b.t.Context(), config); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = b.cluster.Client().Delete(context.Background(), config) })
	return config
}

func allow(w http.ResponseWriter, req *http.Request) {
	var review admissionapi.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionapi.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// getCertificate takes the replicas in turn.
func (b *bench) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.replicas) == 0 {
		return nil, errors.New("no replica")
	}
	cert, err := b.replicas[b.turn.Add(1)%uint64(len(b.replicas))](hello)
	if err == nil {
		b.served[cert.Leaf.SerialNumber.String()]++
	}
	return cert, err
}

// replica runs a keeper until the returned function is called.
func (b *bench) replica(cfg *rest.Config, c clock.Clock, l Lifetimes) (*Keeper, func()) {
	b.t.Helper()
	keeper := b.keeper(cfg, Options{Clock: c, Lifetimes: l, Log: testLog(b.t)})
	return keeper, b.run(keeper)
}

// testLog says when things happened, to compare with what failed.
func testLog(t *testing.T) logr.Logger {
	return funcr.New(func(_, args string) { t.Log(args) },
		funcr.Options{LogTimestamp: true, TimestampFormat: time.StampMilli})
}

// keeper fills in what is the same for all replicas of the bench.
func (b *bench) keeper(cfg *rest.Config, opts Options) *Keeper {
	b.t.Helper()
	if opts.Source == "" {
		opts.Source = Self
	}
	opts.Namespace, opts.Service, opts.Secret, opts.URL = b.namespace, b.service, b.secretKey.Name, b.address
	keeper, err := New(cfg, opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return keeper
}

func (b *bench) run(keeper *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := keeper.Run(ctx); err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(stop)
	return stop
}

// certificates is how many have been served.
func (b *bench) certificates() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.served)
}

type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// behind puts the replicas behind the shared address. All but the first learn of a new certificate late, as if their
// watches were slow.
func (b *bench) behind(keepers ...*Keeper) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = nil
	for n, keeper := range keepers {
		get := keeper.GetCertificate
		if n > 0 {
			get = late(keeper)
		}
		b.replicas = append(b.replicas, get)
	}
}

// late goes on serving a certificate until two fifths of the grace have passed since the next one was made, by the same
// clock that the grace is measured with. The caller holds a lock.
func late(keeper *Keeper) getCertificate {
	l := keeper.opts.Lifetimes
	var held *tls.Certificate
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := keeper.GetCertificate(hello)
		if err != nil {
			return nil, err
		}
		made := cert.Leaf.NotBefore.Add(l.Backdate)
		if held == nil || keeper.opts.Clock.Since(made) > l.Grace*2/5 {
			held = cert
		}
		return held, nil
	}
}

func (b *bench) ready(keepers ...*Keeper) {
	b.t.Helper()
	for _, keeper := range keepers {
		testkit.Eventually(b.t, patience, "the replica to be ready", func() error { return keeper.Check(nil) })
	}
}

// admit sends one object through the webhook.
func (b *bench) admit(ctx context.Context) error {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, GenerateName: "load-"}}
	return b.cluster.Client().Create(ctx, configMap, client.DryRunAll)
}

// settled waits until the API server's own view of the webhook has caught up, which is what Settle is for.
func (b *bench) settled() {
	b.t.Helper()
	testkit.Eventually(b.t, patience, "an admission", func() error { return b.admit(b.t.Context()) })
}

// load admits objects from several goroutines without a pause until stopped, and returns how many there were and what
// failed.
func (b *bench) load(goroutines int) (stop func() (admitted int64, failed []error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var admitted atomic.Int64
	var mu sync.Mutex
	var failed []error
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := b.admit(ctx)
				switch {
				case err == nil:
					admitted.Add(1)
				case ctx.Err() == nil:
					mu.Lock()
					failed = append(failed, fmt.Errorf("%s: %w", time.Now().Format(time.StampMilli), err))
					mu.Unlock()
				}
			}
		})
	}
	return func() (int64, []error) { cancel(); wg.Wait(); return admitted.Load(), failed }
}

func (b *bench) secret() *corev1.Secret {
	b.t.Helper()
	secret, err := b.findSecret()
	if err != nil {
		b.t.Fatal(err)
	}
	return secret
}

func (b *bench) findSecret() (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, b.cluster.Client().Get(b.t.Context(), b.secretKey, secret)
}

// roots is what the Secret says shall be trusted.
func (b *bench) roots() []*x509.Certificate {
	b.t.Helper()
	roots, err := decodeCertificates(b.secret().Data[keyRoots])
	if err != nil {
		b.t.Fatal(err)
	}
	return roots
}

// clientConfig is how the API server calls the webhook at the moment.
func (b *bench) clientConfig() admissionv1.WebhookClientConfig {
	b.t.Helper()
	var config admissionv1.ValidatingWebhookConfiguration
	if err := b.cluster.Client().Get(b.t.Context(), client.ObjectKeyFromObject(b.config), &config); err != nil {
		b.t.Fatal(err)
	}
	return config.Webhooks[0].ClientConfig
}

// trusts checks that the API server would accept the certificate.
func (b *bench) trusts(cert *tls.Certificate, now time.Time) error {
	roots, err := decodeCertificates(b.clientConfig().CABundle)
	if err != nil {
		return fmt.Errorf("caBundle: %w", err)
	}
	if issuerOf(cert.Leaf, roots, now) == nil {
		return errors.New("the API server is told to trust other roots than that of the certificate being served")
	}
	return nil
}

// consistent checks that the Secret and the webhook configuration say the same and nothing is under way.
func (b *bench) consistent() error {
	secret, err := b.findSecret()
	if err != nil {
		return err
	}
	config := b.clientConfig()
	switch {
	case !bytes.Equal(config.CABundle, secret.Data[keyRoots]):
		return errors.New("caBundle differs from the Secret")
	case config.Service != nil || config.URL == nil || *config.URL != b.address.String()+"/validate":
		return fmt.Errorf("the webhook is called at %v, %v", config.Service, config.URL)
	}
	return nil
}
