// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"github.com/modelplane/modelplane/api/internal/roundtrip"
	v1beta1 "github.com/modelplane/modelplane/api/modelregistry/v1beta1"
)

func TestJSONLosesNothing(t *testing.T) {
	roundtrip.Kinds(t, v1beta1.GroupVersion, v1beta1.AddToScheme)
}
