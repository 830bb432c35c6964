// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// optional lists fields that Kubernetes' own type requires and these kinds do
// not: a template may leave its containers to a preset that is merged in later.
var optional = map[string][]string{
	"LLMInferenceService":       templateContainers,
	"LLMInferenceServiceConfig": templateContainers,
}

var templateContainers = []string{
	"spec.template.containers",
	"spec.worker.containers",
	"spec.prefill.template.containers",
	"spec.prefill.worker.containers",
	"spec.router.scheduler.template.containers",
}

// relax removes the fields of the table above from the required lists.
func relax(kind string, root *apiextensionsv1.JSONSchemaProps) {
	for _, path := range optional[kind] {
		names := strings.Split(path, ".")
		edit(root, names[:len(names)-1], func(s *apiextensionsv1.JSONSchemaProps) {
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == names[len(names)-1] })
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
