// SPDX-License-Identifier: Apache-2.0

package defaultruntimes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/testkit"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { testkit.Main(m) }

// bench is an API server with the definitions, and an account that may do what
// the markers say and no more.
type bench struct {
	*testkit.Cluster
	namespace string
	account   *rest.Config
}

func start(t *testing.T) bench {
	t.Helper()
	b := bench{Cluster: testkit.Start(t)}
	b.namespace = b.Namespace(t)
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range all {
		for _, kind := range kinds {
			if crd.Spec.Names.Kind == kind.Kind && crd.Spec.Group == kind.Group {
				crds = append(crds, crd)
			}
		}
	}
	if len(crds) != len(kinds) {
		t.Fatalf("%d definitions for %d kinds", len(crds), len(kinds))
	}
	b.InstallCRDs(t, crds...)
	b.grant(t)
	t.Cleanup(func() {
		for _, kind := range kinds {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(kind)
			if err := b.Client().DeleteAllOf(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

func (b *bench) grant(t *testing.T) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: b.namespace, Name: b.namespace + "-keeper"}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: b.namespace, Name: meta.Name}}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{Name}, Verbs: []string{"get", "list", "watch"},
		}}},
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"serving.kserve.io"}, Resources: []string{"clusterservingruntimes", "clusterstoragecontainers"},
			Verbs: []string{"list", "create", "update", "delete"},
		}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}},
	} {
		if err := b.Client().Create(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if o.GetNamespace() == "" {
			t.Cleanup(func() {
				if err := b.Client().Delete(context.Background(), o); err != nil {
					t.Error(err)
				}
			})
		}
	}
	b.account = b.ServiceAccountConfig(t, b.namespace, meta.Name)
}

// run starts a keeper and returns what ends it.
func run(t *testing.T, cfg *rest.Config, namespace string) (stop func()) {
	t.Helper()
	k, err := New(cfg, namespace)
	if err != nil {
		t.Fatal(err)
	}
	if !k.NeedLeaderElection() {
		t.Error("every replica writes")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Start(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the keeper ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// list writes the ConfigMap.
func (b *bench) list(t *testing.T, data map[string]string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: Name}, Data: data}
	err := b.Client().Create(context.Background(), cm)
	if apierrors.IsAlreadyExists(err) {
		err = b.Client().Update(context.Background(), cm)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func runtimeOf(name, image string) string {
	return fmt.Sprintf("apiVersion: serving.kserve.io/v1alpha1\nkind: ClusterServingRuntime\nmetadata: {name: %s, labels: {from: us}}\n"+
		"spec: {containers: [{name: kserve-container, image: %q}]}\n", name, image)
}

const container = "apiVersion: serving.kserve.io/v1alpha1\nkind: ClusterStorageContainer\nmetadata: {name: default}\n" +
	"spec: {container: {name: c, image: a}, supportedUriFormats: [{prefix: 's3://'}]}\n"

// image waits until a runtime has an image; empty stands for its absence.
func (b *bench) image(t *testing.T, name, want string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kinds[0])
	testkit.Eventually(t, patience, fmt.Sprintf("%s with image %q", name, want), func() error {
		err := b.Client().Get(context.Background(), client.ObjectKey{Name: name}, o)
		if want == "" && apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if got := imageOf(o); got != want {
			return fmt.Errorf("its image is %q", got)
		}
		return nil
	})
	return o
}

func imageOf(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
	if len(containers) == 0 {
		return ""
	}
	image, _ := containers[0].(map[string]any)["image"].(string)
	return image
}

func (b *bench) setImage(t *testing.T, o *unstructured.Unstructured, image string) {
	t.Helper()
	containers := []any{map[string]any{"name": "kserve-container", "image": image}}
	if err := unstructured.SetNestedSlice(o.Object, containers, "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	if err := b.Client().Update(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

// TestKeeper takes a release through its life.
func TestKeeper(t *testing.T) {
	b := start(t)
	foreign, err := read(runtimeOf("taken", "theirs:1"))
	if err != nil {
		t.Fatal(err)
	}
	foreign.SetLabels(nil)
	foreign.SetAnnotations(nil)
	if err := b.Client().Create(context.Background(), foreign); err != nil {
		t.Fatal(err)
	}
	stop := run(t, b.account, b.namespace)

	b.list(t, map[string]string{
		"a.yaml": runtimeOf("a", "ours:1"), "b.yaml": runtimeOf("b", "ours:1"), "taken.yaml": runtimeOf("taken", "ours:1"), "c.yaml": container,
	})
	b.image(t, "b", "ours:1")
	live := b.image(t, "a", "ours:1")
	if live.GetLabels()["from"] != "us" || live.GetLabels()[Label] == "" {
		t.Errorf("labels %v", live.GetLabels())
	}
	brought := &unstructured.Unstructured{}
	brought.SetGroupVersionKind(kinds[1])
	testkit.Eventually(t, patience, "the storage container", func() error {
		return b.Client().Get(context.Background(), client.ObjectKey{Name: "default"}, brought)
	})

	// What people change stays, over a restart too, which costs no write.
	b.setImage(t, live, "edited:1")
	stop()
	counter := testkit.NewCounter()
	stop = run(t, counter.Wrap(b.account), b.namespace)
	testkit.Eventually(t, patience, "both kinds to be listed", func() error {
		if n := counter.Snapshot().Of("list", "serving.kserve.io/clusterstoragecontainers"); n == 0 {
			return errors.New(counter.String())
		}
		return nil
	})
	testkit.Quiet(t, time.Second, "nothing to write", func() error {
		if counter.Writes() > 0 {
			return errors.New(counter.String())
		}
		return nil
	})
	b.image(t, "a", "edited:1")
	b.image(t, "taken", "theirs:1")

	// A new version goes over it, and what is no longer listed goes.
	b.list(t, map[string]string{"a.yaml": runtimeOf("a", "ours:2"), "c.yaml": container})
	b.image(t, "a", "ours:2")
	b.image(t, "b", "")
	b.image(t, "taken", "theirs:1")

	// Without the ConfigMap everything stays; with an empty one everything goes.
	if err := b.Client().Delete(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: Name}}); err != nil {
		t.Fatal(err)
	}
	testkit.Quiet(t, time.Second, "the runtime to stay", func() error {
		return b.Client().Get(context.Background(), client.ObjectKey{Name: "a"}, live)
	})
	b.list(t, nil)
	b.image(t, "a", "")
	b.image(t, "taken", "theirs:1")
	stop()
}

// asking is a runtime of a release, for which the installation was asked for something.
func asking(name, image, asked string) string {
	return strings.Replace(runtimeOf(name, image), "labels:", fmt.Sprintf("annotations: {%s: %q}, labels:", Asked, asked), 1)
}

// TestUpgradeRollsNothing: a release that brings another version of a runtime leaves the one that is there alone, with what
// people changed in it, until somebody asks for something else.
func TestUpgradeRollsNothing(t *testing.T) {
	b := start(t)
	run(t, b.account, b.namespace)
	b.list(t, map[string]string{"a.yaml": runtimeOf("a", "old:1"), "b.yaml": asking("b", "ours:1", "x")})
	old := b.image(t, "a", "old:1") // by a release that did not note what was asked for
	b.setImage(t, b.image(t, "b", "ours:1"), "edited:1")

	b.list(t, map[string]string{"a.yaml": asking("a", "ours:2", "x"), "b.yaml": asking("b", "ours:2", "x"), "c.yaml": asking("c", "ours:2", "x")})
	b.image(t, "c", "ours:2")
	testkit.Eventually(t, patience, "what was asked for to be noted", func() error {
		if got := b.image(t, "a", "old:1"); got.GetAnnotations()[Asked] != "x" || got.GetGeneration() != old.GetGeneration() {
			return fmt.Errorf("annotations %v, generation %d", got.GetAnnotations(), got.GetGeneration())
		}
		return nil
	})
	testkit.Quiet(t, time.Second, "the runtimes to stay", func() error {
		b.image(t, "a", "old:1")
		b.image(t, "b", "edited:1")
		return nil
	})

	b.list(t, map[string]string{"a.yaml": asking("a", "ours:3", "y"), "b.yaml": asking("b", "ours:3", "y"), "c.yaml": asking("c", "ours:3", "x")})
	b.image(t, "a", "ours:3")
	b.image(t, "b", "ours:3")
	b.image(t, "c", "ours:2")
}

// TestKeeperTriesAgain begins while the API server refuses.
func TestKeeperTriesAgain(t *testing.T) {
	b := start(t)
	faults := testkit.NewFaults(1)
	faults.Add(testkit.Rule{Verbs: []string{"create"}, Fault: testkit.InternalError, Limit: 1})
	b.list(t, map[string]string{"a.yaml": runtimeOf("a", "ours:1")})
	run(t, faults.Wrap(b.account), b.namespace)
	b.image(t, "a", "ours:1")
	if n := faults.Injected(); n != 1 {
		t.Errorf("%d faults, want 1", n)
	}
}

// TestKeeperSparesWhatItCannotRead takes a damaged entry for no removal.
func TestKeeperSparesWhatItCannotRead(t *testing.T) {
	b := start(t)
	run(t, b.account, b.namespace)
	b.list(t, map[string]string{"a.yaml": runtimeOf("a", "ours:1")})
	live := b.image(t, "a", "ours:1")
	b.list(t, map[string]string{"a.yaml": "{", "b.yaml": runtimeOf("b", "ours:1")})
	b.image(t, "b", "ours:1")
	testkit.Quiet(t, time.Second, "the runtime to stay", func() error {
		return b.Client().Get(context.Background(), client.ObjectKey{Name: "a"}, live)
	})
}

func TestNewNeedsANamespace(t *testing.T) {
	if _, err := New(&rest.Config{}, ""); err == nil {
		t.Error("a keeper without a namespace")
	}
}

func TestWanted(t *testing.T) {
	for _, test := range []struct{ name, text, says string }{
		{"no YAML", "{", "a.yaml in ConfigMap modelplane-shipped"},
		{"nothing", "", "is nothing that a release brings"},
		{"something else", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}", "Kind=Secret is nothing that a release brings"},
		{"another version", strings.Replace(container, "v1alpha1", "v1", 1), "is nothing that a release brings"},
		{"no name", strings.Replace(container, "name: default", "labels: {}", 1), "it has no name"},
	} {
		got, err := wanted(&corev1.ConfigMap{Data: map[string]string{"a.yaml": test.text, "b.yaml": container}})
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
		if len(got) != 1 {
			t.Errorf("%s: %d others, want 1", test.name, len(got))
		}
	}
	if _, err := wanted(&corev1.ConfigMap{Data: map[string]string{"a": container, "b": container}}); err == nil {
		t.Error("the same object twice")
	}
}
