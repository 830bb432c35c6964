// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"reflect"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// service is an InferenceService under examination.
type service struct {
	*report
	isvc *v1beta1.InferenceService
	cfg  *config.Config
	// recorded is the mode it has, mode the one it will have.
	recorded, mode string
	parts          []*part
	// fresh is true for a service that is being created.
	fresh bool
}

// validateService refuses what cannot work, or would work otherwise than it
// says.
func (r Rules) validateService(ctx context.Context, old, obj client.Object) ([]string, error) {
	cfg, err := r.config(ctx)
	if err != nil {
		return nil, err
	}
	isvc := obj.(*v1beta1.InferenceService)
	before, _ := old.(*v1beta1.InferenceService)
	recorded := recordedMode(ctx, isvc)
	if before != nil {
		recorded = translated(before.Status.DeploymentMode)
	}
	looked := look(isvc, recorded, cfg, before == nil)
	looked.adviseModel(ctx)
	found := looked.report
	var had []claim
	if before != nil {
		// The stored object may be older than our defaults.
		before = before.DeepCopy()
		fill(before, recorded, cfg)
		found = found.Since(examine(before, recorded, cfg, false))
		found.Refuse(renamed(before, isvc)...)
		had = claims(before, looked.mode, cfg)
	}
	found.Refuse(clashes(ctx, isvc, claims(isvc, looked.mode, cfg), had, cfg)...)
	return found.Result()
}

func examine(isvc *v1beta1.InferenceService, recorded string, cfg *config.Config, fresh bool) *report {
	return look(isvc, recorded, cfg, fresh).report
}

func look(isvc *v1beta1.InferenceService, recorded string, cfg *config.Config, fresh bool) *service {
	s := &service{report: &report{}, isvc: isvc, cfg: cfg, recorded: recorded, fresh: fresh,
		mode: modeOf(isvc, recorded, cfg), parts: partsOf(isvc)}
	s.checkMode()
	s.checkName()
	s.checkClass()
	s.checkIngress()
	for _, p := range s.parts {
		s.checkImplementation(p)
		s.checkEnv(p)
		s.checkBlocks(p)
		s.checkStorage(p)
		s.checkBounds(p)
		s.checkLogger(p)
		s.checkScaling(p)
		s.checkFields(p)
	}
	s.checkWorkers()
	s.checkCanaries()
	s.checkAnnotations()
	return s
}

// nameFormat is what hosts and the names of children allow.
const nameFormat = "[a-z]([-a-z0-9]*[a-z0-9])?"

var nameRegexp = regexp.MustCompile("^" + nameFormat + "$")

// checkName refuses names that no child could carry.
func (s *service) checkName() {
	name, path := s.isvc.Name, field.NewPath("metadata", "name")
	if name == "" && s.isvc.GenerateName != "" {
		name, path = s.isvc.GenerateName+"xxxxx", field.NewPath("metadata", "generateName")
	}
	if !nameRegexp.MatchString(name) {
		s.Refuse(field.Invalid(path, name, fmt.Sprintf("a name must consist of lower case alphanumeric characters or '-', must start "+
			"with a letter and end with a letter or digit (for example my-model; regex used for validation is '%s')", nameFormat)))
		return
	}
	s.checkLength(name, path)
}

// checkLength refuses a name that is too long for a child. In Standard mode the
// longest use of it is in the label app.
func (s *service) checkLength(name string, path *field.Path) {
	prefix := ""
	if s.mode == config.ModeStandard {
		prefix = "isvc."
	}
	for _, p := range s.parts {
		if s.mode == config.ModeModelMesh && p.predictor != nil {
			continue // has no child
		}
		child := prefix + name + "-"
		if p.predictor != nil && p.predictor.Name != "" {
			child += p.predictor.Name + "-"
		}
		child += string(p.of)
		if over := len(child) - validation.LabelValueMaxLength; over > 0 {
			s.Refuse(field.Invalid(path, name, fmt.Sprintf("too long: the %s would go by %q, and Kubernetes allows no more than %d "+
				"characters; choose a name of at most %d", p.of, child, validation.LabelValueMaxLength, len(name)-over)))
			return
		}
	}
}

// renamed refuses another name for the predictor without another model: the old
// Deployment would go and the same would start under a new name, for nothing.
func renamed(old, isvc *v1beta1.InferenceService) field.ErrorList {
	before, after := &old.Spec.Predictor, &isvc.Spec.Predictor
	if before.Name == after.Name || !reflect.DeepEqual(modelOf(before), modelOf(after)) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "predictor", "name"), fmt.Sprintf("cannot be changed from %q to %q "+
		"while the storage URI of the model stays the same; set the name back, or change the model with it", before.Name, after.Name))}
}

// source is what tells one model from another.
type source struct {
	uri     string
	uris    []v1beta1.StorageUri
	storage []*v1beta1.ModelStorageSpec
}

func modelOf(p *v1beta1.PredictorSpec) source {
	part := predictorPart(nil, p, false)
	out := source{uris: p.StorageUris}
	out.uri, _ = part.storageURI()
	for _, b := range part.blocks() {
		out.storage = append(out.storage, b.Storage)
	}
	return out
}
