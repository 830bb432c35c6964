// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type trimmer func(*apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition

// trims lists ever harder ways to shorten the descriptions: all of them, first
// sentences only, then without the deepest level, the two deepest, and so on.
func trims(def *apiextensionsv1.CustomResourceDefinition) []trimmer {
	deepest := 0
	each(def.DeepCopy(), func(_ *apiextensionsv1.JSONSchemaProps, depth int) { deepest = max(deepest, depth) })
	out := []trimmer{
		func(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition { return d },
	}
	for limit := deepest; limit >= -1; limit-- {
		out = append(out, func(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
			short := d.DeepCopy()
			each(short, func(s *apiextensionsv1.JSONSchemaProps, depth int) {
				if depth > limit {
					s.Description = ""
					return
				}
				s.Description = firstSentence(s.Description)
			})
			return short
		})
	}
	return out
}

// firstSentence cuts a description after its first sentence or paragraph.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	for i, r := range text {
		if r != '.' || i+2 >= len(text) || text[i+1] != ' ' {
			continue
		}
		if next := text[i+2]; next >= 'A' && next <= 'Z' {
			return text[:i+1]
		}
	}
	return text
}

// each visits every schema of every version with its depth below the root.
func each(def *apiextensionsv1.CustomResourceDefinition, visit func(*apiextensionsv1.JSONSchemaProps, int)) {
	for _, v := range def.Spec.Versions {
		walk(v.Schema.OpenAPIV3Schema, 0, visit)
	}
}

func walk(s *apiextensionsv1.JSONSchemaProps, depth int, visit func(*apiextensionsv1.JSONSchemaProps, int)) {
	visit(s, depth)
	for name, prop := range s.Properties {
		walk(&prop, depth+1, visit)
		s.Properties[name] = prop
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(s.Items.Schema, depth, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		walk(s.AdditionalProperties.Schema, depth, visit)
	}
}
