// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

const (
	patience = 60 * time.Second
	quietFor = 700 * time.Millisecond
	// where is the annotation that the runner takes addresses from.
	where = "test.modelplane.dev/url"
)

// runner stands for the controller that runs services: it says that they are ready, and where.
type runner struct{}

func (runner) Observe(context.Context, engine.Reader, *v1beta1.InferenceService) (struct{}, error) {
	return struct{}{}, nil
}

func (runner) Plan(isvc *v1beta1.InferenceService, _ struct{}) engine.Plan {
	status := &v1beta1.InferenceServiceStatus{}
	status.ObservedGeneration = isvc.Generation
	status.Conditions = []v1beta1.Condition{{Type: "Ready", Status: corev1.ConditionTrue}}
	if url := isvc.Annotations[where]; url != "" {
		status.URL = &url
	}
	return engine.Plan{Status: status}
}

// bench is a cluster with services, a registry in the test's namespace, and the way to it.
type bench struct {
	*domaintest.Bench
	registry *fakeRegistry
	server   *httptest.Server
	model    string // the id of the registered model
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Name == "inferenceservices.serving.kserve.io" {
			cluster.InstallCRDs(t, crd)
		}
	}
	b := &bench{Bench: domaintest.New(t, cluster, scheme), model: "5"}
	b.Manager = charttest.RBAC(t, cluster, b.NS)
	b.fresh(t)
	return b
}

// fresh is a namespace with a registry that knows nothing.
func (b *bench) fresh(t testing.TB) {
	t.Helper()
	b.registry = newFakeRegistry()
	b.server = httptest.NewServer(b.registry)
	t.Cleanup(b.server.Close)
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "registry", Labels: map[string]string{"component": "model-registry"}}}
	svc.Spec.Ports = []corev1.ServicePort{{Name: "http-api", Port: 8080}}
	b.Create(t, svc)
}

// Run is a manager with the link beside the runner.
func (b *bench) Run(ctx context.Context, cfg *rest.Config) error {
	link := New().WithSettings(Settings{Namespace: b.NS})
	link.patience = time.Second
	link.client.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "registry."+b.NS+".svc:8080" {
			return nil, fmt.Errorf("%s was called", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, b.server.Listener.Addr().String())
	}
	first := engine.For[*v1beta1.InferenceService, struct{}](runner{}, engine.Spec{Name: "runner", KnativeConditions: true})
	return domaintest.Run(ctx, cfg, scheme, first, link.Controller())
}

func (b *bench) manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

// isvc is a service of the registered model.
func (b *bench) isvc(name string) *v1beta1.InferenceService {
	isvc := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.NS, Name: name, Annotations: map[string]string{where: "http://" + name + ".test"},
		Labels: map[string]string{"modelregistry.kubeflow.org/registered-model-id": b.model},
	}}
	isvc.Spec.Predictor.Model = &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: "sklearn"}}
	return isvc
}

// says is nil when a service is ready all the time, and linked as the reason has it.
func (b *bench) says(isvc *v1beta1.InferenceService, reason string) error {
	if err := b.C.Get(context.Background(), kubeclient.ObjectKeyFromObject(isvc), isvc); err != nil {
		return err
	}
	if !slices.ContainsFunc(isvc.Status.Conditions, func(c v1beta1.Condition) bool { return c.Type == "Ready" && c.Status == "True" }) {
		return fmt.Errorf("it is not ready: %+v", isvc.Status.Conditions)
	}
	c := condition(isvc)
	if reason == "" && c == nil || c != nil && c.Reason == reason {
		return nil
	}
	return fmt.Errorf("conditions are %+v", isvc.Status.Conditions)
}

func (b *bench) wait(t testing.TB, isvc *v1beta1.InferenceService, reason string) {
	t.Helper()
	testkit.Eventually(t, patience, isvc.Name+" to say "+reason, func() error { return b.says(isvc, reason) })
}

// has is nil when the registry has one entry with this state and address.
func (b *bench) has(state, url string) error {
	have, n := b.registry.service()
	if n != 1 || have["desiredState"] != state {
		return fmt.Errorf("%d entries, such as %v", n, have)
	}
	properties, _ := have["customProperties"].(map[string]any)
	now, _ := properties["url"].(map[string]any)
	if now["string_value"] != url {
		return fmt.Errorf("the registry has %v", properties)
	}
	return nil
}

func (b *bench) waitHas(t testing.TB, state, url string) {
	t.Helper()
	testkit.Eventually(t, patience, "the registry to have "+state+" at "+url, func() error { return b.has(state, url) })
}

func fail(*http.Request) int { return http.StatusServiceUnavailable }

func TestLink(t *testing.T) {
	b := newBench(t)
	conditions := b.WatchConditions(t, v1beta1.GroupVersion.WithKind("InferenceService"), b.NS, testkit.KnativeConditions(),
		testkit.AllowFlap(reasonFailed, reasonMissing, reasonLinked))
	counter := testkit.NewCounter()
	stop := b.manage(t, counter.Wrap(b.Manager))
	plain, linked := b.isvc("plain"), b.isvc("linked")
	plain.Labels = nil
	b.Create(t, plain, linked)
	b.wait(t, linked, reasonLinked)
	b.waitHas(t, deployed, "http://linked.test")
	id := "modelregistry.kubeflow.org/inference-service-id"
	if have, _ := b.registry.service(); linked.Labels[id] != have["id"] || have["name"] != "linked/"+string(linked.UID) {
		t.Errorf("labels are %v, and the registry has %v", linked.Labels, have)
	}
	b.wait(t, plain, "")
	if len(plain.Finalizers) > 0 {
		t.Errorf("a service that is none of its business has %v", plain.Finalizers)
	}
	testkit.NoWrites(t, counter, quietFor, "when all is told")

	t.Run("a label that is taken off is not fought for", func(t *testing.T) {
		b.Change(t, linked, func() { delete(linked.Labels, id) })
		testkit.Quiet(t, quietFor, "the label to stay away", func() error {
			if err := b.says(linked, reasonLinked); err != nil || linked.Labels[id] != "" {
				return fmt.Errorf("labels are %v: %w", linked.Labels, err)
			}
			return nil
		})
	})
	t.Run("it follows the address, through failures", func(t *testing.T) {
		b.Change(t, linked, func() { linked.Annotations[where] = "http://second.test" })
		b.waitHas(t, deployed, "http://second.test")
		b.registry.spoil(fail, nil)
		b.Change(t, linked, func() { linked.Annotations[where] = "http://third.test" })
		b.wait(t, linked, reasonFailed)
		b.registry.spoil(nil, nil)
		b.waitHas(t, deployed, "http://third.test")
		b.wait(t, linked, reasonLinked)
	})
	stop()
	before, restarted := b.registry.count(), testkit.NewCounter()
	stop = b.manage(t, restarted.Wrap(b.Manager))
	t.Run("a restart writes nothing", func(t *testing.T) {
		testkit.Eventually(t, patience, "the registry to be asked", func() error {
			if b.registry.count()["GET"] == before["GET"] {
				return errors.New("not yet")
			}
			return nil
		})
		testkit.NoWrites(t, restarted, quietFor, "after a restart")
		if now := b.registry.count(); now["POST"] != before["POST"] || now["PATCH"] != before["PATCH"] {
			t.Errorf("the registry was written to: %v, and %v before", now, before)
		}
	})
	t.Run("who asks no longer is let go", func(t *testing.T) {
		other := b.isvc("other")
		b.registry.spoil(fail, nil)
		b.Create(t, other)
		b.wait(t, other, reasonFailed)
		b.Change(t, other, func() { other.Labels = nil })
		b.wait(t, other, "")
		testkit.Eventually(t, patience, "its finalizer to go", func() error {
			if err := b.says(other, ""); err != nil || len(other.Finalizers) > 0 {
				return fmt.Errorf("it has %v: %w", other.Finalizers, err)
			}
			return nil
		})
		b.registry.spoil(nil, nil)
	})
	t.Run("the end", func(t *testing.T) {
		b.Delete(t, linked)
		b.Gone(t, linked, linked.Name)
		if err := b.has(undeployed, "http://third.test"); err != nil {
			t.Error(err)
		}
	})
	stop()
	conditions.Stop(t)
}

// TestRegistryGone: the registry as it is followed by its end. Whatever becomes of it, a service that is deleted goes, and
// somebody is told.
func TestRegistryGone(t *testing.T) {
	b := newBench(t)
	actual := openRegistry(t)
	b.server, b.model = actual.Server, actual.model
	stop := b.manage(t, b.Manager)
	known, silent, gone := b.isvc("known"), b.isvc("silent"), b.isvc("gone")
	known.Labels["modelregistry.kubeflow.org/model-version-id"] = actual.version
	b.Create(t, known, silent, gone)
	b.wait(t, known, reasonLinked)
	b.wait(t, silent, reasonLinked)
	b.wait(t, gone, reasonLinked)
	path := "/inference_services/" + known.Labels["modelregistry.kubeflow.org/inference-service-id"]
	testkit.Eventually(t, patience, "the registry to know the address", func() error { return actual.knows(path, deployed, "http://known.test") })
	b.Change(t, known, func() { known.Annotations[where] = "http://moved.test" })
	testkit.Eventually(t, patience, "the registry to know the new address", func() error { return actual.knows(path, deployed, "http://moved.test") })
	b.Delete(t, known)
	b.Gone(t, known, known.Name)
	if err := actual.knows(path, undeployed, "http://moved.test"); err != nil {
		t.Error(err)
	}
	b.server.Close()
	b.Delete(t, silent)
	b.Gone(t, silent, silent.Name)

	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "registry"}}
	b.Delete(t, svc)
	b.wait(t, gone, reasonMissing)
	b.Delete(t, gone)
	b.Gone(t, gone, gone.Name)
	testkit.Eventually(t, patience, "both to be told", func() error {
		list, said := &corev1.EventList{}, map[string]bool{}
		if err := b.C.List(t.Context(), list, kubeclient.InNamespace(b.NS)); err != nil {
			return err
		}
		for _, e := range list.Items {
			said[e.Reason+" "+e.InvolvedObject.Name] = true
		}
		if !said[reasonLeft+" silent"] || !said[reasonLeft+" gone"] || !said["RegistryLinked gone"] {
			return fmt.Errorf("said %v", said)
		}
		return nil
	})
	stop()
}

// TestLinkFaults: with an API server and a registry that fail half of the time, one entry is made, and taken back.
func TestLinkFaults(t *testing.T) {
	b := newBench(t)
	random := rand.New(rand.NewPCG(1, 2)) // which calls fail
	spoil := func(*http.Request) int {
		if random.IntN(8) == 0 {
			return http.StatusBadGateway
		}
		return 0
	}
	b.registry.spoil(spoil, spoil)
	faults := testkit.NewFaults(7).AddEach(0.03)
	testkit.Insist(t, func(ctx context.Context) error { return b.Run(ctx, faults.Wrap(b.Manager)) })
	isvc := b.isvc("iris")
	b.Create(t, isvc)
	b.wait(t, isvc, reasonLinked)
	b.waitHas(t, deployed, "http://iris.test")
	b.Delete(t, isvc)
	b.Gone(t, isvc, isvc.Name)
	if _, n := b.registry.service(); n != 1 {
		t.Errorf("%d entries", n)
	}
}

func TestLinkKilled(t *testing.T) {
	b := newBench(t)
	var isvc *v1beta1.InferenceService
	round := 0
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.Run,
		Reset: func(t testing.TB) {
			b.registry.mu.Lock()
			b.registry.environments, b.registry.services = nil, nil
			b.registry.mu.Unlock()
			round++
			isvc = b.isvc(fmt.Sprintf("iris-%d", round))
			b.Create(t, isvc)
		},
		Converged: func() error {
			if err := b.says(isvc, reasonLinked); err != nil {
				return err
			}
			return b.has(deployed, isvc.Annotations[where])
		},
		Verify: func(t testing.TB) {
			if have, n := b.registry.service(); n != 1 || isvc.Labels["modelregistry.kubeflow.org/inference-service-id"] != have["id"] {
				t.Errorf("%d entries, such as %v, and the labels %v", n, have, isvc.Labels)
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, isvc) },
		Gone: func() error {
			err := b.Ended([]kubeclient.Object{isvc.DeepCopy()}, nil)
			if err == nil {
				err = b.has(undeployed, isvc.Annotations[where])
			}
			return err
		},
	})
}
