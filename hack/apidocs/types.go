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

const ourModule = "github.com/modelplane/modelplane/"

// goTypes are the types under api/ with what they refer to, before they are flattened to one schema per kind: a field
// still says which type it has, and a struct still has its fields in order.
type goTypes struct{ parser *crd.Parser }

func loadTypes(patterns ...string) (*goTypes, error) {
	roots, err := loader.LoadRoots(patterns...)
	if err != nil {
		return nil, err
	}
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return nil, err
	}
	parser := &crd.Parser{
		Collector: &markers.Collector{Registry: registry},
		Checker:   &loader.TypeChecker{NodeFilters: []loader.NodeFilter{crd.Generator{}.CheckFilter()}},
	}
	crd.AddKnownTypes(parser)
	for _, root := range roots {
		parser.NeedPackage(root)
	}
	if loader.PrintErrors(roots, packages.TypeError) {
		return nil, errors.New("the API packages have errors, listed above")
	}
	return &goTypes{parser: parser}, nil
}

// kind returns the Go type of a kind in a version.
func (g *goTypes) kind(gvk schema.GroupVersionKind) (crd.TypeIdent, error) {
	for pkg, gv := range g.parser.GroupVersions {
		ident := crd.TypeIdent{Package: pkg, Name: gvk.Kind}
		if gv == gvk.GroupVersion() && g.parser.Types[ident] != nil {
			g.parser.NeedSchemaFor(ident)
			return ident, nil
		}
	}
	return crd.TypeIdent{}, fmt.Errorf("there is no Go type for %s", gvk)
}

// field is one field of a struct. Its name is empty when the struct of another type is part of this one.
type field struct {
	name   string
	schema apiextensionsv1.JSONSchemaProps
	pkg    *loader.Package
}

// fields returns the fields of a struct in the order in which they are declared. A struct that is no object on the
// wire, such as a time, has none.
func (g *goTypes) fields(ident crd.TypeIdent) []field {
	info, own := g.parser.Types[ident], g.parser.Schemata[ident]
	if info == nil || len(own.Properties)+len(own.AllOf) == 0 {
		return nil
	}
	var out []field
	inlined := 0
	for _, f := range info.Fields {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch name {
		case "-":
		case "":
			out = append(out, field{schema: own.AllOf[inlined], pkg: ident.Package})
			inlined++
		default:
			out = append(out, field{name: name, schema: own.Properties[name], pkg: ident.Package})
		}
	}
	return out
}

// names lists the fields of a struct, those of structs that are part of it included.
func (g *goTypes) names(ident crd.TypeIdent) []string {
	var out []string
	for _, f := range g.fields(ident) {
		if f.name != "" {
			out = append(out, f.name)
		} else if inner, ok := g.referred(f.pkg, &f.schema); ok {
			out = append(out, g.names(inner)...)
		}
	}
	return out
}

// referred returns the named type that a schema stands for.
func (g *goTypes) referred(pkg *loader.Package, s *apiextensionsv1.JSONSchemaProps) (crd.TypeIdent, bool) {
	if s == nil || s.Ref == nil {
		return crd.TypeIdent{}, false
	}
	name, path, err := crd.RefParts(*s.Ref)
	if err != nil {
		return crd.TypeIdent{}, false
	}
	if path != "" {
		pkg = pkg.Imports()[path]
	}
	ident := crd.TypeIdent{Package: pkg, Name: name}
	_, known := g.parser.Schemata[ident]
	return ident, pkg != nil && known
}

// mirrored are types of ours that have the fields of a Kubernetes type.
var mirrored = map[string]string{
	"api/serving/v1beta1.PodSpec":   "core/v1 PodSpec",
	"api/serving/v1beta1.Container": "core/v1 Container",
	"api/serving/v1alpha2.PodSpec":  "core/v1 PodSpec",
}

// foreign names a type that is not ours to describe, as people know it: group, version and name.
func foreign(ident crd.TypeIdent) (string, bool) {
	path := loader.NonVendorPath(ident.Package.PkgPath)
	if own, ok := strings.CutPrefix(path, ourModule); ok {
		name, ok := mirrored[own+"."+ident.Name]
		return name, ok
	}
	parts := strings.Split(path, "/")
	if strings.HasPrefix(path, "k8s.io/") {
		return strings.Join(parts[max(0, len(parts)-2):], "/") + " " + ident.Name, true
	}
	// sigs.k8s.io/gateway-api/apis/v1 and its like: the project says more than the folder.
	return parts[min(1, len(parts)-1)] + " " + parts[len(parts)-1] + " " + ident.Name, true
}
