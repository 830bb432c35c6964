// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"

	"github.com/modelplane/modelplane/internal/kube"
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
	case v.LessThan(version.MajorMinor(1, 35)):
		cs.False(imageVolumes, "ImageVolumeAlpha", here+"mounts the image of a model only where the feature gate ImageVolume is on; ignore this if it is. "+instead)
	}
}
