// SPDX-License-Identifier: Apache-2.0

package knative_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/knative"
)

// platform stands in for Knative: each new image makes a revision, and traffic goes where the spec sends it.
type platform struct {
	image          string
	created, ready int
}

func revision(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("r%d", n)
}

// take acts on a spec and returns the Service with its status. A revision that is not up leaves the traffic of the
// latest one with the one before.
func (k *platform) take(t *testing.T, wanted *unstructured.Unstructured, up bool) *unstructured.Unstructured {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(wanted.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	if image := containers[0].(map[string]any)["image"].(string); image != k.image {
		k.image = image
		k.created++
	}
	if up {
		k.ready = k.created
	}
	targets, _, err := unstructured.NestedSlice(wanted.Object, "spec", "traffic")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		if m := target.(map[string]any); m["latestRevision"] == true {
			m["revisionName"] = revision(k.ready)
		}
	}
	live := wanted.DeepCopy()
	live.Object["status"] = map[string]any{
		"latestCreatedRevisionName": revision(k.created),
		"latestReadyRevisionName":   revision(k.ready),
		"traffic":                   targets,
	}
	return live
}

// split writes traffic as "r2=10 r1=90".
func split(live *unstructured.Unstructured) string {
	targets, _, _ := unstructured.NestedSlice(live.Object, "status", "traffic")
	var parts []string
	for _, target := range targets {
		m := target.(map[string]any)
		parts = append(parts, fmt.Sprintf("%v=%v", m["revisionName"], m["percent"]))
	}
	return strings.Join(parts, " ")
}

// A service goes through its life; after each step it must come to rest, at the traffic that the user wants.
func TestRollout(t *testing.T) {
	type step struct {
		name   string
		image  string
		canary *int64
		up     bool
		want   string
	}
	ten, all := ptr.To[int64](10), ptr.To[int64](100)
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"canary, then everything", []step{
			{"created", "one", nil, true, "r1=100"},
			{"a canary that starts", "two", ten, false, "r1=10 r1=90"},
			{"the canary is up", "two", ten, true, "r2=10 r1=90"},
			{"promoted", "two", nil, true, "r2=100"},
		}},
		{"back to the one before", []step{
			{"created", "one", nil, true, "r1=100"},
			{"all at once", "two", nil, true, "r2=100"},
			{"second thoughts", "two", ten, true, "r2=10 r1=90"},
			{"none at all", "two", ptr.To[int64](0), true, "r2=0 r1=100"},
			{"all again", "two", all, true, "r2=100"},
		}},
		{"a canary that never comes up", []step{
			{"created", "one", nil, true, "r1=100"},
			{"all at once", "two", nil, true, "r2=100"},
			{"broken", "three", ten, false, "r2=10 r2=90"},
			{"mended", "four", ten, true, "r4=10 r2=90"},
		}},
		{"a canary from the start", []step{
			{"created", "one", ten, true, "r1=10 r1=90"},
			{"next", "two", ten, true, "r2=10 r1=90"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k, status := &platform{}, v1beta1.ComponentStatusSpec{}
			var live, last *unstructured.Unstructured
			for _, s := range tc.steps {
				part := knative.Part{Name: "iris-predictor", Namespace: "shop"}
				part.Pod.Containers = container(s.image)
				part.Scale.CanaryTrafficPercent = s.canary
				reconcile := func() {
					next, _ := knative.Status(live, status, s.canary)
					wanted := knative.Service(part, next, config.Default())
					if cmp.Equal(wanted, last) {
						status = next // a change is reported only when it was seen
					}
					last, live = wanted.DeepCopy(), k.take(t, wanted, s.up)
				}
				const enough = 6
				for range enough {
					reconcile()
				}
				rest := live
				reconcile()
				if diff := cmp.Diff(rest, live); diff != "" {
					t.Errorf("%s: does not come to rest:\n%s", s.name, diff)
				}
				if got := split(live); got != s.want {
					t.Errorf("%s: traffic %s, want %s", s.name, got, s.want)
				}
			}
		})
	}
}
