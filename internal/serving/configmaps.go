// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
)

// The copy of the certificates that models are fetched with.
const (
	bundleName = "global-ca-bundle"
	bundleKey  = "cabundle.crt"
)

// configMaps begins a plan with what pods read in every mode: it stays while a service is stopped.
func configMaps(isvc *v1beta1.InferenceService, seen *observed.State) engine.Plan {
	var plan engine.Plan
	if trainedmodels.MultiModel(&isvc.Spec.Predictor) && seen.Mode != config.ModeModelMesh {
		plan.Children = append(plan.Children, engine.Child{Object: modelConfig(isvc, seen)})
	}
	source := seen.Config.StorageInitializer.CABundleConfigMapName
	if source == "" || seen.ConfigNamespace == isvc.Namespace {
		return plan
	}
	if seen.CABundle == nil {
		plan.Problem = engine.WaitFor("CABundleMissing",
			"ConfigMap %s/%s with key %s does not exist, but the platform's configuration (storageInitializer.caBundleConfigMapName) names it. Create it.",
			seen.ConfigNamespace, source, bundleKey)
		return plan
	}
	// One that was there before us may hold more than ours, so that it is never removed.
	plan.Children = append(plan.Children, engine.Child{Shared: true, Adopt: true, Retain: true, Object: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: bundleName, Namespace: isvc.Namespace},
		Data:       map[string]string{bundleKey: *seen.CABundle},
	}})
	return plan
}

// modelEntry is one model in the list that the agent reads.
type modelEntry struct {
	Name string                      `json:"modelName"`
	Spec v1alpha1.TrainedModelSource `json:"modelSpec"`
}

// modelConfig lists the TrainedModels that have room in a server that takes
// several.
func modelConfig(isvc *v1beta1.InferenceService, seen *observed.State) *corev1.ConfigMap {
	entries := []modelEntry{}
	fits, _ := trainedmodels.Fit(seen.Models, trainedmodels.MemoryLimit(isvc))
	for i := range fits {
		entries = append(entries, modelEntry{Name: fits[i].Name, Spec: fits[i].Spec.Model})
	}
	slices.SortFunc(entries, func(a, b modelEntry) int { return strings.Compare(a.Name, b.Name) })
	list, err := json.Marshal(entries)
	if err != nil {
		list = []byte("[]") // strings and a quantity always encode
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: resolve.ModelConfigName(isvc), Namespace: isvc.Namespace},
		Data:       map[string]string{"models.json": string(list)},
	}
}
