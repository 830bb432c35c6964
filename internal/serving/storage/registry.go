// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// envRegistry tells a downloader which model registry is meant where an address names none.
const envRegistry = "MODEL_REGISTRY_BASE_URL"

// CheckRegistry tells why a name in a model registry would lead nowhere, before a pod fails over it. The error is as in
// Check.
func CheckRegistry(s Source, containers []v1alpha1.ClusterStorageContainer, cfg config.StorageInitializer) error {
	for i, m := range s.models() {
		if schemeOf(m.Uri) != schemeRegistry {
			continue
		}
		at := fieldURI
		if len(s.URIs) > 0 {
			at = fieldURIs.Index(i).Child("uri")
		}
		container, err := Pick(m.Uri, s.ContainerName, containers)
		if err != nil {
			return field.Invalid(at, address.Shown(m.Uri), err.Error())
		}
		if problem := noRegistry(m.Uri, container, cfg); problem != "" {
			return field.Invalid(at, address.Shown(m.Uri), problem)
		}
	}
	return nil
}

func noRegistry(uri string, over *v1alpha1.ClusterStorageContainer, cfg config.StorageInitializer) string {
	command, own := cfg.Command, corev1.Container{}
	if over != nil {
		own = over.Spec.Container
	}
	if own.Image != "" && own.Image != cfg.Image {
		return "" // it is the user's own, and knows what it does
	}
	if len(own.Command) > 0 {
		command = own.Command
	}
	if !slices.Equal(command, downloader) && !slices.Equal(command, formerDownloader) {
		return "the image of storageInitializer in inferenceservice-config cannot look models up in a registry; use modelplane-pod there, " +
			"or add a ClusterStorageContainer that supports " + schemeRegistry + "://"
	}
	rest := strings.TrimPrefix(uri, schemeRegistry+"://")
	told := slices.ContainsFunc(own.Env, func(e corev1.EnvVar) bool { return e.Name == envRegistry }) || len(own.EnvFrom) > 0
	if told || cfg.ModelRegistryURL != "" || strings.ContainsAny(strings.TrimSuffix(rest, "/"), "/?") {
		return ""
	}
	return "it names no model registry, and none is configured; write " + schemeRegistry + "://HOST/MODEL/VERSION, append ?namespace=NAMESPACE, " +
		"or have modelRegistryUrl set for storageInitializer in inferenceservice-config"
}

// registryEnv tells a downloader which registry is configured, in the words that other initializers know as well.
func registryEnv(models []v1beta1.StorageUri, configured string) []corev1.EnvVar {
	asked := slices.ContainsFunc(models, func(m v1beta1.StorageUri) bool { return schemeOf(m.Uri) == schemeRegistry })
	u, err := url.Parse(configured)
	if !asked || configured == "" || err != nil {
		return nil // the configuration was checked
	}
	return []corev1.EnvVar{
		{Name: envRegistry, Value: u.Host + strings.TrimSuffix(u.Path, "/")},
		{Name: "MODEL_REGISTRY_SCHEME", Value: u.Scheme},
	}
}
