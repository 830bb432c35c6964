// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/loader"
)

// lightKinds are the kinds that hold so many pod templates that their definition
// would not fit otherwise. All others are written out, so that the API server
// itself knows every field of theirs.
var lightKinds = map[string]bool{
	"InferenceService":          true,
	"LLMInferenceService":       true,
	"LLMInferenceServiceConfig": true,
}

// lightFields are the properties whose inside is Kubernetes' own API. When such
// a property refers to a type of k8s.io/api it is written without its inside;
// admission decodes it strictly instead, so nothing in it goes unchecked.
var lightFields = map[string]bool{
	"affinity": true, "containers": true, "dnsConfig": true, "env": true, "envFrom": true,
	"ephemeralContainers": true, "hostAliases": true, "imagePullSecrets": true, "initContainers": true,
	"lifecycle": true, "livenessProbe": true, "os": true, "overhead": true, "persistentVolumeClaim": true,
	"podSecurityContext": true, "ports": true, "readinessGates": true, "readinessProbe": true,
	"resizePolicy": true, "resourceClaims": true, "resources": true, "schedulingGates": true,
	"securityContext": true, "startupProbe": true, "tolerations": true, "topologySpreadConstraints": true,
	"volumeDevices": true, "volumeMounts": true, "volumes": true,
}

const kubernetesTypes = "k8s.io/api/"

// lighten replaces the light properties in the parser's unflattened schemata.
// Working there, where a property still refers to its type by name, makes the
// replacement exact: embedded structs are untouched, as are properties of the
// same name that have a type of our own.
func lighten(parser *crd.Parser) {
	for ident, schema := range parser.Schemata {
		for name, prop := range schema.Properties {
			if !lightFields[name] {
				continue
			}
			if light, ok := lightFor(parser, ident.Package, prop); ok {
				schema.Properties[name] = light
			}
		}
	}
}

// lightFor returns the light form of a property, or false when the property
// does not refer to a Kubernetes type.
func lightFor(parser *crd.Parser, pkg *loader.Package, prop apiextensionsv1.JSONSchemaProps) (apiextensionsv1.JSONSchemaProps, bool) {
	if prop.Type == "array" {
		item, ok := referred(parser, pkg, prop.Items.Schema)
		if !ok {
			return prop, false
		}
		light := *prop.DeepCopy()
		light.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: lightItem(parser, item, prop.XListMapKeys)}
		return light, true
	}
	if _, ok := referred(parser, pkg, &prop); !ok {
		return prop, false
	}
	light := *prop.DeepCopy()
	light.Ref = nil
	light.Type = "object"
	light.XPreserveUnknownFields = new(true)
	return light, true
}

// lightItem keeps of a list's item what the API server needs to merge the list
// (its map keys, each required or with a default) and what is cheap to check
// there (its required fields).
func lightItem(parser *crd.Parser, item crd.TypeIdent, keys []string) *apiextensionsv1.JSONSchemaProps {
	light := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	keyProps := map[string]apiextensionsv1.JSONSchemaProps{}
	eachPart(parser, item, func(pkg *loader.Package, part apiextensionsv1.JSONSchemaProps) {
		light.Required = append(light.Required, part.Required...)
		for _, key := range keys {
			if prop, ok := part.Properties[key]; ok {
				keyProps[key] = apiextensionsv1.JSONSchemaProps{
					Type: scalarType(parser, pkg, prop), Format: prop.Format, Default: prop.Default,
				}
			}
		}
	})
	for key, prop := range keyProps {
		if prop.Default == nil {
			light.Required = append(light.Required, key)
		}
	}
	if len(keyProps) > 0 {
		light.Properties = keyProps
	}
	slices.Sort(light.Required)
	light.Required = slices.Compact(light.Required)
	return light
}

// eachPart visits the schema of a struct and of the structs embedded in it.
func eachPart(parser *crd.Parser, ident crd.TypeIdent, visit func(*loader.Package, apiextensionsv1.JSONSchemaProps)) {
	full := parser.Schemata[ident]
	visit(ident.Package, full)
	for _, embedded := range full.AllOf {
		if inner, ok := referred(parser, ident.Package, &embedded); ok {
			eachPart(parser, inner, visit)
		}
	}
}

// scalarType follows a key such as Protocol, a named string, to its basic type.
func scalarType(parser *crd.Parser, pkg *loader.Package, prop apiextensionsv1.JSONSchemaProps) string {
	if prop.Type != "" {
		return prop.Type
	}
	if ident, ok := referred(parser, pkg, &prop); ok {
		return parser.Schemata[ident].Type
	}
	return "string"
}

// referred resolves a reference to a type of k8s.io/api.
func referred(parser *crd.Parser, pkg *loader.Package, prop *apiextensionsv1.JSONSchemaProps) (crd.TypeIdent, bool) {
	if prop.Ref == nil {
		return crd.TypeIdent{}, false
	}
	name, path, err := crd.RefParts(*prop.Ref)
	if err != nil {
		return crd.TypeIdent{}, false
	}
	if path != "" {
		pkg = pkg.Imports()[path]
	}
	if pkg == nil || !strings.HasPrefix(loader.NonVendorPath(pkg.PkgPath), kubernetesTypes) {
		return crd.TypeIdent{}, false
	}
	ident := crd.TypeIdent{Package: pkg, Name: name}
	_, known := parser.Schemata[ident]
	return ident, known
}
