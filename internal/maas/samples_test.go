// SPDX-License-Identifier: Apache-2.0

package maas_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// around the samples is what others would have made: the route of the model, with the gateway that it hangs on, and what was said
// of the subscription and the policy.
const around = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  namespace: llm
  name: simulated
  labels:
    app.kubernetes.io/name: facebook-opt-125m-simulated
    app.kubernetes.io/component: llminferenceservice-router
    app.kubernetes.io/part-of: llminferenceservice
spec:
  parentRefs: [{namespace: openshift-ingress, name: maas-default-gateway}]
`

// TestSamples: what users have in their repositories is accepted, and becomes a policy with their limits.
func TestSamples(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(checkout.Manifests(t, "maas"), "*.yaml"))
	if len(files) == 0 {
		t.Fatal("there are no manifests of users")
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	c := cli.NewPlanCommand(domains.NewPlanner)
	var out bytes.Buffer
	c.SetIn(strings.NewReader(strings.Join(all, "\n---\n") + around))
	c.SetOut(&out)
	c.SetArgs([]string{"-f", "-"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"name: maas-trlp-facebook-opt-125m-simulated", "models-as-a-service-simulator-subscription-facebook-opt-125m-simulated-tokens:",
		`auth.identity.selected_subscription_key == "models-as-a-service/simulator-subscription@llm/facebook-opt-125m-simulated"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %s in\n%s", want, out.String())
		}
	}
}
