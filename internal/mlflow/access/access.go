// SPDX-License-Identifier: Apache-2.0

// Package access lets the groups of a platform into the workspaces of an MLflow:
// in every namespace that asks for it with a label, one RoleBinding for those who
// may look and one for those who may change things.
//
// RoleBindings of the same names that somebody else made are neither taken over
// nor removed. Those that the operator before us made for the MLflow are ours:
// where nothing asks for them any more, they are removed.
package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
)

// Environment variables of the controller.
const (
	// EnvEnabled switches it on when it is "true".
	EnvEnabled = "ENABLE_NAMESPACE_RBAC"
	// EnvPrefix is what the names of the roles begin with.
	EnvPrefix     = "RESOURCE_NAME_PREFIX"
	DefaultPrefix = "mlflow-operator-"
)

// Names that the platform knows.
const (
	// Label of a namespace names the MLflow whose workspace it is.
	Label       = "opendatahub.io/global-mlflow-workspace"
	ViewBinding = "odh-group-mlflow-view"
	EditBinding = "odh-group-mlflow-edit"
	authName    = "auth"

	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "mlflow-operator"
)

// Condition of an MLflow that tells of its workspaces. It is absent when no
// namespace asks for access.
const Condition = "WorkspaceAccess"

var authKind = schema.GroupVersionKind{Group: "services.platform.opendatahub.io", Version: "v1alpha1", Kind: "Auth"}

// Settings of the controller.
type Settings struct {
	// Prefix is what the names of the roles begin with.
	Prefix string
}

// Controller of the RoleBindings. It looks after the MLflow beside the controller
// of the server, because the RoleBindings go with the MLflow.
func Controller(settings func() Settings) engine.Controller {
	auth := &unstructured.Unstructured{}
	auth.SetGroupVersionKind(authKind)
	return engine.For[*mlflowv1.MLflow, Seen](kind{settings}, engine.Spec{
		Name: "mlflow-access", Ready: Condition, ReadyEvent: "WorkspaceAccessGranted", Workers: 1,
		Status:      &engine.StatusOwnership{Conditions: []string{Condition}}, // the rest is the server's controller's
		OldManagers: []string{managedBy},
		Children:    []engine.ChildKind{{Object: &rbacv1.RoleBinding{}}},
		Inputs: []engine.Input{
			{Object: &corev1.Namespace{}, MetadataOnly: true, Select: labelled},
			{Object: &rbacv1.RoleBinding{}, MetadataOnly: true},
			{Object: auth, Optional: true, Resource: "auths"},
		},
	})
}

// Named are the names of what is read one by one and written.
func Named() map[string][]string {
	return map[string][]string{"rolebindings.rbac.authorization.k8s.io": {ViewBinding, EditBinding}, "auths.services.platform.opendatahub.io": {authName}}
}

// labelled selects the namespaces that ask for access.
var labelled = func() labels.Selector {
	asks, err := labels.NewRequirement(Label, selection.Exists, nil)
	if err != nil {
		panic(err) // constants
	}
	return labels.NewSelector().Add(*asks)
}()

// Seen is everything that the decision depends on.
type Seen struct {
	Settings Settings
	// HasAuth tells whether the platform says who its groups are.
	HasAuth bool
	// Allowed and Admins are these groups.
	Allowed, Admins []string
	// Malformed says what is wrong with them, if something is.
	Malformed string
	// Namespaces ask for access, in the order of their names.
	Namespaces []string
	// Foreign are RoleBindings of our names that somebody else made.
	Foreign map[client.ObjectKey]bool
	// Earlier are those that the operator before us made for the MLflow, as long
	// as we have not applied them.
	Earlier map[client.ObjectKey]types.UID
}

type kind struct{ settings func() Settings }

// Observe implements engine.Kind.
func (k kind) Observe(ctx context.Context, r engine.Reader, m *mlflowv1.MLflow) (Seen, error) {
	seen := Seen{Settings: k.settings(), Foreign: map[client.ObjectKey]bool{}, Earlier: map[client.ObjectKey]types.UID{}}
	if err := seen.readAuth(ctx, r); err != nil {
		return seen, err
	}
	if err := seen.readNamespaces(ctx, r, m); err != nil {
		return seen, err
	}
	for _, ns := range seen.Namespaces {
		for _, name := range []string{ViewBinding, EditBinding} {
			if err := seen.readBinding(ctx, r, m, client.ObjectKey{Namespace: ns, Name: name}); err != nil {
				return seen, err
			}
		}
	}
	err := seen.readEarlier(ctx, r, m)
	return seen, err
}

func (s *Seen) readAuth(ctx context.Context, r engine.Reader) error {
	if !r.HasAPI(authKind.GroupKind()) {
		return nil
	}
	auth := &unstructured.Unstructured{}
	auth.SetGroupVersionKind(authKind)
	if err := r.Get(ctx, client.ObjectKey{Name: authName}, auth); err != nil {
		if meta.IsNoMatchError(err) {
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	s.HasAuth = true
	for field, into := range map[string]*[]string{"allowedGroups": &s.Allowed, "adminGroups": &s.Admins} {
		groups, _, err := unstructured.NestedStringSlice(auth.Object, "spec", field)
		if err != nil {
			s.Malformed = "spec." + field
			continue
		}
		*into = groups
	}
	return nil
}

func (s *Seen) readNamespaces(ctx context.Context, r engine.Reader, m *mlflowv1.MLflow) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.List(ctx, list, client.MatchingLabels{Label: m.Name}); err != nil {
		return err
	}
	for _, ns := range list.Items {
		if ns.DeletionTimestamp == nil && ns.Labels[Label] == m.Name {
			s.Namespaces = append(s.Namespaces, ns.Name)
		}
	}
	slices.Sort(s.Namespaces)
	return nil
}

// readEarlier looks everywhere, since the label of a namespace may have gone while
// nobody looked. What we have applied is found and pruned without that.
func (s *Seen) readEarlier(ctx context.Context, r engine.Reader, m *mlflowv1.MLflow) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBindingList"))
	if err := r.List(ctx, list, client.MatchingLabels{managedByLabel: managedBy}); err != nil {
		return err
	}
	for _, b := range list.Items {
		if (b.Name == ViewBinding || b.Name == EditBinding) && metav1.IsControlledBy(&b, m) && b.Labels[engine.LabelOwner] == "" {
			s.Earlier[client.ObjectKeyFromObject(&b)] = b.UID
		}
	}
	return nil
}

func (s *Seen) readBinding(ctx context.Context, r engine.Reader, m *mlflowv1.MLflow, key client.ObjectKey) error {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	if err := r.Get(ctx, key, head); err != nil {
		return client.IgnoreNotFound(err)
	}
	s.Foreign[key] = head.Labels[engine.LabelOwner] != string(m.UID) && !metav1.IsControlledBy(head, m)
	return nil
}

// Plan implements engine.Kind.
func (k kind) Plan(_ *mlflowv1.MLflow, seen Seen) engine.Plan {
	status := &mlflowv1.MLflowStatus{}
	if seen.Malformed != "" {
		problem := engine.MustChange("GroupsMalformed", "%s of Auth %s is no list of names. Correct it; access stays as it is until then.", seen.Malformed, authName)
		return engine.Plan{KeepChildren: true, Problem: problem, Status: status}
	}
	children, foreign := seen.bindings()
	plan := engine.Plan{Children: append(children, seen.leftovers(children)...), Status: status}
	switch {
	case len(foreign) > 0:
		plan.Problem = engine.MustChange("RoleBindingNotOurs", "Somebody else made %s. It is left as it is; remove it to let the groups of the platform in.",
			strings.Join(foreign, ", "))
	case len(children) > 0:
		status.Conditions = append(status.Conditions, metav1.Condition{Type: Condition, Status: metav1.ConditionTrue, Reason: "Granted",
			Message: "The groups of the platform are let into every namespace that asks for it."})
	}
	return plan
}

// bindings are what should exist, and the names of those that cannot.
func (s *Seen) bindings() (children []engine.Child, foreign []string) {
	if !s.HasAuth {
		return nil, nil
	}
	for _, ns := range s.Namespaces {
		for _, b := range []*rbacv1.RoleBinding{
			s.binding(ns, ViewBinding, "mlflow-view", append(slices.Clone(s.Allowed), s.Admins...)),
			s.binding(ns, EditBinding, "mlflow-edit", s.Admins),
		} {
			if s.Foreign[client.ObjectKeyFromObject(b)] {
				foreign = append(foreign, fmt.Sprintf("RoleBinding %s/%s", b.Namespace, b.Name))
				continue
			}
			children = append(children, engine.Child{Object: b, Replace: true}) // its role cannot be changed
		}
	}
	return children, foreign
}

// leftovers are what the operator before us made and nothing asks for.
func (s *Seen) leftovers(wanted []engine.Child) []engine.Child {
	left := maps.Clone(s.Earlier)
	for _, c := range wanted {
		delete(left, client.ObjectKeyFromObject(c.Object))
	}
	var out []engine.Child
	for _, key := range slices.SortedFunc(maps.Keys(left), func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) }) {
		out = append(out, engine.Child{Delete: true, Object: &rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: left[key]},
		}})
	}
	return out
}

func (s *Seen) binding(ns, name, role string, groups []string) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{managedByLabel: managedBy}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.Settings.Prefix + role},
	}
	seen := map[string]bool{}
	for _, g := range groups {
		if g == "" || seen[g] {
			continue
		}
		seen[g] = true
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: g})
	}
	return b
}
