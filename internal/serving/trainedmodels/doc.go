// SPDX-License-Identifier: Apache-2.0

// Package trainedmodels looks after TrainedModels: models that are handed to an
// InferenceService whose server takes several. It also holds the rules about
// such servers, and about where a service answers for a model.
//
// A TrainedModel has no children. The list that the server reads belongs to the
// InferenceService, which takes from Fit what goes into it; a TrainedModel tells
// whether it is among them and where it is reached. The package decides; reading
// and writing the cluster is the engine's.
package trainedmodels
