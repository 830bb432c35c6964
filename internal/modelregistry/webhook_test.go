// SPDX-License-Identifier: Apache-2.0

package modelregistry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/modelregistry"
	"github.com/modelplane/modelplane/internal/modelregistry/registrytest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// rule is one question to the API server: an object that is made, or one that is changed into it.
type rule struct {
	name, from, object string
	refused, warning   string // in the answer; accepted, or silent, if empty
	// left is a path of the answer and what it must say there.
	left map[string]string
}

const (
	postgresSpec  = "rest: {}, postgres: {host: db, username: me, database: registry}"
	mysqlSpec     = "rest: {}, mysql: {host: db, username: me, database: registry}"
	generatedSpec = "rest: {}, postgres: {generateDeployment: true}"
	required      = "required one of `postgres` or `mysql` database"
)

func beta(meta, spec string) string {
	return fmt.Sprintf("{apiVersion: modelregistry.opendatahub.io/v1beta1, kind: ModelRegistry, metadata: {%s}, spec: {%s}}", meta, spec)
}

func alpha(meta, spec string) string {
	return strings.Replace(beta(meta, "grpc: {}, "+spec), "v1beta1", "v1alpha1", 1)
}

// rules has every rule with what it accepts and what it refuses.
func rules(other string) []rule {
	named := func(annotation, value string) string {
		return fmt.Sprintf("name: a, annotations: {%s: %q}", annotation, value)
	}
	return []rule{
		{name: "postgres", object: beta("name: a", postgresSpec), left: map[string]string{"spec.rest.serviceRoute": "disabled"}},
		{name: "mysql", object: beta("name: a", mysqlSpec)},
		{name: "a generated database", object: beta("name: a", generatedSpec)},
		{name: "no database", object: beta("name: a", "rest: {}"), refused: required},
		{name: "a database without a host is none", object: beta("name: a", "rest: {}, postgres: {}"), refused: required},
		{name: "mysql without a host is none", object: beta("name: a", `rest: {}, mysql: {host: "", username: me, database: x}`), refused: required},
		{name: "mysql without a host beside postgres", object: beta("name: a", postgresSpec+`, mysql: {host: "", username: me, database: x}`)},
		{name: "files, which were asked for", object: beta(named(modelregistry.AnnotationDatabase, "sqlite"), "rest: {}")},
		{name: "files of an unknown kind", object: beta(named(modelregistry.AnnotationDatabase, "files"), postgresSpec), refused: "Unsupported value"},
		{name: "a generated database with a host", object: beta("name: a", "rest: {}, postgres: {generateDeployment: true, host: db}"), refused: "host and hostAddress must not be set"},
		{name: "a name that is taken elsewhere", object: beta("name: taken", postgresSpec), refused: "registry named taken already exists in namespace " + other},
		{name: "a name that no Service can have", object: beta("name: a.b", postgresSpec), refused: "the Service of the registry has this name"},
		{name: "a name that is too long", object: beta("name: "+strings.Repeat("a", 55), postgresSpec), refused: "Too long"},
		{name: "a name that is just short enough", object: beta("name: "+strings.Repeat("a", 54), postgresSpec)},
		{name: "three pods", object: beta(named(modelregistry.AnnotationReplicas, "3"), postgresSpec)},
		{name: "no pods", object: beta(named(modelregistry.AnnotationReplicas, "0"), postgresSpec), refused: "must be a number of pods"},
		{name: "a size", object: beta(named(modelregistry.AnnotationStorageSize, "20Gi"), generatedSpec)},
		{name: "no size", object: beta(named(modelregistry.AnnotationStorageSize, "big"), generatedSpec), refused: "must be a size"},
		{name: "the former proxy", object: beta("name: a", postgresSpec+", oauthProxy: {domain: example.com}"),
			left: map[string]string{"spec.kubeRBACProxy.domain": "example.com", "spec.kubeRBACProxy.serviceRoute": "enabled", "spec.oauthProxy": ""}},
		{name: "both proxies", object: beta("name: a", postgresSpec+", oauthProxy: {}, kubeRBACProxy: {}"), refused: "Cannot use both oauthProxy and kubeRBACProxy"},
		{name: "settings without effect", object: beta("name: a", postgresSpec+", enable_database_upgrade: true"), warning: "spec.enable_database_upgrade: has no effect"},
		{name: "the same database", from: beta("name: b", postgresSpec), object: beta("name: b", strings.Replace(postgresSpec, "rest: {}", "rest: {port: 9000}", 1))},
		{name: "another host", from: beta("name: b", postgresSpec), object: beta("name: b", strings.Replace(postgresSpec, "host: db", "host: db2", 1)), refused: `to "postgres/db2:5432/registry" to switch`},
		{name: "another host, by name", from: beta("name: b", postgresSpec), object: beta("name: b, annotations: {modelplane.dev/switch-database: 'postgres/db2:5432/registry'}", strings.Replace(postgresSpec, "host: db", "host: db2", 1))},
		{name: "another kind of database", from: beta("name: b", generatedSpec), object: beta("name: b", mysqlSpec), refused: "the generated database b-postgres"},
		{name: "the former version", object: alpha("name: a", postgresSpec)},
		{name: "the former version without a database", object: alpha("name: a", "rest: {}"), refused: required},
		{name: "the former version with Istio", object: alpha("name: a", postgresSpec+", istio: {gateway: {rest: {}, grpc: {}}}"), warning: "spec.istio: has no effect"},
		{name: "the former version of another database", from: alpha("name: b", postgresSpec), object: alpha("name: b", mysqlSpec), refused: "switch-database"},
	}
}

// TestRules asks a real API server, which asks the webhooks over TLS at the paths that installations know.
func TestRules(t *testing.T) {
	b := registrytest.New(t)
	other := b.Namespace(t)
	taken := b.Registry("taken")
	taken.Namespace = other
	b.Create(t, taken)
	ask(t, b, modelregistry.New().WithSettings(modelregistry.Settings{OwnImage: "modelplane:test"}))
	for _, r := range rules(other) {
		t.Run(r.name, func(t *testing.T) { r.check(t, b) })
	}
}

func TestOnlyNamespace(t *testing.T) {
	b := registrytest.New(t)
	ask(t, b, modelregistry.New().WithSettings(modelregistry.Settings{OwnImage: "modelplane:test", RegistriesNamespace: "registries"}))
	rule{object: beta("name: a", postgresSpec), refused: "namespace must be registries"}.check(t, b)
}

// check asks for one object, and leaves nothing behind.
func (r rule) check(t *testing.T, b *registrytest.Bench) {
	t.Helper()
	said := &warnings{}
	config := rest.CopyConfig(b.Config())
	config.WarningHandler = said
	c, err := client.New(config, client.Options{Scheme: registrytest.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	u := parsed(t, r.object, b.NS)
	if r.from == "" {
		err = c.Create(t.Context(), u, client.DryRunAll)
	} else {
		old := parsed(t, r.from, b.NS)
		b.Create(t, old)
		defer b.Delete(t, old)
		u.SetResourceVersion(old.GetResourceVersion())
		err = c.Update(t.Context(), u, client.DryRunAll)
	}
	switch {
	case r.refused == "" && err != nil:
		t.Fatalf("refused: %v", err)
	case r.refused != "" && (err == nil || !strings.Contains(err.Error(), r.refused)):
		t.Fatalf("not refused with %q: %v", r.refused, err)
	}
	if !strings.Contains(said.String(), r.warning) {
		t.Errorf("warnings are %q, want %q", said, r.warning)
	}
	for path, want := range r.left {
		got, _, _ := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
		if text := fmt.Sprint(got); text != want && (want != "" || got != nil) {
			t.Errorf("%s is %q, want %q", path, text, want)
		}
	}
}

// warnings collects what the API server says besides its answer.
type warnings struct{ strings.Builder }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.WriteString(text + "\n") }

func parsed(t testing.TB, text, namespace string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetNamespace(namespace)
	return u
}

// ask serves the webhooks of the domain for the namespace of the test, until it ends.
func ask(t *testing.T, b *registrytest.Bench, domain *modelregistry.Domain) {
	t.Helper()
	kinds, err := domain.Admission()
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range kinds {
		if k.Validate != nil {
			kinds[i].Validate = func(ctx context.Context, old, obj client.Object) ([]string, error) {
				return k.Validate(admission.WithReader(ctx, admission.FromClient(b.C)), old, obj)
			}
		}
	}
	dir, ca := b.ServingCert(t)
	port := testkit.FreePort(t)
	server := webhook.NewServer(webhook.Options{Host: b.WebhookHost(), Port: port, CertDir: dir})
	if err := admission.Register(server, registrytest.Scheme, kinds...); err != nil {
		t.Fatal(err)
	}
	b.Serve(t, server, port)
	validating, mutating, err := admission.Webhooks(b.NS, admission.Service{Namespace: "n", Name: "s"}, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: b.NS}}
	const path = "-modelregistry-opendatahub-io-modelregistry"
	paths := map[string]bool{}
	for i := range validating.Webhooks {
		paths[*validating.Webhooks[i].ClientConfig.Service.Path] = true
		b.PointWebhook(&validating.Webhooks[i].ClientConfig, port, ca)
		validating.Webhooks[i].NamespaceSelector = here
	}
	for i := range mutating.Webhooks {
		paths[*mutating.Webhooks[i].ClientConfig.Service.Path] = true
		b.PointWebhook(&mutating.Webhooks[i].ClientConfig, port, ca)
		mutating.Webhooks[i].NamespaceSelector = here
	}
	if !paths["/validate"+path] || !paths["/mutate"+path] {
		t.Errorf("the webhooks are at %v", paths)
	}
	for _, obj := range []client.Object{validating, mutating} {
		b.Create(t, obj)
		t.Cleanup(func() { b.Delete(t, obj) })
	}
	testkit.Eventually(t, registrytest.Patience, "the webhooks to be asked", func() error {
		err := b.C.Create(t.Context(), parsed(t, beta("name: none", "rest: {}"), b.NS), client.DryRunAll)
		if err == nil {
			return errors.New("nobody minds a registry without a database")
		}
		return nil
	})
}
