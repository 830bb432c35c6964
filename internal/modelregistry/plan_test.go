// SPDX-License-Identifier: Apache-2.0

package modelregistry_test

import (
	"bytes"
	"testing"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/modelregistry"
	"github.com/modelplane/modelplane/internal/modelregistry/registrytest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestPlan decides about manifests in files, without a cluster. The front matter of a case says what the platform is
// like: "without: GROUP" is an API that it does not serve, "openshift: true" is what it is, "gateway: DOMAIN" where its
// gateway is, "domain: DOMAIN" the domain of all registries, "only: NAMESPACE" where registries may be, "image: IMAGE" and
// "proxy: IMAGE" what it ships, "class: NAME" its Ingress class.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte { return plan(t, in) })
}

func plan(t testing.TB, in []byte) []byte {
	t.Helper()
	p := &cli.Planner{Scheme: registrytest.Scheme, Namespace: "models"}
	settings := modelregistry.Settings{Namespace: "modelplane-system", OwnImage: "modelplane:v1", NotOpenShift: true}
	for key, values := range testkit.FrontMatter(in) {
		switch key {
		case "like":
		case "without":
			p.Without = values
		case "openshift":
			settings.NotOpenShift = false
		case "gateway":
			settings.GatewayDomain = values[0]
		case "domain":
			settings.Domain = values[0]
		case "only":
			settings.RegistriesNamespace = values[0]
		case "image":
			settings.Image = values[0]
		case "own":
			settings.OwnImage = ""
		case "proxy":
			settings.ProxyImage = values[0]
		case "class":
			settings.IngressClass = values[0]
		default:
			t.Fatalf("nobody knows what %q means", key)
		}
	}
	domain := modelregistry.New().WithSettings(settings)
	var err error
	if p.Kinds, err = domain.Admission(); err != nil {
		t.Fatal(err)
	}
	if p.Schemas, err = admission.Embedded(); err != nil {
		t.Fatal(err)
	}
	p.Controllers = domain.Controllers()
	var out bytes.Buffer
	if err := p.PlanText(t.Context(), "in.yaml", in, &out); err != nil {
		out.WriteString("refused: " + err.Error() + "\n")
	}
	return out.Bytes()
}

// TestEveryFieldIsPlannedOnce: a case moves each field that the kind has.
func TestEveryFieldIsPlannedOnce(t *testing.T) {
	testkit.EveryFieldIn(t, "testdata/plan", "../../test/conformance/fields/modelregistry.opendatahub.io_v1beta1_ModelRegistry.tsv", 40, 80)
}
