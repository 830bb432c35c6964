// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	v1alpha1 "github.com/modelplane/modelplane/api/components/v1alpha1"
	"github.com/modelplane/modelplane/api/internal/roundtrip"
)

func TestJSONLosesNothing(t *testing.T) {
	roundtrip.Kinds(t, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
}
