// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 is the wire form of ModelRegistry, in the version that is stored and that conversion goes through.
//
// It holds shapes, markers and nothing else: no defaults in code, no clients, no imports of the rest of the project.
//
// +kubebuilder:object:generate=true
// +groupName=modelregistry.opendatahub.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "modelregistry.opendatahub.io", Version: "v1beta1"}

	// SchemeBuilder collects what AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme makes a scheme know the kinds of this package.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource puts a resource name of this group into the form that API errors use.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ModelRegistry{}, &ModelRegistryList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
