// SPDX-License-Identifier: Apache-2.0

// Package charttest puts parts of the chart onto a test API server, so that other rooms can prove that the permissions
// it grants are enough for them. Only tests may import it.
package charttest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// rbacKinds are the objects of a release that decide what the manager may do.
var rbacKinds = []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}

// Dir is the folder of the chart.
func Dir() string {
	dir, err := checkout.Dir("charts", "modelplane")
	if err != nil {
		panic(err) // tests run inside the checkout
	}
	return dir
}

// Render returns the objects of a release and fails the test when the chart cannot be rendered.
func Render(t testing.TB, release chart.Release) []chart.Object {
	t.Helper()
	objects, err := chart.Render(Dir(), release)
	if err != nil {
		t.Fatalf("rendering the chart: %v", err)
	}
	return objects
}

// RBAC creates the account and the roles of a release in the namespace and returns the account's configuration, with a
// token from the server. The cluster-wide role is extended by the extra rules, for controllers that the chart does not
// know, such as those of tests. Everything is removed at the end of the test.
//
// The release is named after the end of the namespace's name, so that tests can run side by side.
func RBAC(t testing.TB, cluster *testkit.Cluster, namespace string, extra ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	return RBACWith(t, cluster, namespace, nil, extra...)
}

// RBACWith is RBAC for a release with other values than the default.
func RBACWith(t testing.TB, cluster *testkit.Cluster, namespace string, values map[string]any, extra ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	account, name := "", "rbac-"+namespace[strings.LastIndex(namespace, "-")+1:]
	for _, o := range grants(t, name, namespace, values) {
		var object client.Object = o.Unstructured
		switch {
		case o.GetKind() == "ServiceAccount":
			account = o.GetName()
		case o.GetKind() == "ClusterRole" && o.Template == "rbac.yaml":
			role := &rbacv1.ClusterRole{}
			if err := k8sruntime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
				t.Fatalf("reading ClusterRole %s: %v", o.GetName(), err)
			}
			role.Rules = append(role.Rules, extra...)
			object = role
		}
		create(t, cluster, object)
	}
	return cluster.ServiceAccountConfig(t, namespace, account)
}

// Names that stand for those of a release in what is rendered once.
const someRelease, someNamespace = "rbac-ofsomerelease", "somenamespace"

// rendered are the grants of releases by their values, each with their template. Nearly every test of a controller asks
// for them, and rendering the whole chart takes longer than most of these tests.
var rendered struct {
	sync.Mutex
	by map[string][]grant
}

type grant struct {
	template string
	object   []byte
}

// grants are the objects of a release that decide what the manager may do.
func grants(t testing.TB, name, namespace string, values map[string]any) []chart.Object {
	t.Helper()
	key, err := json.Marshal(values)
	if err != nil {
		t.Fatalf("values of the chart: %v", err)
	}
	rendered.Lock()
	defer rendered.Unlock()
	all, known := rendered.by[string(key)]
	if !known {
		for _, o := range Render(t, chart.Release{Name: someRelease, Namespace: someNamespace, Values: values}) {
			if slices.Contains(rbacKinds, o.GetKind()) {
				all = append(all, grant{o.Template, encode(t, o)})
			}
		}
		if rendered.by == nil {
			rendered.by = map[string][]grant{}
		}
		rendered.by[string(key)] = all
	}
	named := strings.NewReplacer(someRelease, name, someNamespace, namespace)
	out := make([]chart.Object, 0, len(all))
	for _, g := range all {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(named.Replace(string(g.object)))); err != nil {
			t.Fatalf("reading what the chart renders: %v", err)
		}
		out = append(out, chart.Object{Template: g.template, Unstructured: u})
	}
	return out
}

func encode(t testing.TB, o chart.Object) []byte {
	t.Helper()
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatalf("writing %s: %v", o.GetName(), err)
	}
	return text
}

// users counts the tests that need an object. Most are of one release; what has the same name in every release, such as
// a role for people, is there as long as one of the tests that run side by side needs it.
var users struct {
	sync.Mutex
	of map[user]int
}

type user struct {
	cluster               *testkit.Cluster
	kind, namespace, name string
}

func create(t testing.TB, cluster *testkit.Cluster, object client.Object) {
	t.Helper()
	of := user{cluster, object.GetObjectKind().GroupVersionKind().Kind, object.GetNamespace(), object.GetName()}
	users.Lock()
	defer users.Unlock()
	if users.of == nil {
		users.of = map[user]int{}
	}
	if users.of[of] == 0 {
		if err := cluster.Client().Create(context.Background(), object); err != nil {
			t.Fatalf("creating %s %s: %v", of.kind, of.name, err)
		}
	}
	users.of[of]++
	t.Cleanup(func() {
		users.Lock()
		defer users.Unlock()
		if users.of[of]--; users.of[of] > 0 {
			return
		}
		if err := cluster.Client().Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Errorf("removing %s: %v", of.name, err)
		}
	})
}
