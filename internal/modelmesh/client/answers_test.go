// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// TestAnswersThatNoLongerHold: whatever takes an answer away makes the next question another one, so that it is asked; and an
// answer to a question that was withdrawn does not take the place of a newer one.
func TestAnswersThatNoLongerHold(t *testing.T) {
	c, of := New(), types.NamespacedName{Namespace: "models", Name: "one"}
	w := who{of, model.FromPredictor}
	said := func(id string) Answer { return Answer{ID: id, Status: &wire.VModelStatusInfo{}} }
	if err := c.note(t.Context(), w, said("first")); err != nil {
		t.Fatal(err)
	}
	first, asked := c.Last(model.FromPredictor, of)
	if !asked || first.Number == 0 {
		t.Fatalf("an answer is not kept: %+v, %v", first, asked)
	}
	c.lost(w)
	gone, asked := c.Last(model.FromPredictor, of)
	if asked || gone.Number == first.Number || gone.Number == 0 {
		t.Errorf("after the mesh forgot the model: %+v, asked %v; want another number and no answer", gone, asked)
	}
	if err := c.note(t.Context(), w, said("second")); err != nil {
		t.Fatal(err)
	}
	withdrawn, withdraw := context.WithCancel(t.Context())
	withdraw()
	if c.note(withdrawn, w, said("late")) == nil {
		t.Error("a withdrawn question was answered")
	}
	if last, _ := c.Last(model.FromPredictor, of); last.ID != "second" {
		t.Errorf("the last answer is %q, want the second", last.ID)
	}
	c.forget(w)
	if len(c.answers) != 0 {
		t.Error("something is kept of an object that is no more")
	}
}
