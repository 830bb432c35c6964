// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine/sample"
)

// TestRulesReadTheManifests: a rule may look at what stands beside its object.
// Objects of other kinds are seen wherever they stand; our own as if they were
// created one after the other. A refusal has the words of the API server.
func TestRulesReadTheManifests(t *testing.T) {
	const (
		limit = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limit}\ndata: {samples: '1'}\n"
		one   = "apiVersion: test.modelplane.dev/v1\nkind: Sample\nmetadata: {name: one}\nspec: {message: hi}\n"
		two   = "apiVersion: test.modelplane.dev/v1\nkind: Sample\nmetadata: {name: two}\nspec: {message: hi}\n"
		words = `Sample.test.modelplane.dev "two" is invalid: metadata.name: Forbidden: there is one already`
	)
	for _, tc := range []struct {
		name string
		docs []string
		want string // empty: planned
	}{
		{"no limit", []string{one, two}, ""},
		{"limit first", []string{limit, one, two}, words},
		{"limit last", []string{one, two, limit}, words},
		{"within the limit", []string{two, limit}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			planner := samplePlanner(t)
			planner.Kinds[0].Validate = atMostOne
			var out bytes.Buffer
			err := planner.PlanText(t.Context(), "in.yaml", []byte(strings.Join(tc.docs, "---\n")), &out)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func atMostOne(ctx context.Context, _, _ client.Object) ([]string, error) {
	r := admission.ReaderFrom(ctx)
	if err := r.Get(ctx, client.ObjectKey{Namespace: "default", Name: "limit"}, &corev1.ConfigMap{}); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var others sample.SampleList
	if err := r.List(ctx, &others); err != nil {
		return nil, err
	}
	if len(others.Items) == 0 {
		return nil, nil
	}
	return nil, field.ErrorList{field.Forbidden(field.NewPath("metadata", "name"), "there is one already")}.ToAggregate()
}
