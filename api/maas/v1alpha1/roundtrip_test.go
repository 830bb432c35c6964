// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/modelplane/modelplane/api/internal/roundtrip"
	v1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
)

func TestJSONLosesNothing(t *testing.T) {
	roundtrip.Kinds(t, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
}
