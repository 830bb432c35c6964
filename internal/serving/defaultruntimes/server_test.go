// SPDX-License-Identifier: Apache-2.0

package defaultruntimes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/testkit"
)

const patience = domaintest.Patience

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// bench is an API server with the definitions, and the chart's own account in the
// namespace of the release.
type bench struct{ *domaintest.Bench }

func start(t *testing.T) bench {
	t.Helper()
	cluster := testkit.Start(t)
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
	cluster.InstallCRDs(t, crds...)
	b := bench{domaintest.New(t, cluster, scheme)}
	b.Manager = charttest.RBAC(t, cluster, b.NS)
	t.Cleanup(func() { b.clear(t) })
	return b
}

// clear removes what has no namespace, which all tests share.
func (b bench) clear(t testing.TB) {
	t.Helper()
	for _, kind := range kinds {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		if err := b.C.DeleteAllOf(context.Background(), o); err != nil {
			t.Error(err)
		}
	}
}

// process is a manager with this one controller, until ctx ends.
func (b bench) process(ctx context.Context, cfg *rest.Config) error {
	return domaintest.RunIn(ctx, cfg, scheme, engine.Scope{Home: b.NS}, nil, Controller())
}

// run starts a manager and returns what ends it.
func (b bench) run(t *testing.T, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.process(ctx, cfg) })
}

// brought makes an object as releases did before the engine wrote them.
func (b bench) brought(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.C.Create(context.Background(), o, client.FieldOwner(oldManager)); err != nil {
		t.Fatal(err)
	}
	return o
}

// list writes the ConfigMap.
func (b bench) list(t testing.TB, data map[string]string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: Name}, Data: data}
	err := b.C.Create(context.Background(), cm)
	if apierrors.IsAlreadyExists(err) {
		err = b.C.Update(context.Background(), cm)
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
func (b bench) image(t *testing.T, name, want string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kinds[0])
	testkit.Eventually(t, patience, fmt.Sprintf("%s with image %q", name, want), func() error {
		err := b.C.Get(context.Background(), client.ObjectKey{Name: name}, o)
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

func (b bench) setImage(t *testing.T, o *unstructured.Unstructured, image string) {
	t.Helper()
	containers := []any{map[string]any{"name": "kserve-container", "image": image}}
	if err := unstructured.SetNestedSlice(o.Object, containers, "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	if err := b.C.Update(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

// unlist takes the ConfigMap away, which nothing may hold up.
func (b bench) unlist(t testing.TB) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: Name}}
	b.Exists(t, cm, Name)
	if len(cm.Finalizers) > 0 {
		t.Errorf("the ConfigMap has finalizers: %v", cm.Finalizers)
	}
	b.Delete(t, cm)
	b.Gone(t, cm, Name)
}

// settled waits until a manager has looked at both kinds, and then wrote nothing.
func settled(t *testing.T, counter *testkit.Counter, when string) {
	t.Helper()
	testkit.Eventually(t, patience, "both kinds to be watched", func() error {
		counts := counter.Snapshot()
		if counts.Of("watch", "serving.kserve.io/clusterstoragecontainers") < 2 || counts.Of("watch", "serving.kserve.io/clusterservingruntimes") < 2 {
			return errors.New(counter.String())
		}
		return nil
	})
	testkit.NoWrites(t, counter, time.Second, when)
	if n := counter.Writes(); n > 0 {
		t.Errorf("%d writes %s:\n%s", n, when, counter)
	}
}

// TestRelease takes a release through its life.
func TestRelease(t *testing.T) {
	b := start(t)
	foreign, err := read(runtimeOf("taken", "theirs:1"))
	if err != nil {
		t.Fatal(err)
	}
	foreign.SetLabels(nil)
	foreign.SetAnnotations(nil)
	b.Create(t, foreign)
	stop := b.run(t, b.Manager)

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
	b.Exists(t, brought, "default")

	// What people change stays, over a restart too, which costs no write.
	b.Change(t, live, func() { live.SetAnnotations(with(live.GetAnnotations(), "theirs", "yes")) })
	b.setImage(t, live, "edited:1")
	stop()
	counter := testkit.NewCounter()
	stop = b.run(t, counter.Wrap(b.Manager))
	settled(t, counter, "after a restart")
	b.image(t, "a", "edited:1")
	b.image(t, "taken", "theirs:1")

	// A new version goes over it, and what is no longer listed goes.
	b.list(t, map[string]string{"a.yaml": runtimeOf("a", "ours:2"), "c.yaml": container})
	if live := b.image(t, "a", "ours:2"); live.GetAnnotations()["theirs"] != "yes" {
		t.Errorf("an annotation of somebody else is gone: %v", live.GetAnnotations())
	}
	b.image(t, "b", "")
	b.image(t, "taken", "theirs:1")

	// What is deleted by hand comes back, as long as it is listed.
	b.Delete(t, live)
	b.image(t, "a", "ours:2")

	// Without the ConfigMap everything stays; with another one that lists nothing everything goes.
	b.unlist(t)
	testkit.Quiet(t, time.Second, "the runtime to stay", func() error {
		return b.C.Get(context.Background(), client.ObjectKey{Name: "a"}, live)
	})
	b.list(t, nil)
	b.image(t, "a", "")
	b.Gone(t, brought, "default")
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
	b.run(t, b.Manager)
	b.list(t, map[string]string{"a.yaml": runtimeOf("a", "old:1"), "b.yaml": asking("b", "ours:1", "x")})
	old := b.image(t, "a", "old:1") // by a release that did not note what was asked for
	b.setImage(t, b.image(t, "b", "ours:1"), "edited:1")

	b.list(t, map[string]string{"a.yaml": asking("a", "ours:2", "x"), "b.yaml": asking("b", "ours:2", "x"), "c.yaml": asking("c", "ours:2", "x")})
	b.image(t, "c", "ours:2")
	b.noted(t, "a", "old:1", "x", old.GetGeneration())
	testkit.Quiet(t, time.Second, "the runtimes to stay", func() error {
		if labels := b.image(t, "a", "old:1").GetLabels(); labels["from"] != "us" || labels[Label] != "true" {
			return fmt.Errorf("labels %v", labels)
		}
		b.image(t, "b", "edited:1")
		return nil
	})

	b.list(t, map[string]string{"a.yaml": asking("a", "ours:3", "y"), "b.yaml": asking("b", "ours:3", "y"), "c.yaml": asking("c", "ours:3", "x")})
	b.image(t, "a", "ours:3")
	b.image(t, "b", "ours:3")
	b.image(t, "c", "ours:2")
}

// noted waits until a runtime says what was asked for, and is else as it was.
func (b bench) noted(t *testing.T, name, image, asked string, generation int64) {
	t.Helper()
	testkit.Eventually(t, patience, "what was asked for to be noted in "+name, func() error {
		if got := b.image(t, name, image); got.GetAnnotations()[Asked] != asked || got.GetGeneration() != generation {
			return fmt.Errorf("annotations %v, generation %d", got.GetAnnotations(), got.GetGeneration())
		}
		return nil
	})
}

// withField is a runtime with a field that later versions of it do not have.
func withField(text string) string {
	return strings.Replace(text, "spec: {", "spec: {multiModel: true, ", 1)
}

// TestTakesOverWhatEarlierReleasesMade: nothing is written to what an earlier release brought and this one brings as well;
// what is asked for comes whole, and what is no longer listed goes.
func TestTakesOverWhatEarlierReleasesMade(t *testing.T) {
	b := start(t)
	listed := map[string]string{}
	for name, text := range map[string]string{
		"same": runtimeOf("same", "old:1"), "unnoted": runtimeOf("unnoted", "old:1"), "asked": asking("asked", "old:1", "x"),
		"moved": withField(asking("moved", "old:1", "x")), "plain": withField(runtimeOf("plain", "old:1")), "dropped": runtimeOf("dropped", "old:1"),
	} {
		b.brought(t, text)
		listed[name+".yaml"] = text
	}
	b.list(t, listed)
	counter := testkit.NewCounter()
	b.run(t, counter.Wrap(b.Manager))
	settled(t, counter, "when an earlier release made it all")

	delete(listed, "dropped.yaml")
	listed["unnoted.yaml"], listed["asked.yaml"] = asking("unnoted", "ours:2", "x"), asking("asked", "ours:2", "x")
	listed["moved.yaml"], listed["plain.yaml"] = asking("moved", "ours:2", "y"), runtimeOf("plain", "ours:2")
	b.list(t, listed)
	for _, name := range []string{"moved", "plain"} {
		if _, there, _ := unstructured.NestedBool(b.image(t, name, "ours:2").Object, "spec", "multiModel"); there {
			t.Errorf("%s still has what the release no longer brings", name)
		}
	}
	b.image(t, "dropped", "")
	b.noted(t, "unnoted", "old:1", "x", 1)
	b.image(t, "asked", "old:1")
	same := b.image(t, "same", "old:1")
	if managed := same.GetManagedFields(); len(managed) != 1 || managed[0].Manager != oldManager {
		t.Errorf("what did not change was written: %v", managed)
	}
	testkit.NoWrites(t, counter, time.Second, "at the end")
}

// TestFailingCalls converges while calls fail in every way that a call can fail.
func TestFailingCalls(t *testing.T) {
	const n = 12
	b := start(t)
	listed := map[string]string{"c.yaml": container}
	for i := range n {
		name := fmt.Sprintf("r%d", i)
		if i%2 == 0 {
			b.brought(t, asking(name, "old:1", "x"))
		}
		listed[name+".yaml"] = asking(name, "ours:1", "y")
	}
	b.brought(t, runtimeOf("dropped", "old:1"))
	b.list(t, listed)
	faults, counter := testkit.NewFaults(3).AddEach(0.1), testkit.NewCounter()
	testkit.Insist(t, func(ctx context.Context) error { return b.process(ctx, counter.Wrap(faults.Wrap(b.Manager))) })
	for i := range n {
		b.image(t, fmt.Sprintf("r%d", i), "ours:1")
	}
	b.image(t, "dropped", "")
	t.Logf("%d of %d calls failed", faults.Injected(), counter.Snapshot().Total())
	if faults.Injected() < n/2 {
		t.Error("too few faults to have shown anything")
	}
	faults.Off()
	testkit.Rest(t, 5*time.Second, "the last retry", counter.Writes) // of a write whose answer was lost
	testkit.NoWrites(t, counter, time.Second, "when the faults are over")
}

// TestSparesWhatItCannotRead takes a damaged entry for no removal, and says so.
func TestSparesWhatItCannotRead(t *testing.T) {
	b := start(t)
	b.run(t, b.Manager)
	b.list(t, map[string]string{"a.yaml": runtimeOf("a", "ours:1")})
	live := b.image(t, "a", "ours:1")
	b.list(t, map[string]string{"a.yaml": "{", "b.yaml": runtimeOf("b", "ours:1")})
	b.image(t, "b", "ours:1")
	testkit.Quiet(t, time.Second, "the runtime to stay", func() error {
		return b.C.Get(context.Background(), client.ObjectKey{Name: "a"}, live)
	})
	testkit.Eventually(t, patience, "an event about it", func() error {
		events := &corev1.EventList{}
		if err := b.C.List(context.Background(), events, client.InNamespace(b.NS), client.MatchingFields{"reason": "EntryUnreadable"}); err != nil {
			return err
		}
		if len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, "a.yaml in ConfigMap modelplane-shipped") {
			return fmt.Errorf("events: %v", events.Items)
		}
		return nil
	})
}

// TestKilledEverywhere kills the manager after every write in turn, on the way from
// what an earlier release made to what this one brings.
func TestKilledEverywhere(t *testing.T) {
	b := start(t)
	state := func() (map[string]string, error) {
		all := &v1alpha1.ClusterServingRuntimeList{}
		if err := b.C.List(context.Background(), all); err != nil {
			return nil, err
		}
		out := map[string]string{}
		for _, rt := range all.Items {
			out[rt.Name] = fmt.Sprintf("%s %s multiModel=%t %s", rt.Spec.Containers[0].Image, rt.Annotations[Asked], rt.Spec.MultiModel != nil, rt.Labels[engine.LabelTakingOver])
		}
		return out, nil
	}
	reached := func(want map[string]string) func() error {
		return func() error {
			got, err := state()
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				return fmt.Errorf("%w; (-want +got):\n%s", err, diff)
			}
			return nil
		}
	}
	after := map[string]string{"new": "ours:2 y multiModel=false ", "moved": "ours:2 y multiModel=false ", "unnoted": "old:1 y multiModel=true "}
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager, Run: b.process,
		Reset: func(t testing.TB) {
			b.clear(t)
			b.brought(t, withField(asking("moved", "old:1", "x")))
			b.brought(t, withField(runtimeOf("unnoted", "old:1")))
			b.brought(t, runtimeOf("dropped", "old:1"))
			b.list(t, map[string]string{"n": asking("new", "ours:2", "y"), "m": asking("moved", "ours:2", "y"), "u": asking("unnoted", "ours:2", "y")})
		},
		Converged: reached(after), Verify: func(testing.TB) {},
		Delete: func(t testing.TB) { b.unlist(t) },
		Gone:   reached(after), // the ConfigMap goes, and what it brought stays
	})
}

func TestNeedsANamespace(t *testing.T) {
	err := domaintest.Run(t.Context(), &rest.Config{}, scheme, Controller())
	if err == nil || !strings.Contains(err.Error(), "own namespace is not known") {
		t.Errorf("without a namespace: %v", err)
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
