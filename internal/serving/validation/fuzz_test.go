// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
)

// FuzzAdmission looks for objects that make a rule panic, that defaults change a
// second time, or that cannot be written back as they are. With a seed the
// objects are made up of words that rules know; without they come as JSON.
func FuzzAdmission(f *testing.F) {
	for _, table := range examples() {
		for _, e := range table {
			f.Add(fuzzJSON(f, e.object), fuzzJSON(f, e.old), int64(0))
		}
	}
	for seed := range int64(300) {
		f.Add([]byte(nil), []byte(nil), seed+1)
	}
	kinds := kindsForTest(f)
	Rules{Config: settings(f, nil)}.Apply(kinds)
	ctx := admission.WithReader(f.Context(), world(f, runtimeOf("b", format)+"\n---\n"+local(runtimeOf("b", format))))
	f.Fuzz(func(t *testing.T, raw, rawOld []byte, seed int64) {
		for _, kind := range kinds {
			if kind.Validate == nil {
				continue
			}
			obj, old := kind.New(), kind.New()
			if seed != 0 {
				fillAtRandom(seed, obj, old)
			} else if kjson.UnmarshalCaseSensitivePreserveInts(raw, obj) != nil || kjson.UnmarshalCaseSensitivePreserveInts(rawOld, old) != nil {
				continue
			}
			if kind.Default != nil {
				checkDefaults(t, func() error { return kind.Default(ctx, obj) }, obj)
			}
			before := encoded(t, obj)
			_, err := kind.Validate(ctx, nil, obj)
			if err != nil && utf8.Valid(raw) && !utf8.ValidString(err.Error()) {
				t.Fatalf("the message is not UTF-8: %q", err)
			}
			if _, err := kind.Validate(ctx, obj.DeepCopyObject().(client.Object), obj); err != nil {
				t.Fatalf("an update without a change is refused: %v\n%s", err, before)
			}
			_, _ = kind.Validate(ctx, old, obj)
			if after := encoded(t, obj); !bytes.Equal(before, after) {
				t.Fatalf("looking changed the object:\n%s\n%s", before, after)
			}
		}
	})
}

func checkDefaults(t *testing.T, run func() error, obj client.Object) {
	t.Helper()
	if err := run(); err != nil {
		t.Fatal(err)
	}
	once := encoded(t, obj)
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if twice := encoded(t, obj); !bytes.Equal(once, twice) {
		t.Fatalf("defaults are not idempotent:\n%s\n%s", once, twice)
	}
}

func encoded(t *testing.T, obj any) []byte {
	t.Helper()
	out, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// words that some rule looks for.
var words = []string{
	"", "a", "iris", "kserve-container", "transformer-container", "worker-container", "PYTHONPATH", "STORAGE_URI", "PROTOCOL",
	"TENSOR_PARALLEL_SIZE", "v1", "v2", "s3://a/b.zip", "pvc://a", "oci://a", "/", "/mnt/a", "/mnt/a/b", "../a", "type", "ftp", "root", "next", "(",
	"hpa", "keda", "none", "external", "Standard", "Knative", "ModelMesh", "RawDeployment", "all", "cpu", "memory", "rps", "Utilization", "AverageValue",
	"Resource", "External", "PodMetric", "Splitter", "prometheus", "kbs:///a/b/c", "-gpu", "sklearn", "triton", "nvidia.com/gpu", "example.com/gpu",
	v1beta1.AnnotationDeploymentMode, v1beta1.AnnotationAutoscalerClass, v1beta1.AnnotationGPUResourceTypes, knativeClass, knativeClassHPA,
}

func fillAtRandom(seed int64, objects ...client.Object) {
	filler := randfill.NewWithSeed(seed).NilChance(.8).NumElements(0, 3).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) { *s = words[c.Intn(len(words))] },
		func(q *v1beta1.MetricQuantity, c randfill.Continue) {
			*q = []v1beta1.MetricQuantity{"1", "5Mi", "500m"}[c.Intn(3)]
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(int64(c.Intn(5)), resource.DecimalSI)
		},
		func(n *int32, c randfill.Continue) { *n = int32(c.Intn(205) - 2) },
		func(n *int64, c randfill.Continue) { *n = int64(c.Intn(205) - 2) },
		func(n *int, c randfill.Continue) { *n = c.Intn(5) - 1 },
		func(*metav1.Time, randfill.Continue) {},
		func(*metav1.FieldsV1, randfill.Continue) {},
	)
	for _, obj := range objects {
		filler.Fill(obj)
	}
}

func fuzzJSON(f *testing.F, text string) []byte {
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		f.Fatal(err)
	}
	return raw
}
