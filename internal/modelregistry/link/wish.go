// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// family is the first part of the names of labels and annotations. Both that are known mean the same.
type family string

const (
	kubeflow    family = "modelregistry.kubeflow.org/"
	openDataHub family = "modelregistry.opendatahub.io/"
)

var families = []family{kubeflow, openDataHub}

func (f family) finalizer() string { return string(f) + "finalizer" }
func (f family) id() string        { return string(f) + "inference-service-id" }

// wish is what a service says about registries.
type wish struct {
	family family
	// model, version and service are ids in the registry.
	model, version, service string
	// url, name and namespace say which registry.
	url, name, namespace string
}

// wishOf reads the labels and annotations of a service. Those of one family count: the one that names a model or an
// inference service.
func wishOf(isvc *v1beta1.InferenceService) wish {
	for _, f := range families {
		label := func(name string) string { return isvc.Labels[string(f)+name] }
		w := wish{
			family: f, model: label("registered-model-id"), version: label("model-version-id"), service: label("inference-service-id"),
			url: isvc.Annotations[string(f)+"url"], name: label("name"), namespace: label("namespace"),
		}
		if w.linked() {
			return w
		}
	}
	return wish{}
}

func (w wish) linked() bool { return w.model != "" || w.service != "" }
