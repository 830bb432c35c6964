// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CatalogName is the only name a Catalog may have; admission checks it.
const CatalogName = "catalog"

// Catalog runs the model catalog with its database.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=catalogs,scope=Namespaced,categories=models
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Catalog struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// How the catalog is sized.
	// +optional
	Spec CatalogSpec `json:"spec,omitzero"`

	// Whether the catalog answers.
	// +optional
	Status CatalogStatus `json:"status,omitzero"`
}

// CatalogList is a list of catalogs.
//
// +kubebuilder:object:root=true
type CatalogList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Catalog `json:"items"`
}

// CatalogSpec is how a catalog is sized.
type CatalogSpec struct {
	// Processor and memory of the catalog's containers.
	// +optional
	Resources *CatalogResources `json:"resources,omitempty"`

	// Storage of the catalog's database.
	// +optional
	Database *CatalogDatabase `json:"database,omitempty"`
}

// CatalogResources is the processor and memory of a catalog's containers.
type CatalogResources struct {
	// For the catalog server.
	// +optional
	Catalog *corev1.ResourceRequirements `json:"catalog,omitempty"`

	// For the database.
	// +optional
	Postgres *corev1.ResourceRequirements `json:"postgres,omitempty"`
}

// CatalogDatabase is the storage of a catalog's database.
type CatalogDatabase struct {
	// Volume of the database; it lives as long as its pod.
	// +optional
	Volume *CatalogDatabaseVolume `json:"volume,omitempty"`
}

// CatalogDatabaseVolume bounds the volume of a catalog's database.
type CatalogDatabaseVolume struct {
	// Most that the volume may hold.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="sizeLimit must be greater than zero"
	SizeLimit *resource.Quantity `json:"sizeLimit,omitempty"`
}

// CatalogStatus says whether a catalog answers.
type CatalogStatus struct {
	// Findings about the catalog: Available.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Generation that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
