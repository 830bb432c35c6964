// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the wire form of models that run outside the cluster and of the providers that run them.
//
// It holds shapes, markers and nothing else: no defaults in code, no clients, no imports of the rest of the project.
//
// +kubebuilder:object:generate=true
// +groupName=inference.opendatahub.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "inference.opendatahub.io", Version: "v1alpha1"}

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
		&ExternalModel{}, &ExternalModelList{},
		&ExternalProvider{}, &ExternalProviderList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
