// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
)

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
