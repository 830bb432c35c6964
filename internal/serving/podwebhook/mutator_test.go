// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

func podOf(uri string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1beta1.LabelInferenceService: "iris"},
			Annotations: map[string]string{v1beta1.AnnotationStorageSourceURI: uri},

			OwnerReferences: owned(),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kserve-container", Image: "server"}}},
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	pod := podOf("s3://bucket/iris")
	pod.Labels = nil
	want := pod.DeepCopy()
	if err := new(given).mutator().Mutate(t.Context(), pod, "models"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Errorf("a pod of nobody was changed (-want +got):\n%s", diff)
	}
}

// TestBrokenConfigurationKeepsPodsComing gives every key nonsense: what holds
// meanwhile is used, and no pod is refused for it.
func TestBrokenConfigurationKeepsPodsComing(t *testing.T) {
	g := given{Config: map[string]string{}}
	for _, key := range []string{"storageInitializer", "credentials", "logger", "batcher", "agent", "metricsAggregator"} {
		g.Config[key] = "{"
	}
	pod := podOf("s3://bucket/iris")
	pod.Annotations[v1beta1.AnnotationLogger] = "true"
	if err := g.of(pod).mutator().Mutate(t.Context(), pod, "models"); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.InitContainers) != 1 || len(pod.Spec.Containers) != 2 || pod.Spec.Containers[1].Image == "" {
		t.Errorf("the pod is not complete: %+v", pod.Spec)
	}
}

// of makes the pod one that its owner has made.
func (g *given) of(pod *corev1.Pod) *given {
	g.Pod = *pod.DeepCopy()
	return g
}

type failing struct{ err error }

func (f failing) Get(context.Context, client.ObjectKey, client.Object) error { return f.err }

// TestFailedReads tells apart what a person must change from what the API server
// could not answer, which is worth another try.
func TestFailedReads(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "default", errors.New("no rule allows it"))
	m := new(given).of(podOf("s3://bucket/iris")).mutator()
	m.Reader = failing{forbidden}
	err := m.Mutate(t.Context(), podOf("s3://bucket/iris"), "models")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "read ServiceAccount default in namespace models") {
		t.Errorf("reading credentials: %v", err)
	}
	m = new(given).of(podOf("s3://bucket/iris")).mutator()
	m.Containers = func(context.Context) ([]v1alpha1.ClusterStorageContainer, error) {
		return nil, context.DeadlineExceeded
	}
	err = m.Mutate(t.Context(), podOf("s3://bucket/iris"), "models")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "list ClusterStorageContainers") {
		t.Errorf("listing containers: %v", err)
	}
	m = new(given).mutator()
	m.Reader, m.Service = failing{forbidden}, nil
	if err := m.Mutate(t.Context(), podOf("pvc://claim"), "models"); err != nil {
		t.Errorf("a claim needs no credentials and no service: %v", err)
	}
}
