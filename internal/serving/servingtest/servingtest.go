// SPDX-License-Identifier: Apache-2.0

// Package servingtest runs the serving controllers against a real API server,
// as the chart's own service account. It is for tests and benchmarks only.
package servingtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	platform "github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/testkit"
)

// Scheme knows the serving kinds, Kubernetes and the Gateway API.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, serving.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// Patience is how long a test waits for the cluster.
const Patience = domaintest.Patience

// Bench is a cluster with the serving kinds, a namespace for services and one
// for the platform's configuration.
type Bench struct {
	*domaintest.Bench
	Platform string
}

// New prepares a Bench with one runtime for the format sklearn.
func New(t testing.TB) *Bench {
	t.Helper()
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var ours []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range crds {
		if crd.Spec.Group == v1beta1.Group && !strings.HasPrefix(crd.Spec.Names.Kind, "LLM") {
			ours = append(ours, crd)
		}
	}
	cluster.InstallCRDs(t, ours...)
	rules, err := engine.Rules(Scheme, serving.New().Controllers()...)
	if err != nil {
		t.Fatal(err)
	}
	b := &Bench{Bench: domaintest.New(t, cluster, Scheme), Platform: cluster.Namespace(t)}
	b.Manager = charttest.RBAC(t, cluster, b.Platform, rules...)
	b.Create(t, b.Runtime("sklearn"))
	return b
}

// Runtime serves one format in the test's namespace.
func (b *Bench) Runtime(format string) *v1alpha1.ServingRuntime {
	rt := &v1alpha1.ServingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "serve-" + format}}
	rt.Spec.SupportedModelFormats = []v1alpha1.SupportedModelFormat{{Name: format, AutoSelect: ptr.To(true)}}
	rt.Spec.Containers = []corev1.Container{{
		Name: "kserve-container", Image: "server:1", Args: []string{"--model_name={{.Name}}"},
	}}
	return rt
}

// Service is an InferenceService with a model of a format.
func (b *Bench) Service(name, format string) *v1beta1.InferenceService {
	isvc := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	isvc.Spec.Predictor.Model = &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: format}}
	isvc.Spec.Predictor.Model.StorageURI = ptr.To("s3://models/" + name)
	return isvc
}

// Configure writes the platform's configuration.
func (b *Bench) Configure(t testing.TB, data map[string]string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Platform, Name: platform.Name}, Data: data}
	err := b.C.Update(t.Context(), cm)
	if err != nil {
		err = b.C.Create(t.Context(), cm)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Gateway is a configuration with HTTPRoutes.
func Gateway() map[string]string {
	return map[string]string{
		platform.KeyIngress: `{"enableGatewayApi": true, "kserveIngressGateway": "gateways/shared", "ingressGateway": "a/b", "ingressDomain": "models.test"}`,
	}
}

// BehindGateway has services reached by HTTPRoutes of a Gateway that is there from the start.
func (b *Bench) BehindGateway(t testing.TB) {
	t.Helper()
	b.Install(t, testkit.GatewayAPI)
	b.Configure(t, Gateway())
	if err := Gate(t.Context(), b.C, "gateways", "shared"); err != nil {
		t.Fatal(err)
	}
}

// Run is a whole manager with the serving controllers, until ctx ends.
func (b *Bench) Run(ctx context.Context, cfg *rest.Config) error {
	cluster, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	return domaintest.Run(ctx, cfg, Scheme, serving.New().WithNamespace(b.Platform).WithKubernetes(cluster).Controllers()...)
}

// Manage runs a manager for the rest of the test; stop ends it earlier.
func (b *Bench) Manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

// Insist runs the manager for the rest of the test, again and again if need be.
func (b *Bench) Insist(t testing.TB, cfg *rest.Config) {
	t.Helper()
	testkit.Insist(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

// Ended is nil when objects are gone with everything that is not left to the
// garbage collector.
func (b *Bench) Ended(objs ...client.Object) error {
	return b.Bench.Ended(objs, serving.New().Controllers())
}

// Gate makes sure that there is a Gateway, with its namespace.
func Gate(ctx context.Context, c client.Client, namespace, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	gate := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	gate.Spec.GatewayClassName = "played"
	gate.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}
	return errors.Join(client.IgnoreAlreadyExists(c.Create(ctx, ns)), client.IgnoreAlreadyExists(c.Create(ctx, gate)))
}

// Accept plays the gateway: it is there, and takes the routes as they are.
func (b *Bench) Accept(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		route := &gatewayv1.HTTPRoute{}
		b.Exists(t, route, name)
		parent := route.Spec.ParentRefs[0]
		if err := Gate(t.Context(), b.C, string(*parent.Namespace), string(parent.Name)); err != nil {
			t.Fatal(err)
		}
		b.Answer(t, name, metav1.ConditionTrue, "Accepted", "")
	}
}

// Answer is what the gateway says of a route as it is.
func (b *Bench) Answer(t testing.TB, name string, accepted metav1.ConditionStatus, reason, message string) {
	t.Helper()
	route := &gatewayv1.HTTPRoute{}
	b.Exists(t, route, name)
	testkit.Eventually(t, Patience, "the gateway to answer for "+name, func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(route), route); err != nil {
			return err
		}
		said := metav1.Condition{Type: "Accepted", Status: accepted, Reason: reason, Message: message,
			ObservedGeneration: route.Generation, LastTransitionTime: metav1.Now()}
		route.Status.Parents = []gatewayv1.RouteParentStatus{{
			ParentRef: route.Spec.ParentRefs[0], ControllerName: "test.dev/gateway", Conditions: []metav1.Condition{said},
		}}
		return b.C.Status().Update(t.Context(), route)
	})
}

// Status waits until a condition of a service has a status and, if given, a
// reason, for the present generation. It returns the service.
func (b *Bench) Status(t testing.TB, name, condition string, status corev1.ConditionStatus, reason string) *v1beta1.InferenceService {
	t.Helper()
	isvc := &v1beta1.InferenceService{}
	testkit.Eventually(t, Patience, fmt.Sprintf("%s of %s to be %s %s", condition, name, status, reason), func() error {
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: name}, isvc); err != nil {
			return err
		}
		if isvc.Status.ObservedGeneration != isvc.Generation {
			return fmt.Errorf("generation %d of %d was looked at", isvc.Status.ObservedGeneration, isvc.Generation)
		}
		for _, c := range isvc.Status.Conditions {
			if c.Type == condition && c.Status == status && (reason == "" || c.Reason == reason) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", isvc.Status.Conditions)
	})
	return isvc
}

// Quiet waits until nothing but events has been written for some time, and
// fails the test if the writes do not end.
func Quiet(t testing.TB, counter *testkit.Counter, when string) {
	t.Helper()
	before, since := counter.Snapshot(), time.Now()
	testkit.Eventually(t, 30*time.Second, "no write for three seconds "+when, func() error {
		fresh := counter.Since(before)
		if fresh.Writes() != fresh.Of("create", "events.k8s.io/events")+fresh.Of("patch", "events.k8s.io/events") {
			before, since = counter.Snapshot(), time.Now()
			return fmt.Errorf("there were writes:\n%s", fresh)
		}
		if time.Since(since) < 3*time.Second {
			return errors.New("three seconds have not passed")
		}
		return nil
	})
}
