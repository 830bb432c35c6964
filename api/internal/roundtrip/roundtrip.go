// SPDX-License-Identifier: Apache-2.0

// Package roundtrip proves that wire types lose nothing on the way to JSON and back.
//
// It is for the tests of the api packages only; nothing that is shipped imports it.
package roundtrip

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"
)

// seeds is how many objects of each kind are tried, half of them with every field filled.
const seeds = 40

// Filler returns a source of random objects; the same seed gives the same objects.
func Filler(seed int64, nilChance float64) *randfill.Filler {
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	return fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), codecs).
		NilChance(nilChance).NumElements(1, 3).
		Funcs(fillQuantity, fillResourceList)
}

// fillQuantity picks from the amounts that JSON writes as they were given; others come back in another notation.
func fillQuantity(q *resource.Quantity, c randfill.Continue) {
	*q = resource.MustParse(fmt.Sprintf("%d%s", 1+c.Intn(999), []string{"", "m", "Ki", "Mi", "Gi"}[c.Intn(5)]))
}

// fillResourceList keeps the keys short, so that a failing diff can be read.
func fillResourceList(l *corev1.ResourceList, c randfill.Continue) {
	*l = corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		var q resource.Quantity
		c.Fill(&q)
		(*l)[name] = q
	}
}

// Kinds checks every kind that addToScheme registers under gv: JSON and a strict decoding give back the same object,
// a deep copy is equal, and each kind has a list.
func Kinds(t *testing.T, gv schema.GroupVersion, addToScheme func(*runtime.Scheme) error) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		t.Fatalf("register %s: %v", gv, err)
	}
	kinds := objectKinds(scheme, gv)
	if len(kinds) == 0 {
		t.Fatalf("%s registers no kind", gv)
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			if !scheme.Recognizes(gv.WithKind(kind + "List")) {
				t.Errorf("%s has no list kind", kind)
			}
			for seed := range int64(seeds) {
				check(t, scheme, gv.WithKind(kind), seed)
			}
		})
	}
}

// objectKinds leaves out lists and what metav1 adds to every group, such as WatchEvent.
func objectKinds(scheme *runtime.Scheme, gv schema.GroupVersion) []string {
	var kinds []string
	for kind := range scheme.KnownTypes(gv) {
		obj, err := scheme.New(gv.WithKind(kind))
		if _, isObject := obj.(metav1.Object); err == nil && isObject && !strings.HasSuffix(kind, "List") {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

func check(t *testing.T, scheme *runtime.Scheme, gvk schema.GroupVersionKind, seed int64) {
	t.Helper()
	in, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	Filler(seed, float64(seed%2)/2).Fill(in)
	in.GetObjectKind().SetGroupVersionKind(gvk)

	data, err := json.Marshal(in)
	if err != nil {
		t.Fatalf("seed %d: encode: %v", seed, err)
	}
	out, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	if strict, err := kjson.UnmarshalStrict(data, out); err != nil || len(strict) > 0 {
		t.Fatalf("seed %d: decode: %v %v", seed, err, strict)
	}
	if diff := cmp.Diff(in, out, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("seed %d: JSON changed the object (-before +after):\n%s", seed, diff)
	}
	if diff := cmp.Diff(in, in.DeepCopyObject()); diff != "" {
		t.Fatalf("seed %d: the deep copy differs (-object +copy):\n%s", seed, diff)
	}
}
