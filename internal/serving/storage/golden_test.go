// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// given is the in.yaml of a case. Labels and annotations are the pod's; with
// them alone the source is read as the webhook reads it.
type given struct {
	Source      Source                             `json:"source"`
	Labels      map[string]string                  `json:"labels"`
	Annotations map[string]string                  `json:"annotations"`
	Namespace   string                             `json:"namespace"`
	Config      map[string]string                  `json:"config"`
	Containers  []v1alpha1.ClusterStorageContainer `json:"containers"`
	Account     *corev1.ServiceAccount             `json:"account"`
	Secrets     []corev1.Secret                    `json:"secrets"`
	Pod         corev1.PodSpec                     `json:"pod"`
}

func (g *given) Get(_ context.Context, key client.ObjectKey, obj client.Object) error {
	switch out := obj.(type) {
	case *corev1.ServiceAccount:
		if g.Account != nil && g.Account.Name == key.Name {
			g.Account.DeepCopyInto(out)
			return nil
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

// inject does what the controller or the webhook does.
func (g *given) inject(ctx context.Context, pod *corev1.PodSpec) error {
	cfg, problems := config.Parse(g.Config, nil)
	if len(problems) > 0 {
		return &badConfig{problems[0]}
	}
	source := g.Source
	if len(source.models()) == 0 {
		var err error
		if source, err = FromPod(g.Labels, g.Annotations); err != nil {
			return err
		}
	}
	if err := Check(source, g.Containers); err != nil {
		return err
	}
	secrets, err := Gather(ctx, g, g.Namespace, pod.ServiceAccountName, g.Annotations, source, cfg)
	if err != nil {
		return err
	}
	return Inject(pod, Injection{
		Source: source, Namespace: g.Namespace, ConfigNamespace: "kserve", Annotations: g.Annotations,
		Containers: g.Containers, Secrets: secrets, Config: cfg,
	})
}

type badConfig struct{ config.Problem }

func (b *badConfig) Error() string { return "config: " + b.Message }

func TestGolden(t *testing.T) {
	testkit.Golden(t, "testdata/inject", func(t *testing.T, in []byte) []byte {
		g := given{Namespace: "models"}
		if err := yaml.UnmarshalStrict(in, &g); err != nil {
			t.Fatal(err)
		}
		if len(g.Pod.Containers) == 0 {
			g.Pod.Containers = []corev1.Container{{Name: MainContainer, Image: "server"}}
		}
		pod := g.Pod.DeepCopy()
		if err := g.inject(t.Context(), pod); err != nil {
			refuseConfidential(t, err.Error())
			return []byte("error: " + err.Error() + "\n")
		}
		again := pod.DeepCopy()
		if err := g.inject(t.Context(), again); err != nil {
			t.Fatalf("a second time: %v", err)
		}
		if diff := cmp.Diff(pod, again); diff != "" {
			t.Errorf("injecting again changes the pod (-once +twice):\n%s", diff)
		}
		out, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		refuseConfidential(t, string(out))
		return out
	})
}

func refuseConfidential(t *testing.T, out string) {
	t.Helper()
	if strings.Contains(out, confidential) {
		t.Errorf("a value of a secret was copied:\n%s", out)
	}
}

func TestAnnotationsAreReadBack(t *testing.T) {
	key, path, id := "prod", "models/a", "kbs:///repo/type/tag"
	for name, s := range map[string]Source{
		"uri":          {URI: "s3://bucket/a", ContainerName: "mine"},
		"confidential": {URI: "s3://bucket/a", Confidential: &v1beta1.ConfidentialSpec{Enabled: true, ResourceID: &id}},
		"path":         {Spec: &v1beta1.StorageSpec{Path: &path, StorageKey: &key, Parameters: map[string]string{"type": "s3"}}},
		"key":          {URI: "s3://bucket/a", Spec: &v1beta1.StorageSpec{StorageKey: &key}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromPod(nil, Annotations(s))
			if err != nil {
				t.Fatal(err)
			}
			want := s
			if s.Spec != nil {
				want.URI, want.Spec = s.uri(), s.Spec.DeepCopy()
				want.Spec.Path = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := Annotations(Source{URIs: []v1beta1.StorageUri{{Uri: "s3://a/b"}}, ContainerName: "mine"}); len(got) > 0 {
		t.Errorf("a list needs no annotations, got %v", got)
	}
}
