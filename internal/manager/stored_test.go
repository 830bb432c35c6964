// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestFormerVersionsAreStruckOff: objects that are stored in a former version are written once, as the chart's own account, and the
// definition says so; then nothing is written any more.
func TestFormerVersionsAreStruckOff(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	crd := registryDefinition(t)
	store := func(version string) {
		t.Helper()
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == version
		}
		cluster.InstallCRDs(t, crd)
	}
	store("v1beta1")
	probe := registry(t, cluster, namespace, "probe")
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		store(version)
		// The API server hears of it a moment later; what it stores otherwise then has another version.
		testkit.Eventually(t, patience, "the API server to store "+version, func() error {
			before := probe.GetResourceVersion()
			if err := cluster.Client().Patch(t.Context(), probe, client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil {
				return err
			}
			if probe.GetResourceVersion() == before {
				return errors.New("not yet")
			}
			return nil
		})
		if version == "v1alpha1" {
			registry(t, cluster, namespace, "models")
		}
	}
	s, counter := &stored{log: logr.Discard()}, testkit.NewCounter()
	scheme, err := newScheme([]Domain{{AddToScheme: admission.AddToScheme}})
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = client.New(counter.Wrap(charttest.RBAC(t, cluster, namespace)), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	s.live = s.client
	if err := errors.Join(s.add(scheme, &v1beta1.ModelRegistry{}), s.add(scheme, crd)); err != nil || len(s.kinds) != 1 {
		t.Fatalf("the kinds with several versions are %v: %v", s.kinds, err)
	}
	models := registry(t, cluster, namespace, "models")
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if was := models.GetResourceVersion(); registry(t, cluster, namespace, "models").GetResourceVersion() == was {
		t.Error("the object is stored as it was")
	}
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), live); err != nil || !slices.Equal(live.Status.StoredVersions, []string{"v1beta1"}) {
		t.Errorf("the definition says %v: %v", live.Status.StoredVersions, err)
	}
	before := counter.Snapshot()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if since := counter.Since(before); since.Writes() > 0 {
		t.Errorf("it is written once more:\n%s", since)
	}
}

// registryDefinition is that of ModelRegistry, whose versions differ in nothing that is needed here.
func registryDefinition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Names.Kind == "ModelRegistry"
	})
	crd := all[at].DeepCopy()
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	return crd
}

// registry is one that is there, or is made.
func registry(t *testing.T, cluster *testkit.Cluster, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"grpc": map[string]any{}, "rest": map[string]any{}, "mysql": map[string]any{"host": "db", "database": "models", "username": "models"}}}}
	u.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("ModelRegistry"))
	u.SetNamespace(namespace)
	u.SetName(name)
	testkit.Eventually(t, patience, "the registry "+name, func() error {
		if err := cluster.Client().Create(t.Context(), u.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		return cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(u), u)
	})
	return u
}
