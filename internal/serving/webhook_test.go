// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"strings"
	"testing"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
)

func TestStorageContainerRules(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec v1alpha1.StorageContainerSpec
		want string // empty: accepted
	}{
		{"prefix", v1alpha1.StorageContainerSpec{SupportedUriFormats: []v1alpha1.SupportedUriFormat{{Prefix: "s3://"}}}, ""},
		{"regex and download job", v1alpha1.StorageContainerSpec{WorkloadType: v1alpha1.LocalModelDownloadJob,
			SupportedUriFormats: []v1alpha1.SupportedUriFormat{{Regex: "https://(.+?)/(.+)"}}}, ""},
		{"broken regex", v1alpha1.StorageContainerSpec{SupportedUriFormats: []v1alpha1.SupportedUriFormat{{Prefix: "a"}, {Regex: "("}}},
			"spec.supportedUriFormats[1].regex"},
		{"empty entry", v1alpha1.StorageContainerSpec{SupportedUriFormats: []v1alpha1.SupportedUriFormat{{}}},
			"spec.supportedUriFormats[0]: Required value: set prefix or regex"},
		{"unknown workload", v1alpha1.StorageContainerSpec{WorkloadType: "sidecar"},
			`spec.workloadType: Unsupported value: "sidecar"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := validateStorageContainer(t.Context(), nil, &v1alpha1.ClusterStorageContainer{Spec: tc.spec})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestEveryKindOfTheDomainIsAdmitted(t *testing.T) {
	kinds, err := Admission()
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, k := range kinds {
		if k.Validate != nil {
			rules++
		}
	}
	if len(kinds) < 12 || rules != 1 {
		t.Errorf("%d kinds, %d with rules", len(kinds), rules)
	}
}
