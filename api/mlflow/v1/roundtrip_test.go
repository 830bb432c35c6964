// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"testing"

	"github.com/modelplane/modelplane/api/internal/roundtrip"
	v1 "github.com/modelplane/modelplane/api/mlflow/v1"
)

func TestJSONLosesNothing(t *testing.T) {
	roundtrip.Kinds(t, v1.GroupVersion, v1.AddToScheme)
}
