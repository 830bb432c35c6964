// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/manager"
)

// newScheme knows the types of every controller.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, admission.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// owners maps each definition, and each webhook on a kind that has no definition here, by its name to the domain that
// it is installed for.
func owners(all []manager.Domain, crds []*apiextensionsv1.CustomResourceDefinition) (map[string]string, error) {
	out := map[string]string{}
	for _, d := range all {
		for _, h := range d.Hooks {
			out[h.Webhook.Name] = d.Name
		}
	}
	for _, crd := range crds {
		i := slices.IndexFunc(all, func(d manager.Domain) bool {
			return slices.ContainsFunc(d.Admission, func(k admission.Kind) bool {
				return k.GVK.Group == crd.Spec.Group && k.GVK.Kind == crd.Spec.Names.Kind
			})
		})
		if i < 0 {
			return nil, fmt.Errorf("%s belongs to no domain", crd.Name)
		}
		out[crd.Name] = all[i].Name
	}
	return out, nil
}
