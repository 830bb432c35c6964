// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/webhooks"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

const (
	notEnabled = "not enabled for MaaS tenant resources. Create a MaasTenantConfig CR"
	group      = "apiVersion: maas.opendatahub.io/v1alpha1, "
)

// rule is one question to the API server: an object that is made, or one that is changed into it.
type rule struct{ name, from, object, refused string }

func rules(tenants, bare string) []rule {
	tenant := func(ns, name, gateway string) string {
		return fmt.Sprintf("{%skind: AITenant, metadata: {namespace: %s, name: %s}, spec: {gateway: {name: %q}}}", group, ns, name, gateway)
	}
	subscription := func(ns string, limit int) string {
		return fmt.Sprintf("{%skind: MaaSSubscription, metadata: {namespace: %s, name: s}, spec: {owner: {users: [me]}, modelRefs: [{name: m, namespace: models, tokenRateLimits: [{limit: %d, window: 1m}]}]}}", group, ns, limit)
	}
	policy := func(ns string) string {
		return fmt.Sprintf("{%skind: MaaSAuthPolicy, metadata: {namespace: %s, name: p}, spec: {subjects: {users: [me]}, modelRefs: [{name: m, namespace: models}]}}", group, ns)
	}
	model := func(tenant string) string {
		return fmt.Sprintf("{%skind: MaaSModelRef, metadata: {namespace: %s, name: m}, spec: {modelRef: {kind: ExternalModel, name: x}, tenantRef: %q}}", group, bare, tenant)
	}
	return []rule{
		{name: "a tenant", object: tenant(tenants, "red", "")},
		{name: "a tenant elsewhere", object: tenant(bare, "red", ""), refused: "AITenant must be created in namespace"},
		{name: "a gateway that is taken", object: tenant(tenants, "red", "door"), refused: "is already used by AITenant"},
		{name: "a gateway that is taken by its name", object: tenant(tenants, "door", ""), refused: "is already used by AITenant"},
		{name: "another gateway", from: tenant(tenants, "red", "one"), object: tenant(tenants, "red", "two")},
		{name: "another gateway that is taken", from: tenant(tenants, "red", "one"), object: tenant(tenants, "red", "door"), refused: "is already used by AITenant"},
		{name: "a subscription", object: subscription(tenants, 1)},
		{name: "a subscription that nobody looks after", object: subscription(bare, 1), refused: notEnabled},
		{name: "another limit", from: subscription(tenants, 1), object: subscription(tenants, 2)},
		{name: "a policy", object: policy(tenants)},
		{name: "a policy that nobody looks after", object: policy(bare), refused: notEnabled},
		{name: "a model", object: strings.Replace(model("blue"), `, tenantRef: "blue"`, "", 1)},
		{name: "a model of a tenant", object: model("blue")},
		{name: "a model of nobody", object: model("green"), refused: "AITenant green does not exist"},
		{name: "a model that changes to nobody", from: model("blue"), object: model("green"), refused: "AITenant green does not exist"},
	}
}

// TestRules asks a real API server, which asks the webhooks over TLS at the paths that installations know.
func TestRules(t *testing.T) {
	b := newBench(t)
	bare := b.Namespace(t)
	blue := &v1alpha1.AITenant{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "blue"}}
	blue.Spec.Gateway = &v1alpha1.AITenantGateway{Name: "door"}
	b.Create(t, blue, &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: v1alpha1.MaasTenantConfigName}})
	ask(t, b, bare)
	for _, r := range rules(b.NS, bare) {
		t.Run(r.name, func(t *testing.T) { r.check(t, b) })
	}
}

func newBench(t *testing.T) *domaintest.Bench {
	t.Helper()
	cluster := testkit.Start(t)
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var needed []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range all {
		if crd.Spec.Group == v1alpha1.GroupVersion.Group {
			needed = append(needed, crd)
		}
	}
	cluster.InstallCRDs(t, needed...)
	return domaintest.New(t, cluster, scheme)
}

// check asks for one object, and leaves nothing behind.
func (r rule) check(t *testing.T, b *domaintest.Bench) {
	t.Helper()
	u := parsed(t, r.object)
	var err error
	if r.from == "" {
		err = b.C.Create(t.Context(), u, client.DryRunAll)
	} else {
		old := parsed(t, r.from)
		b.Create(t, old)
		defer b.Delete(t, old)
		u.SetResourceVersion(old.GetResourceVersion())
		err = b.C.Update(t.Context(), u, client.DryRunAll)
	}
	switch {
	case r.refused == "" && err != nil:
		t.Fatalf("refused: %v", err)
	case r.refused != "" && (err == nil || !strings.Contains(err.Error(), r.refused)):
		t.Fatalf("not refused with %q: %v", r.refused, err)
	}
}

func parsed(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// ask serves the webhooks for the namespaces of the test, until it ends.
func ask(t *testing.T, b *domaintest.Bench, bare string) {
	t.Helper()
	kinds, err := admission.Kinds(admission.MaaS)
	if err != nil {
		t.Fatal(err)
	}
	kinds = webhooks.Rules(kinds, func() settings.Settings {
		return settings.Settings{Namespace: b.NS, TenantNamespace: b.NS}.WithDefaults()
	})
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
	if err := admission.Register(server, scheme, kinds...); err != nil {
		t.Fatal(err)
	}
	b.Serve(t, server, port)
	validating, _, err := admission.Webhooks(b.NS, admission.Service{Namespace: "n", Name: "s"}, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for i := range validating.Webhooks {
		w := &validating.Webhooks[i]
		paths[*w.ClientConfig.Service.Path] = *w.FailurePolicy == "Fail"
		b.PointWebhook(&w.ClientConfig, port, ca)
		w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{b.NS, bare}}}}
	}
	for _, kind := range []string{"aitenant", "maassubscription", "maasauthpolicy", "maasmodelref"} {
		if path := "/validate-maas-opendatahub-io-v1alpha1-" + kind; !paths[path] {
			t.Errorf("nobody is asked at %s, or a silence counts as yes: %v", path, paths)
		}
	}
	b.Create(t, validating)
	t.Cleanup(func() { b.Delete(t, validating) })
	probe := rule{object: fmt.Sprintf("{%skind: AITenant, metadata: {namespace: %s, name: probe}}", group, bare)}
	testkit.Eventually(t, domaintest.Patience, "the webhooks to be asked", func() error {
		if err := b.C.Create(t.Context(), parsed(t, probe.object), client.DryRunAll); err == nil {
			return errors.New("nobody minds a tenant elsewhere")
		}
		return nil
	})
}

// TestOffline: without a cluster, what is not at hand is not missed.
func TestOffline(t *testing.T) {
	kinds, err := admission.Kinds(admission.MaaS)
	if err != nil {
		t.Fatal(err)
	}
	ctx := admission.WithReader(t.Context(), &engine.World{Scheme: scheme})
	for _, k := range webhooks.Rules(kinds, func() settings.Settings { return settings.Default("x") }) {
		if k.GVK.Kind != "MaaSSubscription" {
			continue
		}
		warnings, err := k.Validate(ctx, nil, &v1alpha1.MaaSSubscription{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%v, %v", warnings, err)
		}
	}
}

// TestUnreadFields: a Config says which of its fields nothing reads, and nothing of what the API server fills in.
func TestUnreadFields(t *testing.T) {
	kinds, err := admission.Kinds(admission.MaaS)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, k := range webhooks.Rules(kinds, func() settings.Settings { return settings.Default("x") }) {
		if k.GVK.Kind != "Config" {
			continue
		}
		asked++
		on, off := true, false
		for _, c := range []struct {
			spec v1alpha1.ConfigSpec
			want int
		}{
			{v1alpha1.ConfigSpec{LimitadorScrapeInterval: "30s", UsageLogging: &off}, 0},
			{v1alpha1.ConfigSpec{LimitadorScrapeInterval: "10s"}, 1},
			{v1alpha1.ConfigSpec{LimitadorScrapeInterval: "10s", UsageLogging: &on}, 2},
		} {
			warnings, err := k.Validate(t.Context(), nil, &v1alpha1.Config{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigName}, Spec: c.spec})
			if err != nil || len(warnings) != c.want {
				t.Errorf("%+v: %v, %v", c.spec, warnings, err)
			}
		}
	}
	if asked != 1 {
		t.Errorf("%d kinds Config", asked)
	}
}
