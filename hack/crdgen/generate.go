// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"

	"golang.org/x/tools/go/packages"
)

// generate parses the packages and returns the definitions of all kinds found
// in them, ordered by group and kind.
func generate(patterns []string) ([]apiextensionsv1.CustomResourceDefinition, error) {
	roots, err := loader.LoadRoots(patterns...)
	if err != nil {
		return nil, err
	}
	metav1 := crd.FindMetav1(roots)
	if metav1 == nil {
		return nil, errors.New("no package imports k8s.io/apimachinery/pkg/apis/meta/v1, so there is no kind to generate")
	}
	full, err := newParser(roots)
	if err != nil {
		return nil, err
	}
	kinds := ours(full, roots, crd.FindKubeKinds(full, metav1))
	needSchemas(full, kinds)
	ownWords(full)
	light, err := newParser(roots)
	if err != nil {
		return nil, err
	}
	needSchemas(light, kinds)
	ownWords(light)
	lighten(light)
	out := make([]apiextensionsv1.CustomResourceDefinition, 0, len(kinds))
	for _, k := range kinds {
		parser := full
		if lightKinds[k.Kind] {
			parser = light
		}
		parser.NeedCRDFor(k, nil)
		def := parser.CustomResourceDefinitions[k]
		finish(&def)
		out = append(out, def)
	}
	if loader.PrintErrors(roots, packages.TypeError) {
		return nil, errors.New("the API packages have errors, listed above")
	}
	return out, nil
}

// needSchemas makes the parser build the schemata of the kinds and of everything
// they refer to, without flattening them yet.
func needSchemas(parser *crd.Parser, kinds []schema.GroupKind) {
	for _, k := range kinds {
		for pkg, gv := range parser.GroupVersions {
			if ident := (crd.TypeIdent{Package: pkg, Name: k.Kind}); gv.Group == k.Group && parser.Types[ident] != nil {
				parser.NeedSchemaFor(ident)
			}
		}
	}
}

// ownWords drops the descriptions that come with types of other projects: their
// documentation is theirs to publish, and it would fill most of a definition.
func ownWords(parser *crd.Parser) {
	for ident, s := range parser.Schemata {
		if !strings.HasPrefix(ident.Package.PkgPath, "github.com/modelplane/modelplane/") {
			walk(&s, 0, func(s *apiextensionsv1.JSONSchemaProps, _ int) { s.Description = "" })
			parser.Schemata[ident] = s
		}
	}
}

func newParser(roots []*loader.Package) (*crd.Parser, error) {
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return nil, fmt.Errorf("register markers: %w", err)
	}
	parser := &crd.Parser{
		Collector: &markers.Collector{Registry: registry},
		Checker:   &loader.TypeChecker{NodeFilters: []loader.NodeFilter{crd.Generator{}.CheckFilter()}},
	}
	crd.AddKnownTypes(parser)
	for _, root := range roots {
		parser.NeedPackage(root)
	}
	return parser, nil
}

// ours keeps the kinds declared in the named packages: a type from a library
// that happens to look like a kind is not ours to define.
func ours(parser *crd.Parser, roots []*loader.Package, kinds []schema.GroupKind) []schema.GroupKind {
	declared := map[schema.GroupKind]bool{}
	for _, root := range roots {
		for ident := range parser.Types {
			if ident.Package == root {
				declared[schema.GroupKind{Group: parser.GroupVersions[root].Group, Kind: ident.Name}] = true
			}
		}
	}
	var out []schema.GroupKind
	for _, k := range kinds {
		if declared[k] {
			out = append(out, k)
		}
	}
	return out
}

// finish applies what no marker can say.
func finish(def *apiextensionsv1.CustomResourceDefinition) {
	crd.FixTopLevelMetadata(*def)
	def.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	for _, version := range def.Spec.Versions {
		amend(def.Spec.Group, def.Spec.Names.Kind, version.Schema.OpenAPIV3Schema)
	}
	if len(def.Spec.Versions) > 1 {
		def.Spec.Conversion = conversion()
	}
}

// conversion points a kind with several versions at the manager's conversion
// endpoint. Service and namespace are those of a default installation; the
// chart and the manager replace them with their own and add the certificate.
func conversion() *apiextensionsv1.CustomResourceConversion {
	path := "/convert"
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				Service: &apiextensionsv1.ServiceReference{Name: "modelplane-webhook", Namespace: "modelplane-system", Path: &path},
			},
		},
	}
}
