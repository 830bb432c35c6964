// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

// cluster knows which Kubernetes it is. It asks once, and only when somebody
// wants to know.
type cluster struct {
	ask discovery.ServerVersionInterface

	mu      sync.Mutex
	version *version.Version
}

// Version is nil without a cluster.
func (c *cluster) Version() (*version.Version, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != nil || c.ask == nil {
		return c.version, nil
	}
	info, err := c.ask.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask for the version of Kubernetes: %w", err)
	}
	c.version, err = version.ParseGeneric(info.GitVersion)
	return c.version, err
}

// annotationImages, in the status of a service whose models come in images, says how its pods have them. Without it they
// have them as in releases that did not say so.
const (
	annotationImages = "modelplane.dev/model-images"
	imagesAsVolumes  = "volumes"
	imagesBeside     = "beside" // the server, without a token
)

// firstWithImageVolumes is the first Kubernetes that can mount every image of a model without being told to.
var firstWithImageVolumes = version.MajorMinor(1, 35)

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
	if b.isvc.Status.Annotations[annotationImages] == imagesAsVolumes {
		return true
	}
	v := b.seen.Kubernetes
	return b.renewed() && v != nil && v.AtLeast(firstWithImageVolumes)
}

// asBefore tells whether pods are to have their images as in earlier releases.
func (b *builder) asBefore() bool {
	return b.isvc.Status.Annotations[annotationImages] == "" && !b.renewed()
}

// renewed tells whether a service is new, or was changed by its user, so that its pods are made anew anyway.
func (b *builder) renewed() bool {
	return b.isvc.Status.ObservedGeneration != b.isvc.Generation || len(b.seen.Deployments)+len(b.seen.Knative) == 0
}

// imageVolumes is there only when a model comes as an image volume and the
// cluster is too old to be sure that it works.
const imageVolumes = "OciImageVolumeCompatible"

// judgeImageVolumes says what the cluster lacks for a model that it mounts as an
// image. Nodes may be older than the API server; their pods say so themselves.
func (p *planner) judgeImageVolumes(cs *kube.Conditions) {
	v := p.seen.Kubernetes
	if !p.imageVolumes || v == nil {
		return
	}
	const instead = "Upgrade to 1.35, or have the image run beside the server: oci+modelcar:// instead of oci+native:// in the model's address, " +
		"or storageInitializer.ociModelMode: modelcar in inferenceservice-config."
	here := fmt.Sprintf("Kubernetes %d.%d ", v.Major(), v.Minor())
	switch {
	case v.LessThan(version.MajorMinor(1, 31)):
		cs.False(imageVolumes, "ImageVolumeUnsupported", here+"cannot mount the image of a model as a volume. "+instead)
	case v.LessThan(version.MajorMinor(1, 33)):
		cs.False(imageVolumes, "ImageVolumeSubPathUnsupported", here+"can mount the image of a model only as a whole, not the folder that the model is in. "+instead)
	case v.LessThan(firstWithImageVolumes):
		cs.False(imageVolumes, "ImageVolumeAlpha", here+"mounts the image of a model only where the feature gate ImageVolume is on; ignore this if it is. "+instead)
	}
}
