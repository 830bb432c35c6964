// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/modelplane/modelplane/api/serving/v1alpha2"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// TestTemplatesHaveTheNamesOfKubernetes guards what the compiler does not: field
// types are compared by the conversion in Core, tags are not.
func TestTemplatesHaveTheNamesOfKubernetes(t *testing.T) {
	tests := []struct {
		name       string
		ours       any
		kubernetes any
		hidden     []string
	}{
		{"component", v1beta1.PodSpec{}, corev1.PodSpec{}, []string{"EphemeralContainers", "SchedulingGroup", "EvictionResponders"}},
		{"workload", v1alpha2.PodSpec{}, corev1.PodSpec{}, []string{"SchedulingGroup", "EvictionResponders"}},
		{"container", v1beta1.Container{}, corev1.Container{}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ours, theirs := reflect.TypeOf(test.ours), reflect.TypeOf(test.kubernetes)
			for i := range ours.NumField() {
				have, want := ours.Field(i).Tag, theirs.Field(i).Tag
				if slices.Contains(test.hidden, ours.Field(i).Name) {
					if have.Get("json") != "-" {
						t.Errorf("%s: want it off the wire, have %q", ours.Field(i).Name, have.Get("json"))
					}
					continue
				}
				if jsonName(have) != jsonName(want) {
					t.Errorf("%s: want JSON name %q, have %q", ours.Field(i).Name, jsonName(want), jsonName(have))
				}
				for _, key := range []string{"patchStrategy", "patchMergeKey"} {
					if have.Get(key) != want.Get(key) {
						t.Errorf("%s: want %s %q, have %q", ours.Field(i).Name, key, want.Get(key), have.Get(key))
					}
				}
			}
		})
	}
}

func jsonName(tag reflect.StructTag) string {
	name, _, _ := strings.Cut(tag.Get("json"), ",")
	return name
}

func TestCoreSharesMemory(t *testing.T) {
	pod := v1beta1.PodSpecFrom(corev1.PodSpec{NodeName: "a"})
	pod.Core().NodeName += "b"
	container := v1beta1.ContainerFrom(corev1.Container{Image: "a"})
	container.Core().Image += "b"
	workload := v1alpha2.PodSpecFrom(corev1.PodSpec{NodeName: "a"})
	workload.Core().NodeName += "b"
	for what, have := range map[string]string{
		"PodSpec": pod.NodeName, "Container": container.Image, "workload PodSpec": workload.NodeName,
	} {
		if have != "ab" {
			t.Errorf("%s: want the change through Core to show, have %q", what, have)
		}
	}
}

func TestMetricQuantityKeepsItsSpelling(t *testing.T) {
	tests := []struct{ in, want, wantErr string }{
		{in: `0.5`, want: `"0.5"`},
		{in: `"0.50"`, want: `"0.50"`},
		{in: `10`, want: `"10"`},
		{in: `"500m"`, want: `"500m"`},
		{in: `"half"`, wantErr: "is not a quantity"},
		{in: `true`, wantErr: "is not a quantity"},
	}
	for _, test := range tests {
		var target v1beta1.MetricTarget
		err := json.Unmarshal([]byte(`{"value":`+test.in+`}`), &target)
		if test.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("%s: want an error with %q, have %v", test.in, test.wantErr, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if out, err := json.Marshal(target.Value); err != nil || string(out) != test.want {
			t.Errorf("%s: want %s, have %s (%v)", test.in, test.want, out, err)
		}
		if _, err := target.Value.Quantity(); err != nil {
			t.Errorf("%s: %v", test.in, err)
		}
	}
}

func TestUnknownFieldIsRefusedWithItsPath(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"framework block", `{"spec":{"predictor":{"sklearn":{"imagee":"x"}}}}`, `unknown field "spec.predictor.sklearn.imagee"`},
		{"container", `{"spec":{"predictor":{"containers":[{"name":"a","imag":"x"}]}}}`, `unknown field "spec.predictor.containers[0].imag"`},
		{"hidden field", `{"spec":{"predictor":{"ephemeralContainers":[]}}}`, `unknown field "spec.predictor.ephemeralContainers"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			strict, err := kjson.UnmarshalStrict([]byte(test.in), &v1beta1.InferenceService{})
			if err != nil || len(strict) != 1 || strict[0].Error() != test.want {
				t.Errorf("want %q, have %v %v", test.want, strict, err)
			}
		})
	}
}
