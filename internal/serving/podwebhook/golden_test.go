// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/testkit"
)

// confidential marks values in test secrets that must not leave them.
const confidential = "hush"

// given is the in.yaml of a case: a cluster and a pod.
type given struct {
	Config     map[string]string                  `json:"config"`
	Services   []v1beta1.InferenceService         `json:"services"`
	Containers []v1alpha1.ClusterStorageContainer `json:"containers"`
	Accounts   []corev1.ServiceAccount            `json:"accounts"`
	Secrets    []corev1.Secret                    `json:"secrets"`
	Pod        corev1.Pod                         `json:"pod"`
}

func (g *given) Get(_ context.Context, key client.ObjectKey, obj client.Object) error {
	switch out := obj.(type) {
	case *corev1.ServiceAccount:
		for i := range g.Accounts {
			if g.Accounts[i].Name == key.Name {
				g.Accounts[i].DeepCopyInto(out)
				return nil
			}
		}
	case *corev1.Secret:
		for i := range g.Secrets {
			if g.Secrets[i].Name == key.Name {
				g.Secrets[i].DeepCopyInto(out)
				return nil
			}
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// mutator works on a cluster; a broken key of the configuration stays behind, as
// it does with the real source.
func (g *given) mutator() *Mutator {
	cfg, _ := config.Parse(g.Config, nil)
	return &Mutator{
		Config:          config.Static(cfg),
		ConfigNamespace: "kserve",
		Reader:          g,
		Containers:      func(context.Context) ([]v1alpha1.ClusterStorageContainer, error) { return g.Containers, nil },
		Template: func(context.Context, string, metav1.OwnerReference) (*corev1.PodTemplateSpec, error) {
			return &corev1.PodTemplateSpec{ObjectMeta: g.Pod.ObjectMeta, Spec: g.Pod.Spec}, nil
		},
		Service: func(_ context.Context, _, name string) (*v1beta1.InferenceService, error) {
			for i := range g.Services {
				if g.Services[i].Name == name {
					return &g.Services[i], nil
				}
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
		},
	}
}

func TestGolden(t *testing.T) {
	testkit.Golden(t, "testdata/mutate", func(t *testing.T, in []byte) []byte {
		var g given
		if err := yaml.UnmarshalStrict(in, &g); err != nil {
			t.Fatal(err)
		}
		m, pod := g.mutator(), g.Pod.DeepCopy()
		pod.OwnerReferences = owned()
		if err := m.Mutate(t.Context(), pod, "models"); err != nil {
			refuseConfidential(t, err.Error())
			return []byte("error: " + err.Error() + "\n")
		}
		again := pod.DeepCopy()
		if err := m.Mutate(t.Context(), again, "models"); err != nil {
			t.Fatalf("a second time: %v", err)
		}
		if diff := cmp.Diff(pod, again); diff != "" {
			t.Errorf("asked again, the pod changes (-once +twice):\n%s", diff)
		}
		pod.OwnerReferences = g.Pod.OwnerReferences
		out, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		refuseConfidential(t, string(out))
		return out
	})
}

// owned is how a pod says that it was made by a ReplicaSet.
func owned() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "iris-1", UID: "4711", Controller: new(true)}}
}

func refuseConfidential(t *testing.T, out string) {
	t.Helper()
	if strings.Contains(out, confidential) {
		t.Errorf("a value of a secret was copied:\n%s", out)
	}
}

func goldenInputs(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*/in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw)
	}
	return out
}
