// SPDX-License-Identifier: Apache-2.0

package knative_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// input is the in.yaml of a golden case: what differs from the part of every case.
type input struct {
	Part   knative.Part
	Status v1beta1.ComponentStatusSpec
	Config config.Config
}

// read fills in what every case has in common: a predictor named iris.
func read(t *testing.T, raw []byte) input {
	t.Helper()
	in := input{
		Part: knative.Part{
			Component: v1beta1.PredictorComponent, Name: "iris-predictor", Namespace: "shop",
			Labels: map[string]string{v1beta1.LabelInferenceService: "iris", v1beta1.LabelComponent: "predictor"},
		},
		Config: *config.Default(),
	}
	if err := yaml.UnmarshalStrict(raw, &in); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestGolden(t *testing.T) {
	testkit.Golden(t, "testdata/rules", func(t *testing.T, raw []byte) []byte {
		in, before := read(t, raw), read(t, raw)
		got := knative.Service(in.Part, in.Status, &in.Config)
		out, err := yaml.Marshal(got.Object)
		if err != nil {
			t.Fatal(err)
		}
		got.GetLabels()["component"] = "scribble"
		if !reflect.DeepEqual(in, before) {
			t.Error("the part was changed")
		}
		return out
	})
}

func inputs(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/rules/*/in.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	return paths
}

func readFile(t *testing.T, path string) input {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, raw)
}

func TestInitialScale(t *testing.T) {
	const key = "autoscaling.knative.dev/initial-scale"
	allowed := map[string]string{"allow-zero-initial-scale": "true"}
	for _, tc := range []struct {
		name, value string
		autoscaler  map[string]string
		note        string // a part of it; empty means that the annotation stays
	}{
		{name: "a number", value: "3"},
		{name: "zero where allowed", value: "0", autoscaler: allowed},
		{name: "zero without a word on it", value: "0", autoscaler: map[string]string{}, note: "does not allow"},
		{name: "zero without the ConfigMap", value: "0", note: "does not allow"},
		{name: "zero with nonsense in the ConfigMap", value: "0", autoscaler: map[string]string{"allow-zero-initial-scale": "perhaps"}, note: "does not allow"},
		{name: "not a number", value: "many", autoscaler: allowed, note: `"many", which is not a number`},
		{name: "less than nothing", value: "-1", autoscaler: allowed, note: `"-1", which is not a number`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			annotations := map[string]string{key: tc.value, "team": "forecasting"}
			before := maps.Clone(annotations)
			kept, note := knative.InitialScale(annotations, tc.autoscaler)
			want := maps.Clone(before)
			if tc.note != "" {
				delete(want, key)
			}
			if diff := cmp.Diff(want, kept); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if (note == "") != (tc.note == "") || !strings.Contains(note, tc.note) {
				t.Errorf("note = %q, want one with %q", note, tc.note)
			}
			if diff := cmp.Diff(before, annotations); diff != "" {
				t.Errorf("the input was changed:\n%s", diff)
			}
		})
	}
	if kept, note := knative.InitialScale(nil, nil); kept != nil || note != "" {
		t.Errorf("without annotations: %v, %q", kept, note)
	}
}

// live is a Knative Service of generation 2 with the status of a YAML text.
func live(t *testing.T, status string) *unstructured.Unstructured {
	t.Helper()
	text := "apiVersion: serving.knative.dev/v1\nkind: Service\n" +
		"metadata: {name: iris-predictor, namespace: shop, generation: 2}\nstatus: " + status
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

const ready = `conditions: [{type: Ready, status: "True"}, {type: RoutesReady, status: "True"}, {type: ConfigurationsReady, status: "True"}]`

func TestStatusRevisions(t *testing.T) {
	known := v1beta1.ComponentStatusSpec{LatestRolledoutRevision: "r2", PreviousRolledoutRevision: "r1"}
	for _, tc := range []struct {
		name          string
		before        v1beta1.ComponentStatusSpec
		canary        *int64
		status        string
		rolled, prior string
	}{
		{name: "the first revision gets everything", rolled: "r1",
			status: `{latestReadyRevisionName: r1, latestCreatedRevisionName: r1, traffic: [{revisionName: r1, latestRevision: true, percent: 100}]}`},
		{name: "nothing is rolled out before it is ready",
			status: `{latestCreatedRevisionName: r1}`},
		{name: "the next one takes over", before: known, rolled: "r3", prior: "r2",
			status: `{latestReadyRevisionName: r3, latestCreatedRevisionName: r3, traffic: [{revisionName: r3, latestRevision: true, percent: 100}]}`},
		{name: "a canary is not rolled out", before: known, canary: ptr.To[int64](10), rolled: "r2", prior: "r1",
			status: `{latestReadyRevisionName: r3, latestCreatedRevisionName: r3, traffic: [{revisionName: r3, latestRevision: true, percent: 10}, {revisionName: r2, latestRevision: false, percent: 90, tag: prev}]}`},
		{name: "a canary after the fact goes back one revision", before: known, canary: ptr.To[int64](10), rolled: "r1", prior: "r1",
			status: `{` + ready + `, latestReadyRevisionName: r2, latestCreatedRevisionName: r2, traffic: [{revisionName: r2, latestRevision: true, percent: 10}, {revisionName: r2, latestRevision: false, percent: 90, tag: prev}]}`},
		{name: "there is nothing to go back to", before: v1beta1.ComponentStatusSpec{LatestRolledoutRevision: "r2"}, canary: ptr.To[int64](10), rolled: "r2",
			status: `{` + ready + `, latestReadyRevisionName: r2, latestCreatedRevisionName: r2, traffic: [{revisionName: r2, latestRevision: true, percent: 10}, {revisionName: r2, percent: 90}]}`},
		{name: "a split that waits for the next revision goes nowhere", before: known, canary: ptr.To[int64](10), rolled: "r2", prior: "r1",
			status: `{latestReadyRevisionName: r2, latestCreatedRevisionName: r3, traffic: [{revisionName: r2, latestRevision: true, percent: 10}, {revisionName: r2, percent: 90}]}`},
		{name: "a split while the next revision is being made goes nowhere", before: known, canary: ptr.To[int64](10), rolled: "r2", prior: "r1",
			status: `{conditions: [{type: ConfigurationsReady, status: Unknown, reason: OutOfDate}], latestReadyRevisionName: r2, latestCreatedRevisionName: r2, traffic: [{revisionName: r2, latestRevision: true, percent: 10}, {revisionName: r2, percent: 90}]}`},
		{name: "a split that nobody asks for any more goes nowhere", before: known, rolled: "r2", prior: "r1",
			status: `{` + ready + `, latestReadyRevisionName: r2, latestCreatedRevisionName: r2, traffic: [{revisionName: r2, latestRevision: true, percent: 10}, {revisionName: r2, percent: 90}]}`},
		{name: "an old status decides nothing", before: known, rolled: "r2", prior: "r1",
			status: `{observedGeneration: 1, latestReadyRevisionName: r3, latestCreatedRevisionName: r3, traffic: [{revisionName: r3, latestRevision: true, percent: 100}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _ := knative.Status(live(t, tc.status), tc.before, tc.canary)
			if got.LatestRolledoutRevision != tc.rolled || got.PreviousRolledoutRevision != tc.prior {
				t.Errorf("rolled out %q before %q, want %q before %q", got.LatestRolledoutRevision, got.PreviousRolledoutRevision, tc.rolled, tc.prior)
			}
			again, _ := knative.Status(live(t, tc.status), got, tc.canary)
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("a second look differs (-first +second):\n%s", diff)
			}
		})
	}
}

func TestStatusWhole(t *testing.T) {
	text := `{observedGeneration: 2, latestReadyRevisionName: r2, latestCreatedRevisionName: r3,
		url: "http://iris-predictor.shop.example.com", address: {url: "http://iris-predictor.shop.svc.cluster.local"},
		traffic: [{revisionName: r2, latestRevision: true, percent: 100, tag: latest, url: "http://latest-iris-predictor.shop.example.com"}],
		conditions: [{type: RoutesReady, status: "True"}, {type: Other, status: "False"}, {type: ConfigurationsReady, status: Unknown, reason: Deploying, message: "50% done", severity: Info, lastTransitionTime: "2026-01-02T03:04:05Z"}, {type: Ready, status: "True"}]}`
	before := v1beta1.ComponentStatusSpec{GrpcURL: ptr.To("grpc://kept"), URL: ptr.To("http://old")}
	got, conditions := knative.Status(live(t, text), before, nil)
	want := v1beta1.ComponentStatusSpec{
		LatestReadyRevision: "r2", LatestCreatedRevision: "r3", LatestRolledoutRevision: "r2",
		URL: ptr.To("http://iris-predictor.shop.example.com"), GrpcURL: ptr.To("grpc://kept"),
		Address: &v1beta1.Addressable{URL: ptr.To("http://iris-predictor.shop.svc.cluster.local")},
		Traffic: []v1beta1.TrafficTarget{{RevisionName: "r2", LatestRevision: ptr.To(true), Percent: ptr.To[int64](100), Tag: "latest",
			URL: ptr.To("http://latest-iris-predictor.shop.example.com")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	wantConditions := kube.Conditions{
		{Type: "Ready", Status: "True"},
		{Type: "RoutesReady", Status: "True"},
		{Type: "ConfigurationsReady", Status: "Unknown", Reason: "Deploying", Message: "50% done", Severity: "Info"},
	}
	if diff := cmp.Diff(wantConditions, conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestStatusNotReady(t *testing.T) {
	before := v1beta1.ComponentStatusSpec{URL: ptr.To("http://old"), LatestRolledoutRevision: "r1"}
	got, conditions := knative.Status(live(t, `{url: "http://new", conditions: [{type: Ready, status: "False", reason: RevisionFailed, message: "No."}]}`), before, nil)
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("what is not ready changes where it is reached (-want +got):\n%s", diff)
	}
	if c, _ := conditions.Get("Ready"); c.Status != "False" || c.Reason != "RevisionFailed" || c.Message != "No." {
		t.Errorf("Ready = %v", c)
	}
	if _, ok := conditions.Get("RoutesReady"); ok {
		t.Error("a condition was made up")
	}
}

func TestStatusOutdated(t *testing.T) {
	_, conditions := knative.Status(live(t, `{observedGeneration: 1, `+ready+`}`), v1beta1.ComponentStatusSpec{}, nil)
	for _, typ := range []string{"Ready", "RoutesReady", "ConfigurationsReady"} {
		if c, _ := conditions.Get(typ); c.Status != "Unknown" || c.Reason != "OutOfDate" || !strings.Contains(c.Message, "shop/iris-predictor") {
			t.Errorf("%s = %v", typ, c)
		}
	}
}

func TestStatusGone(t *testing.T) {
	got, conditions := knative.Status(nil, v1beta1.ComponentStatusSpec{LatestRolledoutRevision: "r1", URL: ptr.To("http://old")}, ptr.To[int64](10))
	if !reflect.DeepEqual(got, v1beta1.ComponentStatusSpec{}) || len(conditions) != 0 {
		t.Errorf("revisions outlive their service: %v, %v", got, conditions)
	}
}

func TestStatusUnreadable(t *testing.T) {
	before := v1beta1.ComponentStatusSpec{LatestRolledoutRevision: "r1"}
	for _, status := range []string{`{traffic: all}`, `yes`} {
		got, conditions := knative.Status(live(t, status), before, nil)
		if c, _ := conditions.Get("Ready"); c.Status != "Unknown" || c.Reason != "Unreadable" {
			t.Errorf("%s: Ready = %v", status, c)
		}
		if diff := cmp.Diff(before, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", status, diff)
		}
	}
}
