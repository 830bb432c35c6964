// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/manager"
)

// owners maps each definition, and each webhook on a kind of others, by its name to the domain that it is installed for.
func owners(all []manager.Domain, crds []*apiextensionsv1.CustomResourceDefinition) (map[string]string, error) {
	out := map[string]string{}
	for _, d := range all {
		for _, h := range d.Hooks {
			out[h.Webhook.Name] = d.Name
		}
		for _, g := range d.Guards {
			out[g.Name] = d.Name
		}
	}
	for _, crd := range crds {
		var names []string
		for _, d := range all {
			if slices.ContainsFunc(d.Admission, func(k admission.Kind) bool {
				return k.GVK.Group == crd.Spec.Group && k.GVK.Kind == crd.Spec.Names.Kind
			}) {
				names = append(names, d.Name)
			}
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("%s belongs to no domain", crd.Name)
		}
		out[crd.Name] = strings.Join(names, ",")
	}
	return out, nil
}
