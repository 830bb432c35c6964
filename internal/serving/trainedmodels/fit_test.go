// SPDX-License-Identifier: Apache-2.0

package trainedmodels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
)

// model of some memory, made on some day.
func model(name, memory string, day int) v1alpha1.TrainedModel {
	tm := v1alpha1.TrainedModel{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)),
	}}
	tm.Spec.Model.Memory = resource.MustParse(memory)
	return tm
}

func placed(tm v1alpha1.TrainedModel) v1alpha1.TrainedModel {
	tm.Status.Conditions = []v1beta1.Condition{{Type: "MemoryResourceAvailable", Status: corev1.ConditionTrue}}
	return tm
}

func names(list []v1alpha1.TrainedModel) []string {
	out := []string{}
	for i := range list {
		out = append(out, list[i].Name)
	}
	return out
}

func TestFit(t *testing.T) {
	leaving := model("leaving", "900Mi", 1)
	leaving.DeletionTimestamp = &leaving.CreationTimestamp
	moved := placed(model("moved", "600Mi", 3))
	moved.Generation, moved.Status.ObservedGeneration = 2, 1
	cases := map[string]struct {
		limit      string
		models     []v1alpha1.TrainedModel
		fits, left []string
	}{
		"no limit":               {"", []v1alpha1.TrainedModel{model("b", "1Ti", 1), model("a", "1Ti", 1)}, []string{"a", "b"}, []string{}},
		"limit of nothing":       {"0", []v1alpha1.TrainedModel{model("a", "1Ti", 1)}, []string{"a"}, []string{}},
		"oldest first":           {"1Gi", []v1alpha1.TrainedModel{model("a", "600Mi", 2), model("b", "600Mi", 1)}, []string{"b"}, []string{"a"}},
		"then by name":           {"1Gi", []v1alpha1.TrainedModel{model("b", "600Mi", 1), model("a", "600Mi", 1)}, []string{"a"}, []string{"b"}},
		"exactly full":           {"1Gi", []v1alpha1.TrainedModel{model("a", "512Mi", 1), model("b", "0.5Gi", 2)}, []string{"a", "b"}, []string{}},
		"smaller ones pass":      {"1Gi", []v1alpha1.TrainedModel{model("a", "2Gi", 1), model("b", "1Gi", 2)}, []string{"b"}, []string{"a"}},
		"a place is kept":        {"1Gi", []v1alpha1.TrainedModel{model("a", "600Mi", 1), placed(model("b", "600Mi", 2))}, []string{"b"}, []string{"a"}},
		"too many have a place":  {"1Gi", []v1alpha1.TrainedModel{placed(model("a", "600Mi", 2)), placed(model("b", "600Mi", 1))}, []string{"b"}, []string{"a"}},
		"a place elsewhere":      {"1Gi", []v1alpha1.TrainedModel{moved, model("a", "600Mi", 4)}, []string{"moved"}, []string{"a"}},
		"on its way out":         {"1Gi", []v1alpha1.TrainedModel{leaving, model("a", "600Mi", 2)}, []string{"a"}, []string{}},
		"elsewhere but younger":  {"1Gi", []v1alpha1.TrainedModel{model("a", "600Mi", 2), moved}, []string{"a"}, []string{"moved"}},
		"nothing, nothing fits":  {"1Gi", nil, []string{}, []string{}},
		"takes no memory at all": {"1Gi", []v1alpha1.TrainedModel{model("a", "1Gi", 1), model("b", "0", 2)}, []string{"a", "b"}, []string{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var limit *resource.Quantity
			if c.limit != "" {
				limit = ptr.To(resource.MustParse(c.limit))
			}
			fits, left := trainedmodels.Fit(c.models, limit)
			if diff := cmp.Diff(c.fits, names(fits)); diff != "" {
				t.Errorf("fits: %s", diff)
			}
			if diff := cmp.Diff(c.left, names(left)); diff != "" {
				t.Errorf("left: %s", diff)
			}
		})
	}
}

// TestFitKeepsOrder: whatever order the models come in, the answer is the same,
// never exceeds the limit, loses none and leaves the input alone.
func TestFitKeepsOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var list []v1alpha1.TrainedModel
		for i := range 1 + random.IntN(12) {
			tm := model(fmt.Sprintf("m%d", i), fmt.Sprintf("%dMi", random.IntN(500)), 1+random.IntN(3))
			if random.IntN(3) == 0 {
				tm = placed(tm)
			}
			list = append(list, tm)
		}
		limit := resource.MustParse("1Gi")
		fits, left := trainedmodels.Fit(list, &limit)
		shuffled := append([]v1alpha1.TrainedModel(nil), list...)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		input := names(shuffled)
		again, leftAgain := trainedmodels.Fit(shuffled, &limit)
		if diff := cmp.Diff([][]string{names(fits), names(left)}, [][]string{names(again), names(leftAgain)}); diff != "" {
			t.Fatalf("the order of the input matters: %s", diff)
		}
		if diff := cmp.Diff(input, names(shuffled)); diff != "" {
			t.Fatalf("the input was changed: %s", diff)
		}
		total := resource.Quantity{}
		for i := range fits {
			total.Add(fits[i].Spec.Model.Memory)
		}
		if total.Cmp(limit) > 0 || len(fits)+len(left) != len(list) {
			t.Fatalf("%d fit with %s, %d do not, of %d", len(fits), total.String(), len(left), len(list))
		}
	}
}

func TestMultiModelAndLimit(t *testing.T) {
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}}
	block := &v1beta1.PredictorExtensionSpec{Container: v1beta1.Container{Resources: limits}}
	own := func(env ...corev1.EnvVar) v1beta1.PredictorSpec {
		return v1beta1.PredictorSpec{PodSpec: v1beta1.PodSpec{Containers: []corev1.Container{
			{Name: "sidecar"}, {Name: "kserve-container", Env: env, Resources: limits},
		}}}
	}
	stored := &v1beta1.PredictorExtensionSpec{StorageURI: ptr.To("s3://a/b")}
	cases := map[string]struct {
		spec  v1beta1.PredictorSpec
		multi bool
		limit string
	}{
		"framework without storage":   {v1beta1.PredictorSpec{SKLearn: block}, true, "2Gi"},
		"framework with storage":      {v1beta1.PredictorSpec{SKLearn: stored}, false, ""},
		"model without storage":       {v1beta1.PredictorSpec{Model: &v1beta1.ModelSpec{PredictorExtensionSpec: *block}}, true, "2Gi"},
		"model with storage key":      {v1beta1.PredictorSpec{Model: &v1beta1.ModelSpec{PredictorExtensionSpec: v1beta1.PredictorExtensionSpec{Storage: &v1beta1.ModelStorageSpec{}}}}, false, ""},
		"several addresses":           {v1beta1.PredictorSpec{SKLearn: block, StorageUris: []v1beta1.StorageUri{{Uri: "s3://a"}}}, false, "2Gi"},
		"hugging face":                {v1beta1.PredictorSpec{HuggingFace: block}, false, "2Gi"},
		"hugging face as a format":    {v1beta1.PredictorSpec{Model: &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: "huggingface"}}}, false, ""},
		"own container":               {own(), false, "2Gi"},
		"own container for many":      {own(corev1.EnvVar{Name: "MULTI_MODEL_SERVER", Value: "true"}), true, "2Gi"},
		"own container, not for many": {own(corev1.EnvVar{Name: "MULTI_MODEL_SERVER", Value: "false"}), false, "2Gi"},
		"nothing":                     {v1beta1.PredictorSpec{}, false, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := trainedmodels.MultiModel(&c.spec); got != c.multi {
				t.Errorf("MultiModel is %v", got)
			}
			got := ""
			if limit := trainedmodels.MemoryLimit(&v1beta1.InferenceService{Spec: v1beta1.InferenceServiceSpec{Predictor: c.spec}}); limit != nil {
				got = limit.String()
			}
			if got != c.limit {
				t.Errorf("MemoryLimit is %q, want %q", got, c.limit)
			}
		})
	}
}
