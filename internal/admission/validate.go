// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Validate checks an object against the schema and rules of its kind and
// returns the error that the API server would. With old it is an update, in
// which what was wrong before and did not change is let through.
func (s *Schemas) Validate(ctx context.Context, u, old *unstructured.Unstructured) error {
	kind, err := s.of(u)
	if err != nil {
		return err
	}
	var errs field.ErrorList
	if old == nil {
		u = kind.asRequest(u)
		errs = kind.validateNew(ctx, u)
	} else {
		u, old = kind.asUpdate(u, old)
		errs = kind.validateUpdate(ctx, u, old)
	}
	if len(errs) > 0 {
		inOrder(errs)
		return apierrors.NewInvalid(kind.gvk.GroupKind(), u.GetName(), errs)
	}
	return nil
}

// inOrder sorts errors by field, so that the same object always gets the same
// answer. The validators walk maps and report in any order. What is about no
// field stays last.
func inOrder(errs field.ErrorList) {
	whole := (*field.Path)(nil).String()
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		switch {
		case a.Field == b.Field:
			return 0
		case a.Field == whole:
			return 1
		case b.Field == whole:
			return -1
		default:
			return strings.Compare(a.Field, b.Field)
		}
	})
}

// asRequest gives a manifest the form it has when a request to create it is
// validated: in a namespace, with a name, without a status.
func (k *kindSchema) asRequest(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	if k.status {
		delete(u.Object, "status")
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + "xxxxx")
	}
	if k.namespaced && u.GetNamespace() == "" {
		u.SetNamespace("default")
	}
	return u
}

// asUpdate gives two manifests the form they have when the first is written over
// the second: what a manifest leaves out and a patch would keep is taken over.
func (k *kindSchema) asUpdate(u, old *unstructured.Unstructured) (*unstructured.Unstructured, *unstructured.Unstructured) {
	u, old = u.DeepCopy(), old.DeepCopy()
	if k.namespaced && old.GetNamespace() == "" {
		old.SetNamespace("default")
	}
	if old.GetResourceVersion() == "" {
		old.SetResourceVersion("1")
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(old.GetNamespace())
	}
	if u.GetUID() == "" {
		u.SetUID(old.GetUID())
	}
	if u.GetResourceVersion() == "" {
		u.SetResourceVersion(old.GetResourceVersion())
	}
	if created := u.GetCreationTimestamp(); created.IsZero() {
		u.SetCreationTimestamp(old.GetCreationTimestamp())
	}
	if k.status {
		delete(u.Object, "status")
		if status, ok := old.Object["status"]; ok {
			u.Object["status"] = status
		}
	}
	return u, old
}

func (k *kindSchema) validateNew(ctx context.Context, u *unstructured.Unstructured) field.ErrorList {
	errs := metavalidation.ValidateObjectMetaAccessor(u, k.namespaced, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, k.openAPI)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, k.structure, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structure, u.Object)...)
	return append(errs, k.validateRules(ctx, errs, u, nil)...)
}

func (k *kindSchema) validateUpdate(ctx context.Context, u, old *unstructured.Unstructured) field.ErrorList {
	pair := common.NewCorrelatedObject(u.Object, old.Object, &model.Structural{Structural: k.structure})
	errs := metavalidation.ValidateObjectMetaAccessorUpdate(u, old, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u.Object, old.Object, k.openAPI, validation.WithRatcheting(pair))...)
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, k.structure, false)...)
	if before := listtype.ValidateListSetsAndMaps(nil, k.structure, old.Object); len(before) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structure, u.Object)...)
	}
	return append(errs, k.validateRules(ctx, errs, u, old.Object, cel.WithRatcheting(pair))...)
}

// validateRules runs the CEL rules unless the object's shape is so wrong that
// they could not be trusted, and says so in that case.
func (k *kindSchema) validateRules(ctx context.Context, errs field.ErrorList, u *unstructured.Unstructured, old map[string]any, options ...cel.Option) field.ErrorList {
	if k.rules == nil {
		return nil
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return field.ErrorList{field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
		}
	}
	// An absent old object must be an untyped nil: the validator compares with nil.
	var before any
	if old != nil {
		before = old
	}
	found, _ := k.rules.Validate(ctx, nil, k.structure, u.Object, before, celconfig.RuntimeCELCostBudget, options...)
	return found
}
