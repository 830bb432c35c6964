// SPDX-License-Identifier: Apache-2.0

// Package registrytest runs the controller of model registries against a real API server, as the chart's own service
// account. It is for tests and benchmarks only.
package registrytest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelregistry"
	"github.com/modelplane/modelplane/internal/testkit"
)

// Scheme knows the kinds and Kubernetes.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// Patience is how long a test waits for the cluster.
const Patience = domaintest.Patience

// Lint is how the conditions of a registry are meant: it is not available until its pods answer, also within a generation.
var Lint = []testkit.LintOption{
	testkit.SummaryType("Available"), testkit.AllowUnready("Progressing"),
	testkit.AllowFlap("DeploymentUnavailable", "UpdatingDeployment", "CreatingDeployment", "CreatedDeployment", "ResourcesUnavailable", "InputMissing"),
}

// Bench is a cluster with the kinds, in which the manager and registries share a namespace.
type Bench struct {
	*domaintest.Bench
	// Settings of the manager; its namespace is NS.
	Settings modelregistry.Settings
}

// New prepares a Bench.
func New(t testing.TB) *Bench {
	t.Helper()
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var ours []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range crds {
		if crd.Spec.Group == v1beta1.GroupVersion.Group {
			crd.Spec.Conversion = nil // nobody answers for it here
			ours = append(ours, crd)
		}
	}
	cluster.InstallCRDs(t, ours...)
	b := &Bench{Bench: domaintest.New(t, cluster, Scheme), Settings: modelregistry.Settings{OwnImage: "modelplane:test"}}
	b.Manager = charttest.RBAC(t, cluster, b.NS)
	return b
}

// Registry is one on a database elsewhere, whose password is in a Secret.
func (b *Bench) Registry(name string) *v1beta1.ModelRegistry {
	m := &v1beta1.ModelRegistry{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	m.Spec.Postgres = &v1beta1.Postgres{
		Host: "database", Username: "me", Database: "registry", PasswordSecret: &v1beta1.SecretKey{Name: "database", Key: "password"},
	}
	return m
}

// Generated is one with a database of its own.
func (b *Bench) Generated(name string) *v1beta1.ModelRegistry {
	m := &v1beta1.ModelRegistry{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	m.Spec.Postgres = &v1beta1.Postgres{GenerateDeployment: ptr.To(true)}
	return m
}

// Password is the Secret that Registry refers to.
func (b *Bench) Password(text string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "database"}, StringData: map[string]string{"password": text}}
}

// Run is a whole manager with the controller, until ctx ends.
func (b *Bench) Run(ctx context.Context, cfg *rest.Config) error {
	settings := b.Settings
	settings.Namespace = b.NS
	return domaintest.Run(ctx, cfg, Scheme, modelregistry.New().WithPlatform(settings).Controllers()...)
}

// Manage runs a manager for the rest of the test; stop ends it earlier.
func (b *Bench) Manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

// RollOut plays the Deployment controller and that of EndpointSlices: the pods of the registry are there and answer.
func (b *Bench) RollOut(t testing.TB, name string) {
	t.Helper()
	b.Bench.RollOut(t, name)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: name, "component": "model-registry"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if err := b.C.Create(context.Background(), slice); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

// Status waits until a condition of a registry has a status and, if given, a reason, for the present generation.
func (b *Bench) Status(t testing.TB, name, condition string, status metav1.ConditionStatus, reason string) *v1beta1.ModelRegistry {
	t.Helper()
	m := &v1beta1.ModelRegistry{}
	testkit.Eventually(t, Patience, fmt.Sprintf("%s of %s to be %s %s", condition, name, status, reason), func() error {
		if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, m); err != nil {
			return err
		}
		for _, c := range m.Status.Conditions {
			if c.Type == condition && c.Status == status && (reason == "" || c.Reason == reason) && c.ObservedGeneration == m.Generation {
				return nil
			}
		}
		return fmt.Errorf("generation %d, conditions: %+v", m.Generation, m.Status.Conditions)
	})
	return m
}

// Ended is nil when registries are gone with everything that is not left to the garbage collector.
func (b *Bench) Ended(registries ...client.Object) error {
	return b.Bench.Ended(registries, modelregistry.New().Controllers())
}
