// SPDX-License-Identifier: Apache-2.0

package aihub_test

import (
	"bytes"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelregistry/aihub"
	"github.com/modelplane/modelplane/internal/testkit"
)

// scheme knows the kinds and Kubernetes.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// TestPlan decides about manifests in files, without a cluster. The front matter of a case says what the platform is like:
// "openshift: true" is what it is, "gateway: DOMAIN" where its gateway is, "domain: DOMAIN" that of addresses, "only: NAMESPACE"
// where the catalog may be, "image", "proxy", "data" and "benchmarks" what it ships, "skip: true" that there is a database.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", plan)
}

func plan(t *testing.T, in []byte) []byte {
	p := &cli.Planner{Scheme: scheme, Namespace: "models"}
	settings := aihub.Settings{Namespace: "modelplane-system", OwnImage: "modelplane:v1", NotOpenShift: true}
	for key, values := range testkit.FrontMatter(in) {
		switch key {
		case "like":
		case "openshift":
			settings.NotOpenShift = false
		case "gateway":
			settings.GatewayDomain = values[0]
		case "domain":
			settings.Domain = values[0]
		case "only":
			settings.CatalogNamespace = values[0]
		case "image":
			settings.Image = values[0]
		case "proxy":
			settings.ProxyImage = values[0]
		case "data":
			settings.DataImage = values[0]
		case "benchmarks":
			settings.BenchmarkImage = values[0]
		case "class":
			settings.IngressClass = values[0]
		case "skip":
			settings.SkipDatabase = true
		default:
			t.Fatalf("nobody knows what %q means", key)
		}
	}
	domain := aihub.New().WithSettings(settings)
	kinds, err := admission.Kinds(admission.ModelRegistry)
	if err != nil {
		t.Fatal(err)
	}
	p.Kinds = domain.Rules(kinds)
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

// TestKeepsNothing: what the engine keeps of a look does not hold the catalog.
func TestKeepsNothing(t *testing.T) {
	domaintest.KeepsNothing(t, aihub.New().Controllers()[0], &engine.World{Scheme: scheme}, func() *v1alpha1.Catalog {
		return &v1alpha1.Catalog{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: v1alpha1.CatalogName}}
	})
}
