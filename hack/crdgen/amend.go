// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// amend says of a kind's schema what its Go types cannot, because they share
// types with places where it does not hold.
func amend(group, kind string, root *apiextensionsv1.JSONSchemaProps) {
	if group == "serving.kserve.io" {
		relaxProbes(root)
	}
	relaxTemplates(kind, root)
	if levels, ok := open[kind]; ok && group == "serving.kserve.io" {
		edit(root, []string{"spec"}, func(spec *apiextensionsv1.JSONSchemaProps) { keepUnknown(spec, levels) })
	}
	for _, path := range required[kind] {
		last := len(path) - 1
		edit(root, path[:last], func(s *apiextensionsv1.JSONSchemaProps) {
			s.Required = append(s.Required, path[last])
			slices.Sort(s.Required)
			s.Required = slices.Compact(s.Required)
		})
	}
}

// open are the kinds that people write most, and many with clients that do not ask for fields to be validated. What the API
// server drops for such a client nobody sees; what it keeps, admission refuses with the name that was meant. How many levels
// below the spec are open depends on what fits.
var open = map[string]int{
	"ClusterServingRuntime": all, "ClusterStorageContainer": all, "InferenceGraph": all, "InferenceService": 3, "ServingRuntime": all, "TrainedModel": all,
}

const all = math.MaxInt

// keepUnknown lets everything that has named fields have others, for admission to judge.
func keepUnknown(spec *apiextensionsv1.JSONSchemaProps, levels int) {
	walk(spec, 0, func(s *apiextensionsv1.JSONSchemaProps, depth int) {
		if s.Type == "object" && len(s.Properties) > 0 && depth <= levels {
			s.XPreserveUnknownFields = new(true)
		}
	})
}

// required are fields that are optional elsewhere: a template may leave its
// containers to a preset, but there is no preset for a tokenizer.
var required = map[string][][]string{
	"LLMInferenceService":       {tokenizerContainers},
	"LLMInferenceServiceConfig": {tokenizerContainers},
}

var tokenizerContainers = []string{"spec", "router", "scheduler", "tokenizer", "template", "containers"}

// relaxProbes lets a probe leave out its port, which Kubernetes' own type
// requires: a serving container has one port that is filled in later, and
// manifests rely on it.
func relaxProbes(root *apiextensionsv1.JSONSchemaProps) {
	walk(root, 0, func(s *apiextensionsv1.JSONSchemaProps, _ int) {
		for _, handler := range []string{"httpGet", "tcpSocket"} {
			if prop, ok := s.Properties[handler]; ok {
				prop.Required = nil
				s.Properties[handler] = prop
			}
		}
	})
}

// templated are the parts of a config whose strings may be templates, such as
// {{ .Name }}, that are rendered when the config is used. What a rendered value
// must look like is checked where it is rendered.
var templated = map[string][][]string{
	"LLMInferenceServiceConfig": {
		{"spec", "router", "route", "http", "spec"},
		{"spec", "router", "scheduler", "pool", "spec"},
	},
}

// relaxTemplates removes from templated parts the bounds that a template would
// not keep.
func relaxTemplates(kind string, root *apiextensionsv1.JSONSchemaProps) {
	for _, path := range templated[kind] {
		edit(root, path, func(part *apiextensionsv1.JSONSchemaProps) {
			walk(part, 0, func(s *apiextensionsv1.JSONSchemaProps, _ int) {
				s.Pattern, s.MinLength, s.MinItems = "", nil, nil
			})
		})
	}
}

// edit applies change to the schema under the named properties, if it exists.
func edit(s *apiextensionsv1.JSONSchemaProps, names []string, change func(*apiextensionsv1.JSONSchemaProps)) {
	if len(names) == 0 {
		change(s)
		return
	}
	child, ok := s.Properties[names[0]]
	if !ok {
		return
	}
	edit(&child, names[1:], change)
	s.Properties[names[0]] = child
}
