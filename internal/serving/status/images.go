// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/resolve"
)

// imageVolumes is there only when a model comes as an image volume and the
// cluster is too old to be sure that it works.
const imageVolumes = "OciImageVolumeCompatible"

// ImageVolumes says what the cluster lacks for a model that it mounts as an
// image. Nodes may be older than the API server; their pods say so themselves.
func (j Judge) ImageVolumes(cs *kube.Conditions) {
	v := j.Seen.Kubernetes
	if !j.Parts.ImageVolumes || v == nil {
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
	case v.LessThan(resolve.FirstWithImageVolumes):
		cs.False(imageVolumes, "ImageVolumeAlpha", here+"mounts the image of a model only where the feature gate ImageVolume is on; ignore this if it is. "+instead)
	}
}
