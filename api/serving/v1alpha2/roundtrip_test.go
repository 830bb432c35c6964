// SPDX-License-Identifier: Apache-2.0

package v1alpha2_test

import (
	"testing"

	"github.com/modelplane/modelplane/api/serving/internal/wiretest"
	"github.com/modelplane/modelplane/api/serving/v1alpha2"
)

func TestNothingIsLostOverTheWire(t *testing.T) {
	wiretest.Kinds(t, v1alpha2.GroupVersion, v1alpha2.AddToScheme, "LLMInferenceService", "LLMInferenceServiceConfig")
}
