// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
)

// Commands run in the root of the repository, as people call them.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	if err := run(true); err != nil {
		t.Error(err)
	}
}

func rule(group, resources, names, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: strings.Fields(resources),
		ResourceNames: strings.Fields(names), Verbs: strings.Fields(verbs),
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want []rbacv1.PolicyRule
	}{
		{
			name: "verbs of two rules come together",
			in:   []rbacv1.PolicyRule{rule("", "events", "", "patch"), rule("", "events", "", "create patch")},
			want: []rbacv1.PolicyRule{rule("", "events", "", "create patch")},
		},
		{
			name: "resources with the same verbs share a rule, in order",
			in:   []rbacv1.PolicyRule{rule("apps", "statefulsets", "", "get"), rule("apps", "deployments", "", "get")},
			want: []rbacv1.PolicyRule{rule("apps", "deployments statefulsets", "", "get")},
		},
		{
			name: "groups stay apart",
			in:   []rbacv1.PolicyRule{rule("b", "things", "", "get"), rule("a", "things", "", "get")},
			want: []rbacv1.PolicyRule{rule("a", "things", "", "get"), rule("b", "things", "", "get")},
		},
		{
			name: "names with the same verbs share a rule",
			in:   []rbacv1.PolicyRule{rule("", "secrets", "b", "get"), rule("", "secrets", "a", "get")},
			want: []rbacv1.PolicyRule{rule("", "secrets", "a b", "get")},
		},
		{
			name: "a name is not lost where only some verbs are for all",
			in:   []rbacv1.PolicyRule{rule("", "secrets", "", "create"), rule("", "secrets", "a", "get")},
			want: []rbacv1.PolicyRule{rule("", "secrets", "", "create"), rule("", "secrets", "a", "get")},
		},
		{
			name: "what is granted for all names is not granted for one again",
			in:   []rbacv1.PolicyRule{rule("", "secrets", "", "get"), rule("", "secrets", "a", "get update")},
			want: []rbacv1.PolicyRule{rule("", "secrets", "", "get"), rule("", "secrets", "a", "update")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := grantsOf(c.in...).rules()
			for i := range got { // none and an empty list mean the same
				got[i].ResourceNames = append([]string{}, got[i].ResourceNames...)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMarkers(t *testing.T) {
	if _, _, err := marked("./internal/version"); err == nil || !strings.Contains(err.Error(), "no +kubebuilder:rbac marker") {
		t.Errorf("a package without markers: %v", err)
	}
	everywhere, here, err := marked("./internal/certs")
	if err != nil || len(everywhere) == 0 || len(here) == 0 {
		t.Errorf("certs needs something everywhere (%d) and at home (%d): %v", len(everywhere), len(here), err)
	}
}

func TestEveryDefinitionHasADomain(t *testing.T) {
	all, err := domains.All()
	if err != nil {
		t.Fatal(err)
	}
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owners(all, crds); err != nil {
		t.Error(err)
	}
	if _, err := owners(all[1:], crds); err == nil || !strings.Contains(err.Error(), "belongs to no domain") {
		t.Errorf("without a domain: %v", err)
	}
}

func TestTemplatesAreNotWrittenIntoTemplates(t *testing.T) {
	err := definition{name: "bad", content: []string{"{{ .Values }}"}}.write(&strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "would be read as a template") {
		t.Errorf("got %v", err)
	}
}

func TestPut(t *testing.T) {
	dir := t.TempDir()
	current, old := filepath.Join(dir, "current.yaml"), filepath.Join(dir, "old.yaml")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{current: []byte("content")}
	stale, err := staleIn(dir, files)
	if err != nil {
		t.Fatal(err)
	}
	err = put(files, stale, true)
	if err == nil || !strings.Contains(err.Error(), "current.yaml is missing") || !strings.Contains(err.Error(), "old.yaml is not generated") {
		t.Errorf("check: %v", err)
	}
	if err := put(files, stale, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the stale file: %v", err)
	}
	if err := put(files, nil, true); err != nil {
		t.Errorf("check after writing: %v", err)
	}
}
