// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/internal/wiretest"
	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1alpha2"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

const seeds = 20

// spoke is a version that converts to and from the hub.
type spoke interface {
	conversion.Convertible
	metav1.Object
}

// hub is the version in the middle.
type hub interface {
	conversion.Hub
	metav1.Object
}

var pairs = []struct {
	name  string
	spoke func() spoke
	hub   func() hub
}{
	{
		"LLMInferenceService",
		func() spoke { return &v1alpha1.LLMInferenceService{} },
		func() hub { return &v1alpha2.LLMInferenceService{} },
	},
	{
		"LLMInferenceServiceConfig",
		func() spoke { return &v1alpha1.LLMInferenceServiceConfig{} },
		func() hub { return &v1alpha2.LLMInferenceServiceConfig{} },
	},
}

func TestThereAndBack(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair.name+" by way of the hub", func(t *testing.T) {
			for seed := range int64(seeds) {
				in, middle, out := pair.spoke(), pair.hub(), pair.spoke()
				wiretest.Filler(seed).Fill(in)
				before := in.DeepCopyObject()
				must(t, seed, in.ConvertTo(middle))
				must(t, seed, out.ConvertFrom(middle))
				wiretest.Same(t, seed, "the source", before, in)
				wiretest.Same(t, seed, "the object", in, out)
			}
		})
		t.Run(pair.name+" by way of v1alpha1", func(t *testing.T) {
			for seed := range int64(seeds) {
				in, middle, out := pair.hub(), pair.spoke(), pair.hub()
				wiretest.Filler(seed).Fill(in)
				before := in.DeepCopyObject()
				must(t, seed, middle.ConvertFrom(in))
				must(t, seed, middle.ConvertTo(out))
				wiretest.Same(t, seed, "the source", before, in)
				wiretest.Same(t, seed, "the object", in, out)
			}
		})
	}
}

func must(t *testing.T, seed int64, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

func TestOldPoolForm(t *testing.T) {
	old := &v1alpha1.LLMInferenceService{}
	old.Spec.Router = &v1alpha1.RouterSpec{Scheduler: &v1alpha1.SchedulerSpec{Pool: &v1alpha1.InferencePoolSpec{
		Spec: &v1alpha1.PoolSpec{
			Selector:         map[string]v1alpha1.LabelValue{"app": "llm"},
			TargetPortNumber: 8000,
			ExtensionRef: &v1alpha1.ExtensionReference{
				Group: new(gatewayv1.Group("")), Kind: new(gatewayv1.Kind("Service")), Name: "picker",
				PortNumber: new(int32(9002)), FailureMode: "FailOpen",
			},
		},
	}}}
	want := &inferencev1.InferencePoolSpec{
		Selector:    inferencev1.LabelSelector{MatchLabels: map[inferencev1.LabelKey]inferencev1.LabelValue{"app": "llm"}},
		TargetPorts: []inferencev1.Port{{Number: 8000}},
		EndpointPickerRef: inferencev1.EndpointPickerRef{
			Group: new(inferencev1.Group("")), Kind: "Service", Name: "picker",
			Port: &inferencev1.Port{Number: 9002}, FailureMode: "FailOpen",
		},
	}
	if diff := cmp.Diff(want, toHub(t, old).Spec.Router.Scheduler.Pool.Spec); diff != "" {
		t.Errorf("pool (-want +have):\n%s", diff)
	}
}

// TestCriticalityAnnotations pins the text, which objects stored by others hold.
func TestCriticalityAnnotations(t *testing.T) {
	old := &v1alpha1.LLMInferenceService{}
	old.Spec.Model = v1alpha1.LLMModelSpec{
		Criticality: new(v1alpha1.Critical),
		LoRA: &v1alpha1.LoRASpec{Adapters: []v1alpha1.LLMModelSpec{
			{Name: new("a")},
			{Name: new("b"), Criticality: new(v1alpha1.Sheddable), LoRA: &v1alpha1.LoRASpec{
				Adapters: []v1alpha1.LLMModelSpec{{Criticality: new(v1alpha1.Standard)}},
			}},
		}},
	}
	want := map[string]string{
		"internal.serving.kserve.io/model-criticality":  "Critical",
		"internal.serving.kserve.io/lora-criticalities": `{"1":"Sheddable"}`,
		v1alpha1.KeptFromV1alpha1:                       `{"1.0":"Standard"}`,
	}
	if diff := cmp.Diff(want, toHub(t, old).Annotations); diff != "" {
		t.Errorf("annotations (-want +have):\n%s", diff)
	}
}

// TestEditThroughTheOldVersion has a v1alpha1 client change an object that holds
// what v1alpha1 cannot say: what it did not touch stays, what it removed is gone.
func TestEditThroughTheOldVersion(t *testing.T) {
	secret := func(id string) *v1beta1.ConfidentialSpec {
		return &v1beta1.ConfidentialSpec{Enabled: true, ResourceID: &id}
	}
	stored := &v1alpha2.LLMInferenceService{}
	stored.Spec.Model.LoRA = &v1alpha2.LoRASpec{Adapters: []v1alpha2.LLMModelSpec{
		{URI: "hf://one", Name: new("one"), Confidential: secret("1")},
		{URI: "hf://two", Name: new("two"), Confidential: secret("2")},
	}}
	stored.Spec.KVCacheOffloading = &v1alpha2.KVCacheOffloadingSpec{CPU: resource.MustParse("1Gi")}
	stored.Spec.Prefill = &v1alpha2.WorkloadSpec{KVCacheOffloading: &v1alpha2.KVCacheOffloadingSpec{CPU: resource.MustParse("2Gi")}}
	stored.Spec.Router = &v1alpha2.RouterSpec{Scheduler: &v1alpha2.SchedulerSpec{Pool: &v1alpha2.InferencePoolSpec{
		Spec: &inferencev1.InferencePoolSpec{TargetPorts: []inferencev1.Port{{Number: 8000}, {Number: 8001}}, AppProtocol: "http"},
	}}}

	old := &v1alpha1.LLMInferenceService{}
	if err := old.ConvertFrom(stored); err != nil {
		t.Fatal(err)
	}
	old.Spec.Model.LoRA.Adapters = old.Spec.Model.LoRA.Adapters[1:]
	old.Spec.Prefill = nil
	old.Spec.Router.Scheduler.Pool.Spec.TargetPortNumber = 9000

	want := stored.DeepCopy()
	want.Spec.Model.LoRA.Adapters = want.Spec.Model.LoRA.Adapters[1:]
	want.Spec.Prefill = nil
	want.Spec.Router.Scheduler.Pool.Spec.TargetPorts[0].Number = 9000
	if diff := cmp.Diff(want, toHub(t, old), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("stored object (-want +have):\n%s", diff)
	}
}

func TestUnreadableAnnotationsAreDropped(t *testing.T) {
	junk := map[string]string{
		v1alpha1.KeptFromV1alpha2: "{", v1alpha1.KeptFromV1alpha1: "[]", v1beta1.AnnotationLoRACriticalities: "1", "mine": "x",
	}
	want := map[string]string{"mine": "x"}
	old := &v1alpha1.LLMInferenceService{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(junk)}}
	if diff := cmp.Diff(want, toHub(t, old).Annotations); diff != "" {
		t.Errorf("to the hub (-want +have):\n%s", diff)
	}
	stored := &v1alpha2.LLMInferenceService{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(junk)}}
	if err := old.ConvertFrom(stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, old.Annotations); diff != "" {
		t.Errorf("from the hub (-want +have):\n%s", diff)
	}
}

func TestAnotherHubIsRefused(t *testing.T) {
	service, config := &v1alpha1.LLMInferenceService{}, &v1alpha1.LLMInferenceServiceConfig{}
	for name, err := range map[string]error{
		"service to":   service.ConvertTo(&v1alpha2.LLMInferenceServiceConfig{}),
		"service from": service.ConvertFrom(&v1alpha2.LLMInferenceServiceConfig{}),
		"config to":    config.ConvertTo(&v1alpha2.LLMInferenceService{}),
		"config from":  config.ConvertFrom(&v1alpha2.LLMInferenceService{}),
	} {
		if err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

func toHub(t *testing.T, old *v1alpha1.LLMInferenceService) *v1alpha2.LLMInferenceService {
	t.Helper()
	out := &v1alpha2.LLMInferenceService{}
	if err := old.ConvertTo(out); err != nil {
		t.Fatal(err)
	}
	return out
}
