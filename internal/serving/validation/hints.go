// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
)

// readAnnotations are those of the group that somebody reads on a service.
var readAnnotations = []string{
	v1beta1.AnnotationDeploymentMode, v1beta1.AnnotationAutoscalerClass, v1beta1.AnnotationMetrics, v1beta1.AnnotationTargetUtilization,
	v1beta1.AnnotationStop, v1beta1.AnnotationEnableTagRouting, v1beta1.AnnotationDisableLocalModel, v1beta1.AnnotationNodeGroup,
	v1beta1.AnnotationGKEAccelerator, v1beta1.AnnotationEnableMetricAggregation, v1beta1.AnnotationEnablePrometheusScrape,
	v1beta1.AnnotationDisableAutoUpdate, v1beta1.AnnotationStorageSecretName, v1beta1.AnnotationStorageInitializerUID,
	v1beta1.AnnotationGPUResourceTypes, v1beta1.AnnotationLoggerSecretName, v1beta1.AnnotationLoggerSecretPath,
	v1beta1.AnnotationLoggerSecretFile, v1beta1.AnnotationServerType, v1beta1.AnnotationDRADeviceClass, v1beta1.AnnotationDRACELSelector,
	v1beta1.AnnotationDRADeviceCount, v1beta1.AnnotationDRAContainerName, v1beta1.AnnotationEnableServedByHeader,
	v1beta1.AnnotationInferencePoolMigrated, v1beta1.AnnotationModelBasedRouting,
}

// checkAnnotations warns of keys of the group that nobody reads. They are not refused: other tools may read them.
func (s *service) checkAnnotations() {
	for _, key := range slices.Sorted(maps.Keys(s.isvc.Annotations)) {
		name, ours := strings.CutPrefix(key, v1beta1.Group+"/")
		if !ours || slices.Contains(readAnnotations, key) || meshAnnotation(name) {
			continue
		}
		if strings.HasPrefix(name, "s3-") {
			s.Warn(annotations.Key(short(key)), "has no effect on a service; set it on the Secret with the credentials, or on the service account")
			continue
		}
		s.Warn(annotations.Key(short(key)), "nothing reads this annotation%s", didYouMean(name, ownNames()))
	}
}

// ownNames are the keys without what they share, which would make all of them look alike.
func ownNames() []string {
	var out []string
	for _, key := range readAnnotations {
		out = append(out, strings.TrimPrefix(key, v1beta1.Group+"/"))
	}
	return out
}

// meshAnnotation tells keys that services for ModelMesh have from its early days.
func meshAnnotation(name string) bool { return name == "secretKey" || name == "schemaPath" }

func didYouMean(name string, known []string) string {
	if near := admission.Nearest(name, slices.Values(known)); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// short keeps a name of the user from filling a warning, of which API servers show 256 characters.
func short(name string) string {
	const longest = 63
	if len(name) > longest {
		return strings.ToValidUTF8(name[:longest], "") + "…"
	}
	return name
}

// adviseModel warns of a model for which there is no runtime and of a server without a model. Neither is refused: the
// runtime may be applied after the service, and the models may come as TrainedModels.
func (s *service) adviseModel(ctx context.Context) {
	spec := &s.isvc.Spec.Predictor
	if s.mode == config.ModeModelMesh || trainedmodels.Block(spec) == nil {
		return
	}
	var offered []v1alpha1.SupportedModelFormat
	var names []string
	chosen := (*v1alpha1.ServingRuntimeSpec)(nil)
	for _, r := range runtimesInReach(ctx, s.isvc.Namespace) {
		if ptr.Deref(r.spec.Disabled, false) {
			continue
		}
		offered, names = append(offered, r.spec.SupportedModelFormats...), append(names, r.name)
		if spec.Model != nil && ptr.Deref(spec.Model.Runtime, "") == r.name {
			chosen = r.spec
		}
	}
	if trainedmodels.MultiModel(spec) && (chosen == nil || !ptr.Deref(chosen.MultiModel, false)) {
		s.Warn(field.NewPath("spec", "predictor"), "has no storageUri, so that the server starts without a model and waits for TrainedModels; "+
			"set storageUri if it is to serve one of its own")
	}
	if spec.Model != nil && len(names) > 0 {
		s.adviseRuntime(spec.Model, names, offered)
	}
}

func (s *service) adviseRuntime(model *v1beta1.ModelSpec, names []string, offered []v1alpha1.SupportedModelFormat) {
	at := field.NewPath("spec", "predictor", "model")
	if name := ptr.Deref(model.Runtime, ""); name != "" {
		if !slices.Contains(names, name) {
			s.Warn(at.Child("runtime"), "there is no runtime %q that is enabled%s", short(name), didYouMean(name, names))
		}
		return
	}
	var formats []string
	for _, f := range offered {
		formats = append(formats, f.Name)
	}
	if name := model.ModelFormat.Name; name != "" && !slices.Contains(formats, name) {
		s.Warn(at.Child("modelFormat", "name"), "no runtime that is enabled serves %q%s", short(name), didYouMean(name, formats))
	}
}

// runtimesInReach are those that a service of a namespace can use; none where they cannot be read.
func runtimesInReach(ctx context.Context, namespace string) []*runtimeView {
	reader := admission.ReaderFrom(ctx)
	if reader == nil {
		return nil
	}
	var own v1alpha1.ServingRuntimeList
	var shared v1alpha1.ClusterServingRuntimeList
	if reader.List(ctx, &own, client.InNamespace(namespace)) != nil || reader.List(ctx, &shared) != nil {
		return nil
	}
	var out []*runtimeView
	for i := range own.Items {
		out = append(out, viewRuntime(&own.Items[i]))
	}
	for i := range shared.Items {
		out = append(out, viewRuntime(&shared.Items[i]))
	}
	return out
}
