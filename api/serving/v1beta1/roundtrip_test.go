// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"github.com/modelplane/modelplane/api/serving/internal/wiretest"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

func TestNothingIsLostOverTheWire(t *testing.T) {
	wiretest.Kinds(t, v1beta1.GroupVersion, v1beta1.AddToScheme, "InferenceService")
}
