// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestProblemFamilies(t *testing.T) {
	gr, gk := schema.GroupResource{Resource: "services"}, schema.GroupKind{Kind: "Service"}
	for _, tc := range []struct {
		name    string
		err     error
		family  Family
		reason  string
		visible bool
	}{
		{"invalid", apierrors.NewInvalid(gk, "x", field.ErrorList{field.Required(field.NewPath("spec"), "")}), Invalid, "ChildRefused", true},
		{"bad request", apierrors.NewBadRequest("no"), Invalid, "ChildRefused", true},
		{"quota", apierrors.NewForbidden(gr, "x", errors.New("exceeded quota: q")), Failed, "QuotaExceeded", true},
		{"forbidden", apierrors.NewForbidden(gr, "x", errors.New("no")), Failed, "Forbidden", true},
		{"API going", apierrors.NewForbidden(gr, "x", errors.New("create not allowed while custom resource definition is terminating")), Failed, "APIMissing", true},
		{"no such API", &meta.NoKindMatchError{GroupKind: gk}, Waiting, "APIMissing", true},
		{"server error", apierrors.NewInternalError(errors.New("boom")), Failed, "APIServerFailed", false},
		{"network", errors.New("connection refused"), Failed, "APIServerFailed", false},
		{"already a problem", WaitFor("Later", "Wait."), Waiting, "Later", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := problemOf(tc.err, "Writing Service n/x")
			if p.Family != tc.family || p.Reason != tc.reason || p.visible != tc.visible {
				t.Errorf("got %+v", p)
			}
			if !strings.HasSuffix(p.Message, ".") {
				t.Errorf("not a sentence: %q", p.Message)
			}
		})
	}
}

func TestSummaryNamesTheGravestAndStillRetries(t *testing.T) {
	later, broken, wrong := WaitFor("Later", "Wait."), problemOf(errors.New("boom"), "Writing"), MustChange("Wrong", "Change it.")
	got := summary([]*Problem{later, broken, wrong})
	want := Problem{Family: Failed, Reason: "Wrong", Message: "Change it. (2 more)"}
	if diff := cmp.Diff(want, Problem{Family: got.Family, Reason: got.Reason, Message: got.Message}, cmp.AllowUnexported(Problem{})); diff != "" {
		t.Error(diff)
	}
	if got := summary([]*Problem{later}); got.Family != Waiting || got.Message != "Wait." {
		t.Errorf("one problem is itself: %+v", got)
	}
}

func TestOneLine(t *testing.T) {
	got := oneLine(errors.New(strings.Repeat("é\n", 5000)))
	if strings.Contains(got, "\n") || len(got) > 1100 || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d bytes, %q…", len(got), got[:20])
	}
}
