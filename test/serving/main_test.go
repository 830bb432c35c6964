// SPDX-License-Identifier: Apache-2.0

// Package serving proves on a real API server that the whole manager serves models: the wiring of the command, the
// account, roles and webhooks of the chart, webhooks over TLS. What single rooms promise is shown in their own tests.
// It holds tests only.
package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	log.SetOutput(io.Discard) // the API server calls managers that are only about to start
	testkit.Main(m)
}

const patience = 60 * time.Second

// house is a cluster into which the chart was installed, but for the process itself.
type house struct {
	*servingtest.Bench
	release string
	// enabled are the domains.
	enabled []string
}

// installed are the kinds of the chart that a manager outside of the cluster needs. What the platform is configured
// with, and which runtimes there are, is each test's to say.
var installed = []string{
	"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
}

// install makes a house of a cluster for the length of the test, for these domains, or else for serving alone.
func install(t testing.TB, cluster *testkit.Cluster, domains ...string) *house {
	t.Helper()
	define(t, cluster)
	if len(domains) == 0 {
		domains = []string{admission.Serving}
	}
	h := &house{
		Bench:   &servingtest.Bench{Bench: domaintest.New(t, cluster, servingtest.Scheme), Platform: cluster.Namespace(t)},
		enabled: domains,
	}
	h.release = "s" + h.Platform[strings.LastIndex(h.Platform, "-")+1:]
	account := ""
	for _, o := range charttest.Render(t, h.chart()) {
		if !slices.Contains(installed, o.GetKind()) {
			continue
		}
		if o.GetKind() == "ServiceAccount" {
			account = o.GetName()
		}
		h.put(t, o.Unstructured)
	}
	h.Manager = cluster.ServiceAccountConfig(t, h.Platform, account)
	return h
}

// chart is the release that the house is made of.
func (h *house) chart() chart.Release {
	var enable []any
	for _, name := range h.enabled {
		enable = append(enable, name)
	}
	return chart.Release{Name: h.release, Namespace: h.Platform, Values: map[string]any{"enable": enable}}
}

// define installs the kinds of the domain. Those that need conversion have tests elsewhere.
func define(t testing.TB, cluster *testkit.Cluster) {
	t.Helper()
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	cluster.InstallCRDs(t, slices.DeleteFunc(slices.Clone(crds), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group != v1beta1.Group || crd.Spec.Conversion != nil
	})...)
}

// put creates an object until the test ends.
func (h *house) put(t testing.TB, obj client.Object) {
	t.Helper()
	h.Create(t, obj)
	t.Cleanup(func() {
		if err := h.C.Delete(context.Background(), obj); client.IgnoreNotFound(err) != nil {
			t.Errorf("removing %s: %v", obj.GetName(), err)
		}
	})
}

// options are the flags of the command, as far as they matter outside of a cluster.
func (h *house) options(t testing.TB) manager.Options {
	t.Helper()
	port := testkit.FreePort(t)
	return manager.Options{
		Namespace: h.Platform, Workers: 10, CertSource: certs.Self, ShutdownTimeout: 20 * time.Second,
		HealthAddress: fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)), MetricsAddress: "0",
		WebhookHost: h.WebhookHost(), WebhookPort: port, WebhookURL: fmt.Sprintf("https://%s:%d", h.WebhookHost(), port),
		WebhookService: h.release + "-modelplane-webhook", MetricsService: h.release + "-modelplane-metrics",
		Cache: engine.CacheOptions(engine.Scope{}), Log: ctrl.Log,
	}
}

// run is the manager as the command puts it together, from when it is ready until the test ends, or stop is called.
func (h *house) run(t testing.TB, cfg *rest.Config, opts manager.Options) (stop func()) {
	t.Helper()
	all, err := domains.All()
	if err != nil {
		t.Fatal(err)
	}
	enabled, err := manager.Select(all, h.enabled)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx, cfg, opts, enabled) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	}
	t.Cleanup(stop)
	h.ready(t, opts.HealthAddress, done)
	h.asks(t)
	return stop
}

func (h *house) ready(t testing.TB, address string, done chan error) {
	t.Helper()
	testkit.Eventually(t, patience, "the manager to be ready", func() error {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("the manager ended: %v", err)
		default:
		}
		response, err := http.Get("http://" + address + "/readyz?verbose")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
		body, err := io.ReadAll(response.Body)
		return errors.Join(err, fmt.Errorf("%s: %s", response.Status, body))
	})
}

// asks waits until the API server asks this manager: it learns of a new address by a watch of its own.
func (h *house) asks(t testing.TB) {
	t.Helper()
	wrong := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Namespace: h.NS, Name: "1-wrong"}}
	testkit.Eventually(t, patience, "the webhooks to be asked", func() error {
		err := h.C.Create(t.Context(), wrong.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "must start with a letter") {
			return fmt.Errorf("a wrong name: %w", err)
		}
		return nil
	})
}

// serve is a house with a running manager and a runtime for the format sklearn.
func serve(t testing.TB) *house {
	t.Helper()
	h := install(t, testkit.Start(t))
	h.run(t, h.Manager, h.options(t))
	h.Create(t, h.Runtime("sklearn"))
	return h
}

// follows waits until a child says something.
func (h *house) follows(t testing.TB, obj client.Object, name, what string, check func() error) {
	t.Helper()
	testkit.Eventually(t, patience, what, func() error {
		if err := h.C.Get(t.Context(), client.ObjectKey{Namespace: h.NS, Name: name}, obj); err != nil {
			return err
		}
		return check()
	})
}

// readyService waits until a service is ready.
func (h *house) readyService(t testing.TB, name string) *v1beta1.InferenceService {
	t.Helper()
	return h.Status(t, name, "Ready", corev1.ConditionTrue, "")
}
