// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenants"
	"github.com/modelplane/modelplane/internal/testkit"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s), gatewayv1.Install(s)); err != nil {
		panic(err)
	}
	return s
}()

// noon is when everything of a golden case happens.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func platform() *tenants.Platform {
	return &tenants.Platform{
		Settings: settings.Default("modelplane-system"), Image: "modelplane:v1", DeletionTimeout: tenants.DefaultDeletionTimeout,
		Now: func() time.Time { return noon },
	}
}

// TestPlan decides about manifests in files, without a cluster.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		p := &cli.Planner{Scheme: scheme, Namespace: "ai-tenants", Without: testkit.FrontMatter(in)["without"], Controllers: tenants.Controllers(platform())}
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

// TestEnd decides about a tenant that is being deleted.
func TestEnd(t *testing.T) {
	testkit.Golden(t, "testdata/end", func(t *testing.T, in []byte) []byte {
		world := &engine.World{Scheme: scheme, Without: testkit.FrontMatter(in)["without"]}
		for _, doc := range bytes.Split(in, []byte("---\n")) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(doc, &u.Object); err != nil {
				t.Fatal(err)
			}
			world.Objects = append(world.Objects, u)
		}
		obj, kind := &v1alpha1.AITenant{}, tenants.Kind{Platform: platform()}
		if err := world.Get(t.Context(), client.ObjectKey{Namespace: "ai-tenants", Name: "red"}, obj); err != nil {
			t.Fatal(err)
		}
		seen, err := kind.Observe(t.Context(), world, obj)
		if err != nil {
			t.Fatal(err)
		}
		return ending(t, kind.Teardown(obj, seen))
	})
}

func ending(t *testing.T, end engine.Ending) []byte {
	t.Helper()
	var out bytes.Buffer
	if end.Finished {
		return []byte("# finished\n")
	}
	fmt.Fprintf(&out, "# %s: %s\n", end.Problem.Reason, end.Problem.Message)
	fmt.Fprintf(&out, "# again after %s\n", end.RequeueAfter)
	for _, e := range end.Events {
		fmt.Fprintf(&out, "# event %s: %s\n", e.Reason, e.Message)
	}
	status, err := yaml.Marshal(end.Status)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(status)
	for _, c := range end.Children {
		gvk, err := apiutil.GVKForObject(c.Object, scheme)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "# %s %s, delete %v, %v\n", gvk.Kind, client.ObjectKeyFromObject(c.Object), c.Delete, c.Object.GetLabels())
	}
	return out.Bytes()
}

// TestReasons: every reason stands in a golden case.
func TestReasons(t *testing.T) {
	all := ""
	for _, dir := range []string{"testdata/plan", "testdata/end"} {
		for _, c := range testkit.GoldenCases(t, dir) {
			all += string(c.Out)
		}
	}
	for _, reason := range []string{
		"Reconciled", "InvalidPlacement", "LegacyTenantMigrationFailed", "TenantNamespaceFailed", "GatewayCheckFailed", "GatewayClaimFailed",
		"TenantNamespacePending", "TenantConfigNotReady", "DeletionInProgress", "DeletionBlocked", "CleanupForced", "InfraNamespaceLabelFailed", "RevocationJobCompleted", "NoDatabase",
	} {
		if !strings.Contains(all, reason) {
			t.Errorf("no case says %s", reason)
		}
	}
}
