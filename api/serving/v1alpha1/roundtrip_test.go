// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/modelplane/modelplane/api/serving/internal/wiretest"
	"github.com/modelplane/modelplane/api/serving/v1alpha1"
)

func TestNothingIsLostOverTheWire(t *testing.T) {
	wiretest.Kinds(t, v1alpha1.GroupVersion, v1alpha1.AddToScheme,
		"ServingRuntime", "ClusterServingRuntime", "InferenceGraph", "TrainedModel", "ClusterStorageContainer",
		"LocalModelCache", "LocalModelNamespaceCache", "LocalModelNode", "LocalModelNodeGroup", "Predictor",
		"LLMInferenceService", "LLMInferenceServiceConfig")
}
