// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
)

// TestHomeRules: one object at home is all that may be read of its kind.
func TestHomeRules(t *testing.T) {
	one := engine.For[*corev1.ConfigMap, struct{}](nil, engine.Spec{Name: "one", HomeName: "listed", NoStatus: true})
	rules, err := engine.HomeRules(enginetest.Scheme, one, sample.Controller())
	if err != nil {
		t.Fatal(err)
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"listed"}, Verbs: []string{"list", "watch"}}}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Error(diff)
	}
	everywhere, err := engine.Rules(enginetest.Scheme, one)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range everywhere {
		if slices.Contains(r.Resources, "configmaps") {
			t.Errorf("in every namespace: %v", r)
		}
	}
}

func TestRulesGrantWhatTheSpecSays(t *testing.T) {
	rules, err := engine.Rules(enginetest.Scheme, sample.Controller())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rules {
		got = append(got, strings.Join(r.APIGroups, ",")+" "+strings.Join(r.Resources, ",")+" "+strings.Join(r.Verbs, ","))
	}
	want := []string{
		" configmaps,secrets,services create,delete,get,list,patch,watch",
		" namespaces list,watch",
		"apiextensions.k8s.io customresourcedefinitions list,watch",
		"apiregistration.k8s.io apiservices list,watch",
		"apps deployments create,delete,get,list,patch,watch",
		"batch jobs create,delete,get,list,patch,watch",
		"events.k8s.io events create,patch",
		"gateway.networking.k8s.io httproutes create,delete,get,list,patch,watch",
		"test.modelplane.dev samples get,list,patch,watch",
		"test.modelplane.dev samples/finalizers update",
		"test.modelplane.dev samples/status patch",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
