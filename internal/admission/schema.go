// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/modelplane/modelplane/charts"
)

// Schemas runs the API server's own defaulting and validation for a set of
// definitions. It is safe for concurrent use; a kind is prepared when it is
// first asked for, because compiling the rules of all of them takes a while.
type Schemas struct {
	kinds map[schema.GroupVersionKind]func() (*kindSchema, error)
}

// kindSchema is one version of one kind, prepared as the API server prepares it.
type kindSchema struct {
	gvk        schema.GroupVersionKind
	namespaced bool
	// status is true when status is a subresource, which a write to the object
	// itself cannot set.
	status    bool
	structure *structural.Structural
	openAPI   validation.SchemaValidator
	rules     *cel.Validator
}

// Embedded returns the schemas of the definitions this binary was built with.
var Embedded = sync.OnceValues(func() (*Schemas, error) {
	defs, err := charts.CRDs()
	if err != nil {
		return nil, fmt.Errorf("read the embedded definitions: %w", err)
	}
	return NewSchemas(defs...), nil
})

// NewSchemas makes the schemas of the given definitions available.
func NewSchemas(defs ...*apiextensionsv1.CustomResourceDefinition) *Schemas {
	s := &Schemas{kinds: map[schema.GroupVersionKind]func() (*kindSchema, error){}}
	for _, def := range defs {
		for _, version := range def.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: def.Spec.Group, Version: version.Name, Kind: def.Spec.Names.Kind}
			s.kinds[gvk] = sync.OnceValues(func() (*kindSchema, error) { return prepare(gvk, def, version) })
		}
	}
	return s
}

// Has reports whether the kind is one of ours.
func (s *Schemas) Has(gvk schema.GroupVersionKind) bool {
	_, ok := s.kinds[gvk]
	return ok
}

func prepare(gvk schema.GroupVersionKind, def *apiextensionsv1.CustomResourceDefinition, version apiextensionsv1.CustomResourceDefinitionVersion) (*kindSchema, error) {
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, internal, nil); err != nil {
		return nil, fmt.Errorf("definition of %s: %w", gvk, err)
	}
	structure, err := structural.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("definition of %s: %w", gvk, err)
	}
	structure = structure.DeepCopy()
	if err := defaulting.PruneDefaults(structure); err != nil {
		return nil, fmt.Errorf("defaults of %s: %w", gvk, err)
	}
	openAPI, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("definition of %s: %w", gvk, err)
	}
	return &kindSchema{
		gvk:        gvk,
		namespaced: def.Spec.Scope == apiextensionsv1.NamespaceScoped,
		status:     version.Subresources != nil && version.Subresources.Status != nil,
		structure:  structure,
		openAPI:    openAPI,
		rules:      cel.NewValidator(structure, true, celconfig.PerCallLimit),
	}, nil
}

// of returns the schema of an object's kind.
func (s *Schemas) of(u *unstructured.Unstructured) (*kindSchema, error) {
	gvk := u.GroupVersionKind()
	kind, ok := s.kinds[gvk]
	if !ok {
		return nil, fmt.Errorf("no kind %q is registered for version %q; check apiVersion and kind", gvk.Kind, gvk.GroupVersion())
	}
	return kind()
}

// Default fills in the defaults of the schema, as the API server does when it
// reads an object. A null where none is allowed counts as not set.
func (s *Schemas) Default(u *unstructured.Unstructured) error {
	kind, err := s.of(u)
	if err != nil {
		return err
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, kind.structure)
	defaulting.Default(u.Object, kind.structure)
	return nil
}

// Unknown returns the paths of the fields that the schema does not have and the
// API server would therefore drop. The object stays as it is.
func (s *Schemas) Unknown(u *unstructured.Unstructured) ([]string, error) {
	kind, err := s.of(u)
	if err != nil {
		return nil, err
	}
	_, _, paths, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	scratch := runtime.DeepCopyJSON(u.Object)
	track := structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	return append(paths, pruning.PruneWithOptions(scratch, kind.structure, true, track)...), nil
}

// Admit does with an object what the API server does before any webhook sees it:
// it refuses unknown fields, fills in defaults and validates. Pass the stored
// object as old for an update. The error is the one that a client would get.
func (s *Schemas) Admit(ctx context.Context, u, old *unstructured.Unstructured) error {
	if err := s.Prepare(u); err != nil {
		return err
	}
	return s.Validate(ctx, u, old)
}

// Prepare is the part of Admit that comes before any mutating webhook: unknown
// fields are refused, defaults filled in.
func (s *Schemas) Prepare(u *unstructured.Unstructured) error {
	if _, err := s.of(u); err != nil {
		return err
	}
	unknown, err := s.Unknown(u)
	if err == nil {
		err = unknownFields(unknown)
	}
	if err != nil {
		return undecodable(u.GroupVersionKind(), err)
	}
	return s.Default(u)
}

func unknownFields(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	problems := make([]error, 0, len(paths))
	for _, p := range paths {
		problems = append(problems, fmt.Errorf("unknown field %q", p))
	}
	return runtime.NewStrictDecodingError(problems)
}

// undecodable words the refusal as the API server does.
func undecodable(gvk schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, gvk.Kind, err))
}
