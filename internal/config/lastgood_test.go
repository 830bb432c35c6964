// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func version(uid, rv string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: rv}, Data: data}
}

func agent(raw string) map[string]string { return map[string]string{KeyAgent: raw} }

func TestBookKeepsTheLastGoodValue(t *testing.T) {
	book := NewLastGood()
	for _, step := range []struct {
		name  string
		cm    *corev1.ConfigMap
		image string
		bad   bool
		doubt bool
	}{
		{"none yet", nil, "kserve/agent:latest", false, false},
		{"bad from the start", version("a", "1", agent(`{`)), "kserve/agent:latest", true, true},
		{"bad in yet another way", version("a", "1b", agent(`{"image":2}`)), "kserve/agent:latest", true, true},
		{"good", version("a", "2", agent(`{"image":"one"}`)), "one", false, false},
		{"bad", version("a", "3", agent(`{"image":1}`)), "one", true, false},
		{"bad in another way", version("a", "4", agent(`{"cpuLimit":"x"}`)), "one", true, false},
		{"mended", version("a", "5", agent(`{"image":"two"}`)), "two", false, false},
		{"key gone", version("a", "6", nil), "kserve/agent:latest", false, false},
		{"key back", version("a", "7", agent(`{"image":"three"}`)), "three", false, false},
		{"deleted", nil, "kserve/agent:latest", false, false},
		{"made anew with the same version", version("b", "7", agent(`{"image":"four"}`)), "four", false, false},
		{"without a version", version("", "", agent(`{"image":"five"}`)), "five", false, false},
		{"without a version, changed", version("", "", agent(`{"image":"six"}`)), "six", false, false},
		{"deleted again", nil, "kserve/agent:latest", false, false},
		{"bad after the deletion", version("c", "9", agent(`[]`)), "kserve/agent:latest", true, true},
	} {
		got, problems := book.Read(step.cm)
		if got.Agent.Image != step.image || (len(problems) > 0) != step.bad || (got.FirstUnusable(KeyRouter, KeyAgent) != nil) != step.doubt {
			t.Errorf("%s: got image %q, problems %+v and doubts %+v", step.name, got.Agent.Image, problems, got.Unusable)
		}
	}
}

func TestBookReadsOncePerVersion(t *testing.T) {
	book := NewLastGood()
	first, _ := book.Read(version("a", "1", agent(`{"image":"one"}`)))
	// The version decides; that the data differ cannot happen and shows that they were not read.
	if again, _ := book.Read(version("a", "1", agent(`{"image":"two"}`))); again != first {
		t.Error("the same version was read twice")
	}
	if touched, _ := book.Read(version("a", "2", agent(`{"image":"one"}`))); touched != first {
		t.Error("a version with the same data gave another config")
	}
	if changed, _ := book.Read(version("a", "3", agent(`{"image":"two"}`))); changed == first || changed.Agent.Image != "two" {
		t.Error("a change was not read")
	}
	if first.Agent.Image != "one" {
		t.Error("a config that was handed out has changed")
	}
	nothing, _ := book.Read(nil)
	if again, _ := book.Read(nil); again != nothing {
		t.Error("the defaults were made twice")
	}
}

func TestBookIsSafeForManyReaders(t *testing.T) {
	book := NewLastGood()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				for rv, image := range map[string]string{"1": "one", "2": "two"} {
					if got, _ := book.Read(version("a", rv, agent(`{"image":"`+image+`"}`))); got.Agent.Image != image {
						t.Errorf("version %s gave %q", rv, got.Agent.Image)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestFilters(t *testing.T) {
	c := Default()
	c.InferenceService.ServiceAnnotationDisallowedList = []string{"mine/a"}
	c.InferenceService.ServiceLabelDisallowedList = []string{"mine/l"}
	got := c.FilterAnnotations(map[string]string{
		"autoscaling.knative.dev/min-scale":                        "1",
		"autoscaling.knative.dev/max-scale":                        "1",
		"internal.serving.kserve.io/storage-initializer-sourceuri": "s3://x",
		"kubectl.kubernetes.io/last-applied-configuration":         "{}",
		"modelFormat": "x", "mine/a": "x", "mine/l": "stays", "other": "stays",
	})
	if diff := cmp.Diff(map[string]string{"mine/l": "stays", "other": "stays"}, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	got = c.FilterLabels(map[string]string{"networking.knative.dev/visibility": "cluster-local", "mine/l": "x", "mine/a": "stays"})
	if diff := cmp.Diff(map[string]string{"mine/a": "stays"}, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := Default().FilterLabels(nil); got == nil || len(got) != 0 {
		t.Errorf("no labels gave %v", got)
	}
}

func TestRequirements(t *testing.T) {
	want := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resources("1", "1", "1", "1").CPURequest},
	}
	half := Resources{CPURequest: resources("1", "1", "1", "1").CPURequest}
	if diff := cmp.Diff(want, half.Requirements()); diff != "" {
		t.Errorf("requirements (-want +got):\n%s", diff)
	}
	if full := Default().Agent.Requirements(); len(full.Limits) != 2 || len(full.Requests) != 2 {
		t.Errorf("requirements of the agent: %v", full)
	}
}

func TestEffectiveOCIMode(t *testing.T) {
	for want, s := range map[string]StorageInitializer{
		"":          {},
		OCIModelcar: {EnableModelcar: true},
		OCINative:   {EnableModelcar: true, OCIModelMode: OCINative},
		OCIFetch:    {OCIModelMode: OCIFetch},
	} {
		if got := s.EffectiveOCIMode(); got != want {
			t.Errorf("%+v: got %q, want %q", s, got, want)
		}
	}
	if got := (StorageInitializer{EnableOCIModelSupport: true}).EffectiveOCIMode(); got != OCIModelcar {
		t.Errorf("enableOciModelSupport means %q", got)
	}
}

// Every section is read: a key whose section was forgotten in Parse would silently do nothing.
func TestEverySectionHasAKey(t *testing.T) {
	if got, want := len(Keys()), reflect.TypeFor[Config]().NumField()-1; got != want { // Unusable is no section
		t.Errorf("%d keys for %d sections", got, want)
	}
}

// documented are all keys and field names that a person can write.
func documented() []string {
	names := Keys()
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t == quantityType || t == intOrStringType {
			return
		}
		for _, field := range reflect.VisibleFields(t) {
			if name := jsonName(field); name != "" && !field.Anonymous {
				names = append(names, name)
			}
			if !field.Anonymous {
				walk(field.Type)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	return names
}
