// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/modelplane/modelplane/internal/testkit"
)

const patience = 30 * time.Second

// may lets an account do what the marker on Watcher grants, and no more.
func may(t *testing.T, cluster *testkit.Cluster, namespace string) *rest.Config {
	t.Helper()
	c := cluster.Client()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "watcher"}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{Name}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: meta.Name}},
		},
	} {
		if err := c.Create(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	return cluster.ServiceAccountConfig(t, namespace, meta.Name)
}

// run starts a manager with a watcher that does not lead and never will.
func run(t *testing.T, cfg *rest.Config, namespace string) *Watcher {
	t.Helper()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		GracefulShutdownTimeout: ptr.To(time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWatcher(cfg, namespace, mgr.GetEventRecorder("modelplane"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), w.Current()); diff != "" {
		t.Errorf("before the start (-want +got):\n%s", diff)
	}
	if w.Check(nil) == nil {
		t.Error("ready before the ConfigMap was looked for")
	}
	if err := mgr.Add(w); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	return w
}

func TestWatcherFollowsTheConfigMap(t *testing.T) {
	cluster := testkit.Start(t)
	ns := cluster.Namespace(t)
	c := cluster.Client()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	counter := testkit.NewCounter()
	w := run(t, counter.Wrap(may(t, cluster, ns)), ns)
	if err := w.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(nil); err != nil {
		t.Error(err)
	}
	wants := func(what, image string, agentValid float64) {
		t.Helper()
		testkit.Eventually(t, patience, what, func() error {
			if got := w.Current().Agent.Image; got != image {
				return fmt.Errorf("the image is %q", got)
			}
			if got := testutil.ToFloat64(valid.WithLabelValues(KeyAgent)); got != agentValid {
				return fmt.Errorf("modelplane_config_valid{key=agent} is %v", got)
			}
			return nil
		})
	}
	wants("defaults without a ConfigMap", "kserve/agent:latest", 1)

	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: Name},
		Data:       map[string]string{KeyAgent: `{"image":"one"}`},
	}
	other := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"},
		Data:       map[string]string{KeyAgent: `{"image":"another"}`},
	}
	for _, o := range []client.Object{other, cm} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	wants("the ConfigMap that appeared", "one", 1)
	set := func(data map[string]string) {
		t.Helper()
		cm.Data = data
		if err := c.Update(ctx, cm); err != nil {
			t.Fatal(err)
		}
	}
	set(map[string]string{KeyAgent: `{"image":1}`, KeyDeploy: `{"defaultDeploymentMode":"Serverless","x":1}`})
	wants("the last good value", "one", 0)
	if got := w.Current().Deploy.DefaultDeploymentMode; got != ModeKnative {
		t.Errorf("a bad key kept another from taking effect: mode %s", got)
	}
	if got := testutil.ToFloat64(valid.WithLabelValues(KeyDeploy)); got != 1 {
		t.Errorf("modelplane_config_valid{key=deploy} is %v, although the key is in force", got)
	}
	testkit.Eventually(t, patience, "events on the ConfigMap", func() error {
		return hasEvents(ctx, c, cm, ReasonInvalid+" agent", ReasonUnknown+" deploy")
	})
	set(map[string]string{KeyAgent: `{"image":"two"}`})
	wants("the mended value", "two", 1)
	if err := c.Delete(ctx, cm); err != nil {
		t.Fatal(err)
	}
	wants("defaults after the deletion", "kserve/agent:latest", 1)
	before := counter.Snapshot()
	testkit.Quiet(t, time.Second, "the API server while nothing changes", func() error {
		if calls := counter.Since(before); len(calls) > 0 {
			return fmt.Errorf("requests: %v", calls)
		}
		return nil
	})
}

func hasEvents(ctx context.Context, c client.Client, cm *corev1.ConfigMap, wanted ...string) error {
	var list eventsv1.EventList
	if err := c.List(ctx, &list, client.InNamespace(cm.Namespace)); err != nil {
		return err
	}
	var got []string
	for _, e := range list.Items {
		_, rest, _ := strings.Cut(e.Note, `"`)
		key, _, _ := strings.Cut(rest, `"`)
		if e.Regarding.UID == cm.UID && e.Type == corev1.EventTypeWarning {
			got = append(got, e.Reason+" "+key)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(wanted, got); diff != "" {
		return errors.New(diff)
	}
	return nil
}

func TestWatcherNeedsItsNamespace(t *testing.T) {
	if _, err := NewWatcher(&rest.Config{}, "", nil); err == nil {
		t.Error("a watcher without a namespace would read every namespace")
	}
}

func TestWaitForSyncEndsWithItsContext(t *testing.T) {
	w, err := NewWatcher(&rest.Config{Host: "http://localhost:1"}, "ns", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.WaitForSync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// notes is a recorder that remembers.
type notes struct {
	mu   sync.Mutex
	said []string
}

func (n *notes) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, reason+": "+fmt.Sprintf(note, args...))
}

func TestWatcherSpeaksOncePerProblem(t *testing.T) {
	recorder := &notes{}
	w, err := NewWatcher(&rest.Config{Host: "http://localhost:1"}, "ns", recorder)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		cm   *corev1.ConfigMap
		said int
	}{
		{version("a", "1", agent(`{"image":1}`)), 1},
		{version("a", "2", agent(`{"image":1}`)), 1},
		{version("a", "3", agent(`{"image":"100%d"}`)), 1},
		{version("a", "4", agent(`{"image":1}`)), 2},
		{version("a", "5", agent(`{"cpuLimit":"100%d"}`)), 3},
		{version("a", "6", agent(`{"cpuLimit":"100%d","x":1}`)), 4},
	} {
		w.take(step.cm)
		if len(recorder.said) != step.said {
			t.Errorf("step %d: said %q", i, recorder.said)
		}
	}
	w.take(nil)
	if last := recorder.said[2]; !strings.Contains(last, `"100%d"`) {
		t.Errorf("a percent sign was taken for a format: %s", last)
	}
	if got := bound(strings.Repeat("é", 2000)); len(got) > longestNote || !strings.HasSuffix(got, "é …") {
		t.Errorf("bound to %d bytes, ending in %q", len(got), got[len(got)-6:])
	}
}
