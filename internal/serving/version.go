// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
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
