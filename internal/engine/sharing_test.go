// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestADoubtThatComesWhileOthersAreSettled stays: what was abandoned meanwhile has
// not been looked at.
func TestADoubtThatComesWhileOthersAreSettled(t *testing.T) {
	s := newSharing()
	s.all = func(context.Context) ([]types.NamespacedName, error) { return nil, nil }
	who := types.NamespacedName{Namespace: "n", Name: "one"}
	doubts, idle := s.mayBeIdle()
	if !idle {
		t.Fatal("a process that just started cannot be sure")
	}
	s.plans(who, []childKey{blockerKey("a")})
	if abandoned, _ := s.plans(who, nil); len(abandoned) != 1 {
		t.Fatalf("abandoned: %v", abandoned)
	}
	s.settle(doubts) // of who had looked before
	doubts, idle = s.mayBeIdle()
	if !idle {
		t.Fatal("what was abandoned meanwhile is forgotten")
	}
	s.settle(doubts)
	if _, idle := s.mayBeIdle(); idle {
		t.Error("nothing is left to look into")
	}
}
