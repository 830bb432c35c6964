// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestOutOfSight: what we may not look at is not found, and can be told from what is not there.
func TestOutOfSight(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "one")
	hidden := fmt.Errorf("read: %w", outOfSight{missing})
	if !apierrors.IsNotFound(hidden) || !OutOfSight(hidden) {
		t.Errorf("%v: not found %v, out of sight %v", hidden, apierrors.IsNotFound(hidden), OutOfSight(hidden))
	}
	if OutOfSight(missing) || OutOfSight(nil) {
		t.Error("what is not there counts as out of sight")
	}
}
