// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/inference/v1alpha1"
	maas "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
	"github.com/modelplane/modelplane/internal/maas/payload/watch"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// patience is more than watches wait between two attempts.
const patience = 2 * time.Minute

// kinds are those of external models.
func kinds(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group != v1alpha1.GroupVersion.Group && crd.Name != "externalmodels."+maas.GroupVersion.Group
	})
}

// TestWatch: what is in the tenant's namespace is known, what is changed or gone is followed, and nothing of elsewhere nor
// a Secret without the label is seen.
func TestWatch(t *testing.T) {
	cluster := testkit.Start(t)
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), maas.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	ns, elsewhere := cluster.Namespace(t), cluster.Namespace(t)
	file := filepath.Join(t.TempDir(), "namespaces")
	table := directory.New()
	w, err := watch.New(cluster.Config(), []string{ns}, file, table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = w.Run(ctx) }()
	testkit.Eventually(t, patience, "the watches", w.Ready) // also where the kinds are not installed yet
	cluster.InstallCRDs(t, kinds(t)...)
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	secret := func(namespace, name string, labels map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: meta(namespace, name), Data: map[string][]byte{"api-key": []byte("k")}}
		s.Labels = labels
		return s
	}
	managed := map[string]string{watch.SecretLabel: watch.SecretLabelValue}
	provider := &v1alpha1.ExternalProvider{ObjectMeta: meta(ns, "anthropic"), Spec: v1alpha1.ExternalProviderSpec{
		Provider: "anthropic", Endpoint: "api.example.com", Auth: v1alpha1.Auth{Type: v1alpha1.AuthAPIKey, SecretRef: v1alpha1.NameRef{Name: "key"}}}}
	model := &v1alpha1.ExternalModel{ObjectMeta: meta(ns, "claude"), Spec: v1alpha1.ExternalModelSpec{ModelName: "claude-next",
		ExternalProviderRefs: []v1alpha1.ExternalProviderRef{{Ref: v1alpha1.NameRef{Name: "anthropic"}, TargetModel: "t", APIFormat: "messages", Path: "/v1/messages", Weight: ptr.To(5)}}}}
	foreign := model.DeepCopy()
	foreign.Namespace, foreign.Spec.ModelName = elsewhere, "foreign"
	for _, o := range []client.Object{secret(ns, "key", managed), secret(ns, "plain", nil), secret(elsewhere, "key", managed), provider, model, foreign} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	want := []directory.Provider{{Name: "anthropic", Kind: "anthropic", Endpoint: "api.example.com", Format: "messages", Path: "/v1/messages", TargetModel: "t", Weight: 5,
		Auth: directory.Auth{Type: "apikey", Secret: directory.Key{Namespace: ns, Name: "key"}}, Config: map[string]string{}}}
	testkit.Eventually(t, patience, "the model", func() error {
		got, _ := table.Model("claude-next")
		if diff := cmp.Diff(want, got.Providers); diff != "" {
			return errors.New(diff)
		}
		if data, has := table.Credential(want[0].Auth.Secret); !has || string(data["api-key"]) != "k" {
			return fmt.Errorf("the Secret is %v", has)
		}
		return nil
	})
	for _, name := range []directory.Key{{Namespace: ns, Name: "plain"}, {Namespace: elsewhere, Name: "key"}} {
		if _, has := table.Credential(name); has {
			t.Errorf("Secret %s is known", name)
		}
	}
	if _, has := table.Model("foreign"); has {
		t.Error("a model of elsewhere is known")
	}
	if err := errors.Join(c.Delete(ctx, model), c.Delete(ctx, secret(ns, "key", nil))); err != nil {
		t.Fatal(err)
	}
	// One of the former kind is known by its name, and by where it is.
	former := &maas.ExternalModel{ObjectMeta: meta(ns, "old"), Spec: maas.ExternalModelSpec{Provider: "openai", TargetModel: "gpt", Endpoint: "api.example.com", CredentialRef: maas.CredentialRef{Name: "key"}}}
	if err := c.Create(ctx, former); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "the model of the former kind", func() error {
		for _, name := range []string{"old", ns + "/old"} {
			if m, has := table.Model(name); !has || len(m.Providers) != 1 || m.Providers[0].TargetModel != "gpt" || m.Providers[0].Auth.Secret.Name != "key" {
				return fmt.Errorf("%s is %+v", name, m)
			}
		}
		return nil
	})
	// The file names another namespace, which is watched from then on, until it names it no more. A file that cannot be meant
	// changes nothing.
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want bool) {
		t.Helper()
		testkit.Eventually(t, patience, "the file to be followed", func() error {
			_, model := table.Model("foreign")
			if _, secret := table.Credential(directory.Key{Namespace: elsewhere, Name: "key"}); model != want || secret != want {
				return fmt.Errorf("model %v, Secret %v", model, secret)
			}
			return w.Ready()
		})
	}
	write("# tenants\n\n" + elsewhere + "\r\n")
	is(true)
	write("../" + elsewhere)
	write(elsewhere + "\n" + ns + "\nnot-there\n")
	is(true)
	write("")
	is(false)
	if _, has := table.Model("old"); !has {
		t.Error("a namespace of the command line was forgotten")
	}
	testkit.Eventually(t, patience, "both to be gone", func() error {
		_, hasModel := table.Model("claude-next")
		if _, hasSecret := table.Credential(want[0].Auth.Secret); hasModel || hasSecret {
			return fmt.Errorf("model %v, Secret %v", hasModel, hasSecret)
		}
		return nil
	})
}
