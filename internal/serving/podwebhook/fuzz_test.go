// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// FuzzMutate makes pods of any words: nothing panics, and a pod that was
// completed stays as it is.
func FuzzMutate(f *testing.F) {
	for _, uri := range []string{
		"s3://b/m", "pvc://claim/a", "hf://a", "oci://r/a:1", "oci+native://r/a:1", "oci+fetch://r/a:1", "<scheme-placeholder>://a", "/a", "x://",
	} {
		f.Add(uri, "default", `{"type":"s3","bucket":"b"}`, "1000", `{"containers":["istio-proxy"]}`, `{"ociModelMode":"fetch"}`,
			"kserve-container,transformer-container,queue-proxy,istio-proxy", uint16(0xffff))
	}
	f.Add("gs://b", "", "", "", "", `{"enableModelcar":true,"uidModelcar":0}`, "worker-container", uint16(0))
	f.Fuzz(func(t *testing.T, uri, key, params, uid, status, initializer, names string, asked uint16) {
		g := given{
			Config:   map[string]string{"storageInitializer": initializer},
			Accounts: []corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Secrets: []corev1.ObjectReference{{Name: "s"}}}},
			Secrets: []corev1.Secret{
				{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{key: []byte(params)}},
				{ObjectMeta: metav1.ObjectMeta{Name: "storage-config"}, Data: map[string][]byte{key: []byte(params)}},
			},
			Containers: []v1alpha1.ClusterStorageContainer{{Spec: v1alpha1.StorageContainerSpec{
				SupportedUriFormats: []v1alpha1.SupportedUriFormat{{Prefix: key}, {Regex: status}},
			}}},
		}
		checkPod(t, &g, fuzzedPod(names, asked, map[string]string{
			v1beta1.AnnotationStorageSourceURI:        uri,
			v1beta1.AnnotationStorageSpec:             "true",
			v1beta1.AnnotationStorageSpecKey:          key,
			v1beta1.AnnotationStorageSpecParam:        params,
			v1beta1.AnnotationStorageInitializerUID:   uid,
			istioStatus:                               status,
			istioInterception:                         istioRedirect,
			v1beta1.AnnotationLogger:                  "true",
			v1beta1.AnnotationLoggerAnnotations:       key,
			v1beta1.AnnotationBatcher:                 "true",
			v1beta1.AnnotationAgent:                   "true",
			v1beta1.AnnotationModelDir:                "/mnt/models",
			v1beta1.AnnotationConfigVolumeName:        key,
			v1beta1.AnnotationEnableMetricAggregation: "true",
			v1beta1.AnnotationConfidentialEnabled:     "true",
			v1beta1.AnnotationLocalModelPVCName:       key,
		}))
	})
}

// fuzzedPod has the containers of a list of names and the annotations whose bits
// are set, in the order of their names.
func fuzzedPod(names string, asked uint16, annotations map[string]string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{v1beta1.LabelInferenceService: "iris", v1beta1.LabelComponent: names}, Annotations: map[string]string{},
	}}
	for i, key := range slices.Sorted(maps.Keys(annotations)) {
		if asked&(1<<i) != 0 {
			pod.Annotations[key] = annotations[key]
		}
	}
	for name := range strings.SplitSeq(names, ",") {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
	}
	if names == "" {
		pod.Spec.Containers = nil
	}
	return pod
}

func checkPod(t *testing.T, g *given, pod *corev1.Pod) {
	pod.OwnerReferences = owned()
	from := *g
	m := from.of(pod).mutator()
	if m.Mutate(t.Context(), pod, "models") != nil {
		return
	}
	again := pod.DeepCopy()
	if err := m.Mutate(t.Context(), again, "models"); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	if diff := cmp.Diff(pod, again); diff != "" {
		t.Errorf("asked again, the pod changes:\n%s", diff)
	}
}

// TestAnyPodOfTheExamples takes the pods of the golden cases apart: each without
// one of its containers.
func TestAnyPodOfTheExamples(t *testing.T) {
	for _, in := range goldenInputs(t) {
		var g given
		if err := yaml.Unmarshal(in, &g); err != nil {
			t.Fatal(err)
		}
		for i := range g.Pod.Spec.Containers {
			pod := g.Pod.DeepCopy()
			pod.Spec.Containers = slices.Delete(pod.Spec.Containers, i, i+1)
			checkPod(t, &g, pod)
		}
	}
}
