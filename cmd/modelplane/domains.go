// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/manager"
)

// domains is the one list of the rooms that the manager can serve. Every domain registers all types: they share groups,
// and conversion is served for all of them.
func domains() []manager.Domain {
	return []manager.Domain{
		{Name: admission.Serving, AddToScheme: admission.AddToScheme},
		{Name: admission.ModelMesh, AddToScheme: admission.AddToScheme},
		{Name: admission.ModelRegistry, AddToScheme: admission.AddToScheme},
		{Name: admission.MaaS, AddToScheme: admission.AddToScheme},
		{Name: admission.MLflow, AddToScheme: admission.AddToScheme},
	}
}

// withKinds adds the kinds whose admission is served. It reads the definitions, which takes a moment; a person who
// asks for help need not wait for it.
func withKinds(selected []manager.Domain) ([]manager.Domain, error) {
	for i := range selected {
		kinds, err := admission.Kinds(selected[i].Name)
		if err != nil {
			return nil, err
		}
		selected[i].Admission = kinds
	}
	return selected, nil
}
