// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"context"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/modelregistry"
)

// completeModelRegistry tells the room what the environment says of the platform, in the variables that installations have.
func completeModelRegistry(d *manager.Domain, registries *modelregistry.Domain) {
	d.Marked = append(d.Marked, "./internal/modelregistry")
	d.Setup = func(_ context.Context, _ ctrl.Manager, o manager.SetupOptions) error {
		registries.WithPlatform(modelregistry.FromEnv(os.Getenv, o.Namespace))
		return nil
	}
}
