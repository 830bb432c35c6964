// SPDX-License-Identifier: Apache-2.0

package platform_test

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/platform"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/testkit"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s), gatewayv1.Install(s)); err != nil {
		panic(err)
	}
	return s
}()

// TestPlan decides about manifests in files, without a cluster. "without: GROUP" is an API that the cluster does not serve, and
// "image: none" a manager that does not know its image.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		head := testkit.FrontMatter(in)
		about := &platform.Platform{Settings: settings.Default("modelplane-system"), Image: "modelplane:v1", Now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }}
		if len(head["image"]) > 0 {
			about.Image = ""
		}
		p := &cli.Planner{Scheme: scheme, Namespace: "models-as-a-service", Without: head["without"], Controllers: []engine.Controller{platform.Controller(about)}}
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
	})
}

// TestReasons: every reason stands in a golden case.
func TestReasons(t *testing.T) {
	all := ""
	for _, c := range testkit.GoldenCases(t, "testdata/plan") {
		all += string(c.Out)
	}
	for _, reason := range []string{
		"Reconciled", "InvalidPlacement", "ConfigMissing", "ConfigTerminating", "ManagementStateIdle", "UnexpectedManagementState", "WaitingForRemovedTeardown", "InvalidGateway",
		"GatewayNotReady", "DependenciesNotAvailable", "PrerequisitesNotMet", "PlatformReconcileFailed", "DeploymentsNotReady",
		"NoWarnings", "PrerequisitesWarning", "InvalidReplicaAnnotation", "MultipleWarnings", "PrerequisitesMissing", "DependenciesNotMet",
	} {
		if !strings.Contains(all, "("+reason+")") {
			t.Errorf("no case says %s", reason)
		}
	}
}

// unnamed is the end of the rule for requests that no other route takes: they get an answer that does not depend on their path.
var unnamed = regexp.MustCompile(`replaceFullPath: /no-such-model\n +type: ReplaceFullPath\n +matches:\n +- path:\n +type: PathPrefix\n +value: /\n`)

// TestInternalPathsAreNotOffered: no rule of any planned route leads to what only gateways and jobs may ask.
func TestInternalPathsAreNotOffered(t *testing.T) {
	for _, c := range testkit.GoldenCases(t, "testdata/plan") {
		out := unnamed.ReplaceAllString(string(c.Out), "")
		for _, path := range []string{"value: /maas-api\n", "value: /\n", "value: /internal", "value: /maas-api/internal", "value: /v1\n", "/v1/tenants"} {
			if strings.Contains(out, path) {
				t.Errorf("%s has a rule with %q", c.Name, path)
			}
		}
		if strings.Contains(out, "insecureSkipVerify") || strings.Contains(out, "failure_mode_allow: true") || strings.Contains(out, "failOpen: true") {
			t.Errorf("%s lets something pass unchecked", c.Name)
		}
	}
}
