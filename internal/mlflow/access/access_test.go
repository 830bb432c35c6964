// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/mlflow/access"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	testkit.Main(m)
}

// authCRD is the platform's own kind, as far as it is read.
func authCRD() *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "auths.services.platform.opendatahub.io"}}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "services.platform.opendatahub.io", Scope: apiextensionsv1.ClusterScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Auth", ListKind: "AuthList", Plural: "auths", Singular: "auth"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: ptr.To(true)}}}},
	}
	return crd
}

func auth(allowed, admins []any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "services.platform.opendatahub.io/v1alpha1", "kind": "Auth", "metadata": map[string]any{"name": "auth"},
		"spec": map[string]any{"allowedGroups": allowed, "adminGroups": admins},
	}}
}

type bench struct {
	*mlflowtest.Bench
}

func controller(prefix string) engine.Controller {
	return access.Controller(func() access.Settings { return access.Settings{Prefix: prefix} })
}

func newBench(t *testing.T) *bench {
	return &bench{mlflowtest.With(t, map[string]any{"access": map[string]any{"enabled": true}})}
}

func (b *bench) run(ctx context.Context, cfg *rest.Config) error {
	return mlflowtest.RunWith(ctx, cfg, controller("mlflow-operator-"))
}

func (b *bench) manage(t *testing.T, cfg *rest.Config, prefix string) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return mlflowtest.RunWith(ctx, cfg, controller(prefix)) })
}

// workspace is a namespace that asks for access.
func (b *bench) workspace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.Namespace(t)}}
	b.Change(t, ns, func() { metav1.SetMetaDataLabel(&ns.ObjectMeta, access.Label, mlflowv1.MLflowName) })
	return ns.Name
}

// makeAuth lets the platform say its groups.
func (b *bench) makeAuth(t testing.TB, allowed, admins []any) *unstructured.Unstructured {
	t.Helper()
	a := auth(allowed, admins)
	if err := b.C.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.C.Delete(context.Background(), a) })
	return a
}

// bound is nil when a RoleBinding gives a role to these groups.
func (b *bench) bound(ns, name, role string, groups ...string) error {
	rb := &rbacv1.RoleBinding{}
	if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, rb); err != nil {
		return err
	}
	var got []string
	for _, s := range rb.Subjects {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff(groups, got); diff != "" || rb.RoleRef.Name != role {
		return fmt.Errorf("%s gives %s: %s", name, rb.RoleRef.Name, diff)
	}
	return nil
}

func (b *bench) granted(ns string) error {
	return errors.Join(b.bound(ns, access.ViewBinding, "mlflow-operator-mlflow-view", "users", "admins"),
		b.bound(ns, access.EditBinding, "mlflow-operator-mlflow-edit", "admins"))
}

func (b *bench) wait(t testing.TB, what string, check func() error) {
	t.Helper()
	testkit.Eventually(t, mlflowtest.Patience, what, check)
}

// missing is nil when there is no such object.
func (b *bench) missing(o client.Object) error {
	err := b.C.Get(context.Background(), client.ObjectKeyFromObject(o), o)
	if err == nil {
		return errors.New("it is still there")
	}
	return client.IgnoreNotFound(err)
}

func (b *bench) gone(t testing.TB, ns string) {
	t.Helper()
	b.wait(t, "no RoleBindings", func() error {
		list := &rbacv1.RoleBindingList{}
		if err := b.C.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d are left", len(list.Items))
		}
		return nil
	})
}

var (
	users  = []any{"users", "", "users"}
	admins = []any{"admins", "users"}
)

func TestAccess(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	stop := b.manage(t, counter.Wrap(b.Manager), "mlflow-operator-")
	server := mlflowtest.Server()
	b.Create(t, server)
	first := b.workspace(t)
	testkit.NoWrites(t, counter, time.Second, "while the platform has no groups")

	b.InstallCRDs(t, authCRD()) // while it runs
	t.Cleanup(func() { b.RemoveCRDs(t, authCRD().Name) })
	a := b.makeAuth(t, users, []any{"admins"})
	b.wait(t, "access", func() error { return b.granted(first) })
	b.Status(t, access.Condition, metav1.ConditionTrue, "Granted")
	rb := &rbacv1.RoleBinding{}
	if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: first, Name: access.ViewBinding}, rb); err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(rb, server) || rb.Labels["app.kubernetes.io/managed-by"] != "mlflow-operator" {
		t.Errorf("owners %v, labels %v", rb.OwnerReferences, rb.Labels)
	}
	testkit.NoWrites(t, counter, 2*time.Second, "when nothing changes")

	second := b.workspace(t)
	b.wait(t, "access to the second", func() error { return b.granted(second) })
	b.Change(t, a, func() { _ = unstructured.SetNestedSlice(a.Object, admins, "spec", "adminGroups") })
	b.wait(t, "another group", func() error {
		return b.bound(second, access.EditBinding, "mlflow-operator-mlflow-edit", "admins", "users")
	})

	b.Change(t, a, func() { _ = unstructured.SetNestedField(a.Object, "everybody", "spec", "adminGroups") })
	b.Status(t, access.Condition, metav1.ConditionFalse, "GroupsMalformed")
	if err := b.bound(second, access.EditBinding, "mlflow-operator-mlflow-edit", "admins", "users"); err != nil {
		t.Errorf("access was to stay: %v", err)
	}
	b.Change(t, a, func() { _ = unstructured.SetNestedSlice(a.Object, []any{"admins"}, "spec", "adminGroups") })
	b.wait(t, "the groups as before", func() error { return b.granted(second) })

	stop() // another prefix means other roles, which a RoleBinding cannot change to
	b.manage(t, b.Config(), "other-")
	b.wait(t, "the other role", func() error { return b.bound(first, access.EditBinding, "other-mlflow-edit", "admins") })

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: first}}
	b.Change(t, ns, func() { delete(ns.Labels, access.Label) })
	b.gone(t, first)
	if err := b.C.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	b.gone(t, second)
	b.wait(t, "nothing to be said of access", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(server), server); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(server.Status.Conditions, access.Condition); c != nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// TestWhatOthersMadeStays: a RoleBinding of the same name is neither taken over
// nor removed, one of the operator before us is.
func TestWhatOthersMadeStays(t *testing.T) {
	b := newBench(t)
	b.InstallCRDs(t, authCRD())
	t.Cleanup(func() { b.RemoveCRDs(t, authCRD().Name) })
	server := mlflowtest.Server()
	b.Create(t, server)
	ns := b.workspace(t)
	a := b.makeAuth(t, users, []any{"admins"})
	foreign := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: access.EditBinding},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "somebody"}}}
	earlier := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: access.ViewBinding,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(server, mlflowv1.GroupVersion.WithKind("MLflow"))}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mlflow-operator-mlflow-view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "old"}}}
	left := earlier.DeepCopy() // the label of the namespace went while no operator ran
	left.Namespace, left.Labels = b.Namespace(t), map[string]string{"app.kubernetes.io/managed-by": "mlflow-operator"}
	named := foreign.DeepCopy() // by somebody who took the name and the label, not for this MLflow
	named.Namespace, named.Labels = left.Namespace, left.Labels
	for _, o := range []client.Object{foreign, earlier, left, named} {
		if err := b.C.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	b.manage(t, b.Manager, "mlflow-operator-")
	b.wait(t, "access to look", func() error {
		return b.bound(ns, access.ViewBinding, "mlflow-operator-mlflow-view", "users", "admins")
	})
	b.Status(t, access.Condition, metav1.ConditionFalse, "RoleBindingNotOurs")
	b.wait(t, "what the operator before us left to go", func() error { return b.missing(left) })
	if err := b.bound(named.Namespace, access.EditBinding, "view", "somebody"); err != nil {
		t.Errorf("what somebody else made was touched: %v", err)
	}
	if err := b.C.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "ours to go", func() error { return b.missing(earlier) })
	if err := b.bound(ns, access.EditBinding, "view", "somebody"); err != nil {
		t.Errorf("what somebody else made was touched: %v", err)
	}
}

func TestAccessKilledAnywhereAndFaults(t *testing.T) {
	b := newBench(t)
	b.InstallCRDs(t, authCRD())
	t.Cleanup(func() { b.RemoveCRDs(t, authCRD().Name) })
	var ns string
	reset := func(t testing.TB) {
		b.Create(t, mlflowtest.Server())
		b.makeAuth(t, users, []any{"admins"})
		ns = b.workspace(t)
	}
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager, Run: b.run, Reset: reset, Stride: 2,
		Converged: func() error { return b.granted(ns) },
		Verify:    func(t testing.TB) { b.Status(t, access.Condition, metav1.ConditionTrue, "Granted") },
		Delete:    func(t testing.TB) { b.Delete(t, mlflowtest.Server()) },
		Gone:      func() error { return b.Ended(ns) },
	})
	faults := testkit.NewFaults(1).AddEach(0.1)
	faults.Off()
	b.manage(t, faults.Wrap(b.Manager), "mlflow-operator-")
	reset(t)
	b.wait(t, "access", func() error { return b.granted(ns) })
	faults.On()
	for range 3 {
		ns := b.workspace(t)
		b.wait(t, "access in spite of faults", func() error { return b.granted(ns) })
	}
	b.Delete(t, mlflowtest.Server())
	b.wait(t, "the end in spite of faults", func() error { return b.Ended(ns) })
	faults.Off()
	if faults.Injected() == 0 {
		t.Error("nothing went wrong")
	}
}
