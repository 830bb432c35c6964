// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const yesterday = "2024-05-05T05:05:05Z"

// fields are those of a condition that differ from a good one.
type fields map[string]any

// good is a condition that nobody could object to, with changes.
func good(conditionType, status string, changed fields) map[string]any {
	c := map[string]any{
		"type": conditionType, "status": status, "reason": "Because", "lastTransitionTime": yesterday,
		"message": "The disk is full. Make room on it.", "observedGeneration": int64(3),
	}
	for name, value := range changed {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

// saying returns a widget at generation 3 with conditions.
func saying(conditions ...map[string]any) *unstructured.Unstructured {
	obj := widget("ns", "w")
	obj.SetGeneration(3)
	obj.SetUID("1")
	list := make([]any, len(conditions))
	for i, c := range conditions {
		list[i] = c
	}
	obj.Object["status"] = map[string]any{"conditions": list}
	return obj
}

func TestLies(t *testing.T) {
	ready := good("Ready", "True", nil)
	knativeTrue := fields{"reason": nil, "message": nil, "observedGeneration": nil}
	tests := []struct {
		name    string
		obj     *unstructured.Unstructured
		options []LintOption
		// want are words of each lie; none stands for the truth.
		want []string
	}{
		{name: "no conditions", obj: saying()},
		{name: "all is well", obj: saying(ready, good("Stored", "True", nil))},
		{name: "well without a message", obj: saying(good("Ready", "True", fields{"message": ""}))},
		{name: "honestly unwell", obj: saying(good("Ready", "False", nil), good("Stored", "Unknown", nil))},
		{name: "quoted beginning and end", obj: saying(good("Ready", "False", fields{"message": `"a" is not there (see "b.").`}))},

		{name: "ready while a part is not", obj: saying(ready, good("Stored", "False", nil)), want: []string{"condition Stored=False: Ready is True nevertheless"}},
		{name: "ready while a part is not known", obj: saying(ready, good("Stored", "Unknown", nil)), want: []string{"Stored=Unknown"}},
		{name: "ready while an allowed part is not", obj: saying(ready, good("Stopped", "False", nil)), options: []LintOption{AllowUnready("Stopped")}},
		{name: "ready while stalled", obj: saying(ready, good("Stalled", "True", nil)), want: []string{"at the same time"}},
		{name: "another summary", obj: saying(good("Available", "True", nil), good("Stored", "False", nil)), options: []LintOption{SummaryType("Available")}, want: []string{"Available is True nevertheless"}},

		{name: "empty reason", obj: saying(good("Ready", "True", fields{"reason": ""})), want: []string{"the reason is empty"}},
		{name: "reason in words", obj: saying(good("Ready", "True", fields{"reason": "all good"})), want: []string{`"all good" is not CamelCase`}},
		{name: "reason with a small beginning", obj: saying(good("Ready", "True", fields{"reason": "allGood"})), want: []string{"not CamelCase"}},
		{name: "type in words", obj: saying(good("really ready", "True", nil)), want: []string{"type is not CamelCase"}},
		{name: "type twice", obj: saying(ready, ready), want: []string{"occurs twice"}},
		{name: "odd status", obj: saying(good("Stored", "yes", nil)), want: []string{"none of True, False, Unknown"}},
		{name: "no time", obj: saying(good("Ready", "True", fields{"lastTransitionTime": nil})), want: []string{"is no time"}},
		{name: "from the future", obj: saying(good("Ready", "True", fields{"lastTransitionTime": time.Now().Add(time.Hour).Format(time.RFC3339)})), want: []string{"in the future"}},

		{name: "bad news without a message", obj: saying(good("Ready", "False", fields{"message": ""})), want: []string{"no message"}},
		{name: "one word", obj: saying(good("Ready", "False", fields{"message": "Broken."})), want: []string{"not a sentence"}},
		{name: "no beginning", obj: saying(good("Ready", "False", fields{"message": "disk is full."})), want: []string{"not a sentence"}},
		{name: "no end", obj: saying(good("Ready", "False", fields{"message": "Disk is full"})), want: []string{"not a sentence"}},
		{name: "two lines", obj: saying(good("Ready", "False", fields{"message": "Disk is\nfull."})), want: []string{"not a sentence"}},
		{name: "foreign words", obj: saying(good("Ready", "False", fields{"message": "disk is\nfull"})), options: []LintOption{ForeignMessages("Ready")}},
		{name: "time", obj: saying(good("Ready", "False", fields{"message": "It failed at 2026-01-02T03:04:05Z."})), want: []string{"a timestamp"}},
		{name: "time of day", obj: saying(good("Ready", "False", fields{"message": "It failed at 3:04:05 today."})), want: []string{"a timestamp"}},
		{name: "resource version", obj: saying(good("Ready", "False", fields{"message": "Saw resourceVersion 17."})), want: []string{"a resource version"}},
		{name: "conflict passed on", obj: saying(good("Ready", "False", fields{"message": "The object has been modified."})), want: []string{"a resource version"}},
		{name: "address", obj: saying(good("Ready", "False", fields{"message": "Got 0xc000123456 back."})), want: []string{"a memory address"}},

		{name: "ahead", obj: saying(good("Ready", "False", fields{"observedGeneration": int64(4)})), want: []string{"observedGeneration 4 is ahead of generation 3"}},
		{name: "stale", obj: saying(good("Ready", "True", fields{"observedGeneration": int64(2)})), want: []string{"it is about generation 2"}},
		{name: "stale and not ready", obj: saying(good("Ready", "False", fields{"observedGeneration": int64(2)}))},
		{name: "status ahead", obj: observed(saying(good("Ready", "False", nil)), 4), want: []string{"status.observedGeneration 4 is ahead"}},
		{name: "status stale", obj: observed(saying(good("Ready", "True", fields{"observedGeneration": nil})), 2), want: []string{"status.observedGeneration is 2"}},

		{name: "Knative well", obj: saying(good("Ready", "True", knativeTrue)), options: []LintOption{KnativeConditions()}},
		{name: "Knative well without the option", obj: saying(good("Ready", "True", knativeTrue)), want: []string{"the reason is empty"}},
		{name: "Knative without a time", obj: saying(good("Ready", "True", fields{"lastTransitionTime": nil})), options: []LintOption{KnativeConditions()}},
		{name: "Knative unwell", obj: saying(good("Ready", "False", fields{"reason": nil})), options: []LintOption{KnativeConditions()}, want: []string{"the reason is empty"}},
		{name: "Knative by severity", obj: saying(good("Ready", "True", knativeTrue), good("Warm", "False", fields{"severity": "Info"}))},
		{name: "Knative severity that counts", obj: saying(ready, good("Warm", "False", fields{"severity": "Error"})), want: []string{"Ready is True nevertheless"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Lies(test.obj, test.options...)
			if len(got) != len(test.want) {
				t.Fatalf("lies = %q, want %d of them", got, len(test.want))
			}
			for i, words := range test.want {
				if !strings.Contains(got[i], words) {
					t.Errorf("lie = %q, want one with %q", got[i], words)
				}
			}
		})
	}
}

func observed(obj *unstructured.Unstructured, generation int64) *unstructured.Unstructured {
	obj.Object["status"].(map[string]any)["observedGeneration"] = generation
	return obj
}

func TestLintConditionsOfATypedObject(t *testing.T) {
	typed := deployment("ns", "d")
	typed.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Ready", Status: "True", LastTransitionTime: metav1.Now()}}
	mustFail(t, "ns/d: condition Ready=True: the reason is empty", func(t testing.TB) { LintConditions(t, typed) })
	typed.Status.Conditions[0].Reason = "AllThere"
	LintConditions(t, typed)
}

func TestChanges(t *testing.T) {
	clock := time.Date(2024, 5, 5, 5, 10, 0, 0, time.UTC)
	later := fields{"lastTransitionTime": "2024-05-05T05:09:59Z"}
	earlier := fields{"lastTransitionTime": "2024-05-04T05:05:05Z"}
	tests := []struct {
		name        string
		before, now map[string]any
		want        string
	}{
		{name: "nothing", before: good("Ready", "True", nil), now: good("Ready", "True", nil)},
		{name: "transition", before: good("Ready", "False", nil), now: good("Ready", "True", later)},
		{name: "new condition", before: good("Stored", "False", nil), now: good("Ready", "True", later)},
		{name: "time without transition", before: good("Ready", "True", nil), now: good("Ready", "True", later), want: "without a transition"},
		{name: "transition without time", before: good("Ready", "False", nil), now: good("Ready", "True", nil), want: "it was False before"},
		{name: "transition within a second", before: good("Ready", "False", later), now: good("Ready", "True", later)},
		{name: "back in time", before: good("Ready", "False", nil), now: good("Ready", "True", earlier), want: "went back"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Join(changes(observe(saying(test.before)), observe(saying(test.now)), clock), "\n")
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("lies = %q, want %q", got, test.want)
			}
		})
	}
}

func TestFlaps(t *testing.T) {
	type at struct {
		status, reason string
		generation     int64
	}
	tests := []struct {
		name    string
		path    []at
		options []LintOption
		want    []string
	}{
		{name: "straight", path: []at{{"Unknown", "New", 1}, {"False", "Waiting", 1}, {"False", "Loading", 1}, {"True", "Loaded", 1}}},
		{name: "there and back", path: []at{{"True", "Loaded", 1}, {"False", "Lost", 1}, {"True", "Loaded", 1}},
			want: []string{"Widget ns/w: condition Ready=True: it flapped within generation 1: True (Loaded) → False (Lost) → True (Loaded)"}},
		{name: "by way of a third", path: []at{{"False", "A", 1}, {"Unknown", "B", 1}, {"True", "C", 1}, {"False", "D", 1}},
			want: []string{"Widget ns/w: condition Ready=False: it flapped within generation 1: False (A) → Unknown (B) → True (C) → False (D)"}},
		{name: "somebody changed it", path: []at{{"True", "Loaded", 1}, {"False", "Loading", 2}, {"True", "Loaded", 2}}},
		{name: "for an allowed reason", path: []at{{"True", "Loaded", 1}, {"False", "ChildLost", 1}, {"True", "Loaded", 1}}, options: []LintOption{AllowFlap("ChildLost")}},
		{name: "allowed once does not excuse the next", path: []at{{"True", "L", 1}, {"False", "ChildLost", 1}, {"True", "L", 1}, {"False", "Odd", 1}, {"True", "L", 1}},
			options: []LintOption{AllowFlap("ChildLost")},
			want:    []string{"Widget ns/w: condition Ready=True: it flapped within generation 1: True (L) → False (Odd) → True (L)"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := &ConditionWatcher{linter: newLinter(test.options), lives: map[string]*life{}}
			for _, step := range test.path {
				// Within one second all transitions have the same time.
				obj := saying(good("Ready", step.status, fields{
					"reason": step.reason, "observedGeneration": step.generation, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
				}))
				obj.SetGeneration(step.generation)
				w.look(obj)
			}
			var flaps []string
			for _, lie := range w.Lies() {
				if strings.Contains(lie, "flapped") {
					flaps = append(flaps, lie)
				}
			}
			if diff := cmp.Diff(test.want, flaps); diff != "" {
				t.Errorf("flaps (-want +got):\n%s", diff)
			}
		})
	}
}
