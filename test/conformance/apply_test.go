// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

// TestClientSideApply installs the definitions as a person would, who has no
// tool but kubectl: plain apply of the folder, no server-side flag, twice.
func TestClientSideApply(t *testing.T) {
	cluster := testkit.Start(t)
	stdout, stderr, err := cluster.Kubectl(t, "", "apply", "-f", definitions)
	if err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, stderr)
	}
	for _, def := range readDefinitions(t) {
		if !strings.Contains(stdout, "customresourcedefinition.apiextensions.k8s.io/"+def.Name+" ") {
			t.Errorf("%s was not applied:\n%s", def.Name, stdout)
		}
		testkit.Eventually(t, time.Minute, def.Name+" is established", func() error {
			return established(t.Context(), cluster.Client(), def.Name)
		})
	}
	again, stderr, err := cluster.Kubectl(t, "", "apply", "-f", definitions)
	if err != nil {
		t.Fatalf("second kubectl apply: %v\n%s", err, stderr)
	}
	for line := range strings.Lines(again) {
		if !strings.HasSuffix(strings.TrimSpace(line), "unchanged") {
			t.Errorf("second apply: %s", strings.TrimSpace(line))
		}
	}
	if have, want := strings.Count(again, "\n"), len(definitionFiles(t)); have != want {
		t.Errorf("second apply spoke of %d objects, want %d:\n%s", have, want, again)
	}
}

// TestKustomizeBase proves that the folder serves kustomize as well.
func TestKustomizeBase(t *testing.T) {
	stdout, stderr, err := testkit.Start(t).Kubectl(t, "", "kustomize", definitions)
	if err != nil {
		t.Fatalf("kubectl kustomize: %v\n%s", err, stderr)
	}
	for name, def := range readDefinitions(t) {
		if !strings.Contains(stdout, "\n  name: "+def.Name+"\n") {
			t.Errorf("%s is not in the base", name)
		}
	}
}

func established(ctx context.Context, c client.Client, name string) error {
	def := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, def); err != nil {
		return err
	}
	ready := false
	for _, condition := range def.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.NonStructuralSchema && condition.Status == apiextensionsv1.ConditionTrue:
			return fmt.Errorf("non-structural: %s", condition.Message)
		case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
			ready = true
		}
	}
	if !ready {
		return errors.New("not yet")
	}
	return nil
}
