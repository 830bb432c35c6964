// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/maas/external"
	"github.com/modelplane/modelplane/internal/testkit"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s), gatewayv1.Install(s)); err != nil {
		panic(err)
	}
	return s
}()

func settings() *external.Settings {
	return &external.Settings{Gateway: client.ObjectKey{Namespace: "openshift-ingress", Name: "maas-default-gateway"}, TenantsNamespace: "ai-tenants"}
}

// TestPlan decides about manifests in files, without a cluster. "without: GROUP" is an API that the cluster does not serve.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte { return plan(t, in) })
}

func plan(t testing.TB, in []byte) []byte {
	t.Helper()
	p := &cli.Planner{Scheme: scheme, Namespace: "models", Without: testkit.FrontMatter(in)["without"], Controllers: external.Controllers(settings())}
	var err error
	if p.Kinds, err = admission.Kinds(admission.MaaS); err != nil {
		t.Fatal(err)
	}
	if p.Schemas, err = admission.Embedded(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := p.PlanText(t.Context(), "in.yaml", in, &out); err != nil {
		out.WriteString("refused: " + err.Error() + "\n")
	}
	return out.Bytes()
}

// TestReasons: every reason that the plans can give stands in a golden case.
func TestReasons(t *testing.T) {
	all := ""
	for _, c := range testkit.GoldenCases(t, "testdata/plan") {
		all += string(c.Out)
	}
	for _, reason := range []string{
		"Reconciled", "Superseded", "InvalidPort", "InvalidTLS", "SecretMissing", "SecretIncomplete", "NoProvider", "ModelNameConflict",
		"PlaceholderUnknown", "ProviderMissing", "ProviderInvalid", "GatewayAPIMissing", "GatewayMissing", "RouteRefused", "RoutePending",
		"SecretNotLabelled", "ProviderUnsupported", "ProviderNotReady", "TenantMissing",
	} {
		if !strings.Contains(all, reason) {
			t.Errorf("no case says %s", reason)
		}
	}
}
