// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// widgets returns a cluster that knows Widgets, until the test ends.
func widgets(t *testing.T) (*Cluster, string) {
	t.Helper()
	cluster := Start(t)
	crd := widgetCRD()
	cluster.InstallCRDs(t, crd)
	t.Cleanup(func() { cluster.RemoveCRDs(t, crd.Name) })
	namespace := cluster.Namespace(t)
	return cluster, namespace
}

// say writes conditions about the current generation to a widget on the server.
func say(t testing.TB, cluster *Cluster, obj *unstructured.Unstructured, conditions ...map[string]any) {
	t.Helper()
	list := make([]any, len(conditions))
	for i, c := range conditions {
		list[i] = c
	}
	obj.Object["status"] = map[string]any{"conditions": list}
	if err := cluster.Client().Status().Update(context.Background(), obj); err != nil {
		t.Errorf("writing a status: %v", err)
	}
}

func current(obj *unstructured.Unstructured, status string) map[string]any {
	return good("Ready", status, fields{
		"observedGeneration": obj.GetGeneration(), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	})
}

func TestConditionWatcher(t *testing.T) {
	cluster, namespace := widgets(t)
	tests := []struct {
		name string
		act  func(t testing.TB, obj *unstructured.Unstructured)
		want []string
	}{
		{name: "honest", act: func(t testing.TB, obj *unstructured.Unstructured) {
			say(t, cluster, obj, current(obj, "False"))
			say(t, cluster, obj, current(obj, "True"))
		}},
		// Nobody who looks at the end only would see this one.
		{name: "a flap that ended well", act: func(t testing.TB, obj *unstructured.Unstructured) {
			for _, status := range []string{"True", "False", "True"} {
				say(t, cluster, obj, current(obj, status))
			}
		}, want: []string{"flapped within generation 1"}},
		{name: "a lie that was corrected", act: func(t testing.TB, obj *unstructured.Unstructured) {
			ready := current(obj, "True")
			say(t, cluster, obj, ready, good("Stored", "False", fields{"observedGeneration": int64(1)}))
			say(t, cluster, obj, ready)
		}, want: []string{"Stored=False: Ready is True nevertheless"}},
		{name: "left behind by a change", act: func(t testing.TB, obj *unstructured.Unstructured) {
			say(t, cluster, obj, current(obj, "True"))
			obj.Object["spec"] = map[string]any{"size": "2"}
			if err := cluster.Client().Update(context.Background(), obj); err != nil {
				t.Error(err)
			}
		}, want: []string{"it is about generation 1, and the object is at 2"}},
		{name: "left behind and caught up", act: func(t testing.TB, obj *unstructured.Unstructured) {
			before := current(obj, "True")
			say(t, cluster, obj, before)
			obj.Object["spec"] = map[string]any{"size": "2"}
			if err := cluster.Client().Update(context.Background(), obj); err != nil {
				t.Error(err)
			}
			before["observedGeneration"] = obj.GetGeneration()
			say(t, cluster, obj, before)
		}},
		{name: "left behind and deleted", act: func(t testing.TB, obj *unstructured.Unstructured) {
			say(t, cluster, obj, current(obj, "True"))
			obj.Object["spec"] = map[string]any{"size": "2"}
			if err := cluster.Client().Update(context.Background(), obj); err != nil {
				t.Error(err)
			}
			if err := cluster.Client().Delete(context.Background(), obj); err != nil {
				t.Error(err)
			}
		}},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var watcher *ConditionWatcher
			complaints := try(t, func(t testing.TB) {
				watcher = cluster.WatchConditions(t, widgetKind, namespace)
				obj := widget(namespace, string(rune('a'+i)))
				if err := cluster.Client().Create(context.Background(), obj); err != nil {
					t.Fatal(err)
				}
				test.act(t, obj)
			})
			if watcher.Seen() < 2 {
				t.Errorf("the watcher saw %d versions only", watcher.Seen())
			}
			// Objects of the tests before are still there; each lie names its object.
			var mine []string
			for _, complaint := range complaints {
				if strings.Contains(complaint, "/"+string(rune('a'+i))+":") {
					mine = append(mine, complaint)
				}
			}
			if len(mine) != len(test.want) {
				t.Fatalf("complaints = %q, want %d", complaints, len(test.want))
			}
			for j, words := range test.want {
				if !strings.Contains(mine[j], words) {
					t.Errorf("complaint = %q, want one with %q", mine[j], words)
				}
			}
		})
	}
}

func TestConditionWatcherOfAnUnknownKind(t *testing.T) {
	cluster := Start(t)
	mustFail(t, "no matches for kind", func(t testing.TB) {
		cluster.WatchConditions(t, schema.GroupVersionKind{Group: "absent.modelplane.io", Version: "v1", Kind: "Absent"}, "")
	})
}

func TestConditionWatcherSurvivesTheEndOfItsKind(t *testing.T) {
	cluster, namespace := widgets(t)
	complaints := try(t, func(t testing.TB) {
		cluster.WatchConditions(t, widgetKind, namespace)
		cluster.RemoveCRDs(t, widgetCRD().Name)
	})
	if len(complaints) > 0 {
		t.Errorf("complaints = %q", complaints)
	}
}

// TestConditionWatcherThatMissedSomethingSaysSo: silence must not pass for truth.
func TestConditionWatcherThatMissedSomethingSaysSo(t *testing.T) {
	cluster, namespace := widgets(t)
	mustFail(t, "did not see everything", func(t testing.TB) {
		watcher := cluster.WatchConditions(t, widgetKind, namespace)
		watcher.watch.Stop()
		<-watcher.ended
		if err := cluster.Client().Create(context.Background(), widget(namespace, "unseen")); err != nil {
			t.Error(err)
		}
	})
}
