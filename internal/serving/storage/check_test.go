// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

func csc(name string, edit func(*v1alpha1.ClusterStorageContainer), formats ...v1alpha1.SupportedUriFormat) v1alpha1.ClusterStorageContainer {
	c := v1alpha1.ClusterStorageContainer{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.StorageContainerSpec{SupportedUriFormats: formats, WorkloadType: v1alpha1.InitContainer},
	}
	if edit != nil {
		edit(&c)
	}
	return c
}

var someContainers = []v1alpha1.ClusterStorageContainer{
	csc("off", func(c *v1alpha1.ClusterStorageContainer) { c.Disabled = new(true) }, v1alpha1.SupportedUriFormat{Prefix: "custom://"}),
	csc("job", func(c *v1alpha1.ClusterStorageContainer) { c.Spec.WorkloadType = v1alpha1.LocalModelDownloadJob },
		v1alpha1.SupportedUriFormat{Prefix: "custom://"}),
	csc("untyped", func(c *v1alpha1.ClusterStorageContainer) { c.Spec.WorkloadType = "" },
		v1alpha1.SupportedUriFormat{Prefix: "custom://", Regex: "never://"}),
	csc("second", nil, v1alpha1.SupportedUriFormat{Regex: `^(custom|other)://.+`}),
	csc("broken", nil, v1alpha1.SupportedUriFormat{Regex: `(`}),
}

func TestCheck(t *testing.T) {
	path, file := "a/b", func(at, uri string) v1beta1.StorageUri { return v1beta1.StorageUri{Uri: uri, MountPath: at} }
	for _, tc := range []struct {
		name string
		Source
		want string // empty: accepted; else field and a part of the message
	}{
		{name: "nothing"},
		{name: "path", Source: Source{URI: "/mnt/models/a"}},
		{name: "gs", Source: Source{URI: "gs://a/b"}},
		{name: "s3", Source: Source{URI: "s3://a/b"}},
		{name: "pvc", Source: Source{URI: "pvc://claim.one/a/b"}},
		{name: "pvc root", Source: Source{URI: "pvc://claim"}},
		{name: "file", Source: Source{URI: "file:///a"}},
		{name: "https", Source: Source{URI: "https://a/b"}},
		{name: "azure", Source: Source{URI: "https://acc.blob.core.windows.net/c/m"}},
		{name: "hdfs", Source: Source{URI: "hdfs://a"}},
		{name: "webhdfs", Source: Source{URI: "webhdfs://a"}},
		{name: "hf", Source: Source{URI: "hf://org/model:rev"}},
		{name: "oci", Source: Source{URI: "oci://registry/model:1"}},
		{name: "oci modelcar", Source: Source{URI: "oci+modelcar://registry/model:1"}},
		{name: "oci native", Source: Source{URI: "oci+native://registry/model:1"}},
		{name: "oci fetch", Source: Source{URI: "oci+fetch://registry/model:1"}},
		{name: "storage spec", Source: Source{Spec: &v1beta1.StorageSpec{Path: &path}}},
		{name: "by container", Source: Source{URI: "custom://x"}},
		{name: "by regex", Source: Source{URI: "other://x"}},
		{name: "by name", Source: Source{URI: "other://x", ContainerName: "second"}},
		{name: "unknown scheme", Source: Source{URI: "ftp://x"}, want: "storageUri: expression"},
		{name: "known to other images only", Source: Source{URI: "modelscope://org/model"}, want: "storageUri: expression"},
		{name: "unknown oci mode", Source: Source{URI: "oci+magic://x"}, want: "storageUri: expression"},
		{name: "a password", Source: Source{URI: "ftp://user:hu/sh@host/x?sig=hush"}, want: "storageUri: expression"},
		{name: "a password for a container", Source: Source{URI: "s3://key:hush%zz@a", ContainerName: "second"}, want: "storageContainerName: ClusterStorageContainer second does not support s3://a;"},
		{name: "claim", Source: Source{URI: "pvc://Claim_1/a"}, want: "storageUri: must be pvc://CLAIM/PATH"},
		{name: "no claim", Source: Source{URI: "pvc://"}, want: "storageUri: must be pvc://CLAIM/PATH"},
		{name: "claim upwards", Source: Source{URI: "pvc://claim/../a"}, want: "storageUri: the path in the claim"},
		{name: "both", Source: Source{URI: "s3://a/b", Spec: &v1beta1.StorageSpec{Path: &path}}, want: "storage.path: storageUri is set as well"},
		{name: "single and list", Source: Source{URI: "s3://a", URIs: []v1beta1.StorageUri{file("/a", "s3://b")}}, want: "storageUris: storageUri or storage"},
		{name: "no such container", Source: Source{URI: "s3://a", ContainerName: "none"}, want: "storageContainerName: there is no ClusterStorageContainer none"},
		{name: "disabled container", Source: Source{URI: "custom://a", ContainerName: "off"}, want: "storageContainerName: ClusterStorageContainer off is disabled"},
		{name: "container for jobs", Source: Source{URI: "custom://a", ContainerName: "job"}, want: "storageContainerName: ClusterStorageContainer job has workloadType"},
		{name: "unfit container", Source: Source{URI: "s3://a", ContainerName: "second"}, want: "storageContainerName: ClusterStorageContainer second does not support s3://a"},
		{name: "list", Source: Source{URIs: []v1beta1.StorageUri{file("/mnt/a", "s3://a"), file("/mnt/b", "pvc://b/c"), file("", "hf://c")}}},
		{name: "downloads in one place", Source: Source{URIs: []v1beta1.StorageUri{file("", "s3://a"), file("/mnt/models/", "hf://c")}}},
		{name: "empty entry", Source: Source{URIs: []v1beta1.StorageUri{file("/mnt/a", "")}}, want: "storageUris[0].uri: say where"},
		{name: "bad entry", Source: Source{URIs: []v1beta1.StorageUri{file("/a", "s3://a"), file("/b", "pvc://B")}}, want: "storageUris[1].uri: must be pvc"},
		{name: "root", Source: Source{URIs: []v1beta1.StorageUri{file("//", "s3://a")}}, want: "storageUris[0].mountPath: must be below the root"},
		{name: "relative", Source: Source{URIs: []v1beta1.StorageUri{file("a", "s3://a")}}, want: "storageUris[0].mountPath: must start with a slash"},
		{name: "upwards", Source: Source{URIs: []v1beta1.StorageUri{file("/a/../b", "s3://a")}}, want: "storageUris[0].mountPath: must not contain .."},
		{name: "claims in one place", Source: Source{URIs: []v1beta1.StorageUri{file("/a", "pvc://a"), file("/a/", "pvc://b")}},
			want: "storageUris[1].mountPath: another model is mounted there"},
		{name: "claim where a download is", Source: Source{URIs: []v1beta1.StorageUri{file("/a", "s3://a"), file("/a", "pvc://b")}},
			want: "storageUris[1].mountPath: another model is mounted there"},
		{name: "no common directory", Source: Source{URIs: []v1beta1.StorageUri{file("/a/x", "s3://a"), file("/b/x", "s3://b")}},
			want: "storageUris: models that are downloaded need a common directory"},
		{name: "no common directory needed", Source: Source{URIs: []v1beta1.StorageUri{file("/a/x", "s3://a"), file("/b/x", "pvc://b")}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Check(tc.Source, someContainers)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var at *field.Error
			if !errors.As(err, &at) {
				t.Fatalf("got %v, want a field error", err)
			}
			where, what, _ := strings.Cut(tc.want, ": ")
			if what == "expression" { // the broken one may have been meant
				what = "ClusterStorageContainer broken: spec.supportedUriFormats[0].regex"
			}
			if strings.Contains(err.Error(), "sh@") || strings.Contains(err.Error(), "hush") {
				t.Errorf("%v shows a password", err)
			}
			if at.Field != where || !strings.Contains(at.Detail, what) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	err := Check(Source{URI: "ftp://x"}, nil)
	if err == nil || !strings.Contains(err.Error(), "nothing can download from scheme ftp; use one of gs, s3") {
		t.Errorf("without containers: %v", err)
	}
}

func TestPickTakesTheFirst(t *testing.T) {
	backwards := slices.Clone(someContainers)
	slices.Reverse(backwards)
	for _, containers := range [][]v1alpha1.ClusterStorageContainer{someContainers, backwards} { // a cache has no order
		got, err := Pick("custom://x", "", containers)
		if err != nil || got == nil || got.Name != "second" {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if got, err := Pick("s3://x", "", someContainers[:4]); got != nil || err != nil {
		t.Errorf("nothing fits, got %v, %v", got, err)
	}
}
