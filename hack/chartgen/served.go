// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
)

// domain is what the chart installs when one word is in its value "enable".
type domain struct {
	name        string
	kinds       []admission.Kind
	controllers []engine.Controller
}

// domains are those that the manager can be asked to serve. A domain names its controllers here and in cmd/modelplane.
func domains() ([]domain, error) {
	all := []domain{
		{name: admission.Serving},
		{name: admission.ModelMesh},
		{name: admission.ModelRegistry},
		{name: admission.MaaS},
		{name: admission.MLflow},
	}
	for i := range all {
		var err error
		if all[i].kinds, err = admission.Kinds(all[i].name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

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

// owners maps each definition, by its name, to the domain that it is installed for.
func owners(all []domain, crds []*apiextensionsv1.CustomResourceDefinition) (map[string]string, error) {
	out := map[string]string{}
	for _, crd := range crds {
		i := slices.IndexFunc(all, func(d domain) bool {
			return slices.ContainsFunc(d.kinds, func(k admission.Kind) bool {
				return k.GVK.Group == crd.Spec.Group && k.GVK.Kind == crd.Spec.Names.Kind
			})
		})
		if i < 0 {
			return nil, fmt.Errorf("%s belongs to no domain", crd.Name)
		}
		out[crd.Name] = all[i].name
	}
	return out, nil
}
