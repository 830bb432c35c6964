// SPDX-License-Identifier: Apache-2.0

// Package storage decides how a model gets into a pod: by the init container
// that downloads it, by a claim, or as an OCI image, and with which
// credentials. The controller uses it for lists of models, which show in the
// Deployment, and the pod webhook for single ones.
//
// Everything but Gather is pure. Secrets are only looked at to see what they
// hold; their values go into a pod by reference and nowhere else.
package storage

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// Source is where the models of one component come from. Either URIs is set, or
// any of the others.
type Source struct {
	// URI of the only model.
	URI string
	// Spec names credentials in the storage secret, and the path of the only
	// model where URI is empty.
	Spec *v1beta1.StorageSpec
	// URIs are several models with a place each.
	URIs []v1beta1.StorageUri
	// ContainerName names the ClusterStorageContainer to download with.
	ContainerName string
	// Confidential asks for a model that is decrypted where it runs.
	Confidential *v1beta1.ConfidentialSpec
}

// Secrets are the objects that credentials come from.
type Secrets struct {
	// ServiceAccount is nil when there is none of that name, which is no problem.
	ServiceAccount *corev1.ServiceAccount
	// Secrets by name; all are in the pod's namespace.
	Secrets map[string]*corev1.Secret
}

// Injection is everything that Inject decides by.
type Injection struct {
	Source
	// Namespace of the pod; ConfigNamespace is the one of the configuration.
	Namespace, ConfigNamespace string
	// Annotations of the pod.
	Annotations map[string]string
	Containers  []v1alpha1.ClusterStorageContainer
	Secrets     Secrets
	Config      *config.Config
	// AsBefore makes what earlier releases made, for a template that runs.
	AsBefore bool
}

// Names that other tools know.
const (
	// ModelPath is where a single model is mounted.
	ModelPath = "/mnt/models"
	// InitializerName is the init container that downloads models.
	InitializerName = "storage-initializer"
	// MainContainer, WorkerContainer and TransformerContainer see the models.
	MainContainer        = "kserve-container"
	WorkerContainer      = "worker-container"
	TransformerContainer = "transformer-container"
	// SchemePlaceholder stands for a scheme that only the storage secret tells.
	SchemePlaceholder = "<scheme-placeholder>://"
	// EnvStorageURI is how a custom container asks for a model.
	EnvStorageURI = "STORAGE_URI"

	provisionVolume = "kserve-provision-location"
	claimVolume     = "kserve-pvc-source"
	trueValue       = "true"
)

// uri is the address of a single model, or empty.
func (s Source) uri() string {
	if s.URI == "" && s.Spec != nil && s.Spec.Path != nil {
		return SchemePlaceholder + *s.Spec.Path
	}
	return s.URI
}

// models lists what is to be brought, in the order of the spec.
func (s Source) models() []v1beta1.StorageUri {
	if uri := s.uri(); uri != "" {
		return []v1beta1.StorageUri{{Uri: uri, MountPath: ModelPath}}
	}
	out := make([]v1beta1.StorageUri, len(s.URIs))
	for i, m := range s.URIs {
		if m.MountPath == "" {
			m.MountPath = ModelPath
		}
		out[i] = m
	}
	return out
}
