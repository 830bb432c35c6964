// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

// AnnotationImages, in the status of a service whose models come in images, says how its pods have them. Without it they
// have them as in releases that did not say so.
const (
	AnnotationImages = "modelplane.dev/model-images"
	imagesAsVolumes  = "volumes"
	imagesBeside     = "beside" // the server, without a token
)

// FirstWithImageVolumes is the first Kubernetes that can mount every image of a model without being told to.
var FirstWithImageVolumes = version.MajorMinor(1, 35)

// apart has Kubernetes mount images as volumes where it can and nobody chose another way, so that nothing of an image
// runs beside the server.
func (b *builder) apart(src storage.Source) storage.Source {
	cfg := b.seen.Config.StorageInitializer
	if !storage.BesideServer(src, cfg) {
		return src
	}
	if b.images == "" && !b.asBefore() {
		b.images = imagesBeside
	}
	_, cached := b.isvc.Labels[v1beta1.LabelLocalModel]
	if cfg.OCIModelMode != "" || cached || !b.volumes() {
		return src
	}
	b.images = imagesAsVolumes
	return src.WithImageVolumes()
}

// volumes tells whether images are mounted as volumes. That they could be, after Kubernetes was upgraded, is no reason to
// restart pods.
func (b *builder) volumes() bool {
	if b.isvc.Status.Annotations[AnnotationImages] == imagesAsVolumes {
		return true
	}
	v := b.seen.Kubernetes
	return b.renewed() && v != nil && v.AtLeast(FirstWithImageVolumes)
}

// asBefore tells whether pods are to have their images as in earlier releases.
func (b *builder) asBefore() bool {
	return b.isvc.Status.Annotations[AnnotationImages] == "" && !b.renewed()
}

// renewed tells whether a service is new, or was changed by its user, so that its pods are made anew anyway.
func (b *builder) renewed() bool {
	return Changed(b.isvc) || !b.seen.Runs()
}
