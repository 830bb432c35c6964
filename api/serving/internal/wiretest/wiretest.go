// SPDX-License-Identifier: Apache-2.0

// Package wiretest proves that the serving kinds lose nothing on their way over
// the wire. It is for the tests of the serving packages only; nothing that is
// shipped imports it.
package wiretest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"github.com/modelplane/modelplane/api/internal/roundtrip"
	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1alpha2"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// seeds is how many objects of each kind are tried.
const seeds = 10

// Filler returns a source of random objects; the same seed gives the same objects.
// Even seeds fill every field, with one element per list: a whole pod template is
// large and the serving kinds hold up to a dozen.
func Filler(seed int64) *randfill.Filler {
	return roundtrip.Filler(seed, float64(seed%2)/2).NumElements(1, 1+int(seed%2)).Funcs(
		fillBetaPod, fillAlphaPod, fillRaw, fillMetric, fillLoRA, fillOldLoRA, fillCriticality, fillKind,
	)
}

// fillBetaPod leaves out the fields that are not on the wire.
func fillBetaPod(p *v1beta1.PodSpec, c randfill.Continue) {
	c.FillNoCustom(p)
	p.EphemeralContainers, p.SchedulingGroup, p.EvictionResponders = nil, nil, nil
}

func fillAlphaPod(p *v1alpha2.PodSpec, c randfill.Continue) {
	c.FillNoCustom(p)
	p.SchedulingGroup, p.EvictionResponders = nil, nil
}

func fillRaw(r *runtime.RawExtension, c randfill.Continue) {
	*r = runtime.RawExtension{Raw: fmt.Appendf(nil, `{"plugins":[%d]}`, c.Intn(1000))}
}

func fillMetric(q *v1beta1.MetricQuantity, c randfill.Continue) {
	*q = v1beta1.MetricQuantity(fmt.Sprintf("%d.%d", c.Intn(10), c.Intn(10)))
}

// fillLoRA has few adapters with adapters of their own, so that the recursion ends.
func fillLoRA(l *v1alpha2.LoRASpec, c randfill.Continue) {
	*l = v1alpha2.LoRASpec{Adapters: make([]v1alpha2.LLMModelSpec, 1+c.Intn(2))}
	c.Fill(&l.MaxRank)
	c.Fill(&l.MaxAdapters)
	c.Fill(&l.MaxCPUAdapters)
	for i := range l.Adapters {
		a := &l.Adapters[i]
		c.Fill(&a.URI)
		c.Fill(&a.Name)
		c.Fill(&a.Confidential)
		if c.Intn(3) == 0 {
			c.Fill(&a.LoRA)
		}
	}
}

func fillOldLoRA(l *v1alpha1.LoRASpec, c randfill.Continue) {
	*l = v1alpha1.LoRASpec{Adapters: make([]v1alpha1.LLMModelSpec, 1+c.Intn(2))}
	c.Fill(&l.MaxRank)
	c.Fill(&l.MaxAdapters)
	c.Fill(&l.MaxCPUAdapters)
	for i := range l.Adapters {
		a := &l.Adapters[i]
		c.Fill(&a.URI)
		c.Fill(&a.Name)
		c.Fill(&a.Criticality)
		if c.Intn(3) == 0 {
			c.Fill(&a.LoRA)
		}
	}
}

func fillCriticality(v *v1alpha1.Criticality, c randfill.Continue) {
	*v = []v1alpha1.Criticality{v1alpha1.Critical, v1alpha1.Standard, v1alpha1.Sheddable}[c.Intn(3)]
}

// fillKind never leaves a kind empty, which the schema refuses.
func fillKind(k *gatewayv1.Kind, c randfill.Continue) {
	*k = gatewayv1.Kind(fmt.Sprintf("Kind%d", c.Intn(100)))
}

// Kinds checks every kind of the group version: JSON with a strict decoding and
// the unstructured form give back the same object, and a deep copy is equal.
func Kinds(t *testing.T, gv schema.GroupVersion, addToScheme func(*runtime.Scheme) error, want ...string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for kind := range scheme.KnownTypes(gv) {
		if obj, err := scheme.New(gv.WithKind(kind)); err == nil {
			_, known[kind] = obj.(metav1.Object)
		}
	}
	for _, kind := range want {
		t.Run(kind, func(t *testing.T) {
			if !known[kind] || !scheme.Recognizes(gv.WithKind(kind+"List")) {
				t.Fatalf("%s or its list is not registered", kind)
			}
			for seed := range int64(seeds) {
				overJSON(t, scheme, gv.WithKind(kind), seed)
			}
		})
		delete(known, kind)
	}
	for kind, object := range known {
		if object {
			t.Errorf("%s is registered but not checked", kind)
		}
	}
}

func overJSON(t *testing.T, scheme *runtime.Scheme, gvk schema.GroupVersionKind, seed int64) {
	t.Helper()
	in, out, back := fresh(t, scheme, gvk), fresh(t, scheme, gvk), fresh(t, scheme, gvk)
	Filler(seed).Fill(in)
	in.GetObjectKind().SetGroupVersionKind(gvk)
	Same(t, seed, "a deep copy", in, in.DeepCopyObject())
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatalf("seed %d: encode: %v", seed, err)
	}
	if strict, err := kjson.UnmarshalStrict(data, out); err != nil || len(strict) > 0 {
		t.Fatalf("seed %d: decode: %v %v", seed, err, strict)
	}
	Same(t, seed, "what JSON gives back", in, out)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in)
	if err != nil {
		t.Fatalf("seed %d: to unstructured: %v", seed, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, back, true); err != nil {
		t.Fatalf("seed %d: from unstructured: %v", seed, err)
	}
	Same(t, seed, "what the unstructured form gives back", in, back)
}

// Same fails when two objects differ, other than by nil for empty. The slow
// comparison runs only when there is something to show.
func Same(t *testing.T, seed int64, what string, want, have any) {
	t.Helper()
	if equality.Semantic.DeepEqual(want, have) {
		return
	}
	t.Fatalf("seed %d: %s differs (-want +have):\n%s", seed, what, cmp.Diff(want, have, cmpopts.EquateEmpty()))
}

func fresh(t *testing.T, scheme *runtime.Scheme, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	obj, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}
