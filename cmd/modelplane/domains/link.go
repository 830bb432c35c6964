// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"context"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/modelregistry/link"
)

// withLink tells registries of the services that serve their models. Where it is switched off, it takes off what it left.
func withLink(d *manager.Domain) {
	services := link.New()
	d.Controllers = append(d.Controllers, services.Controller())
	before := d.Setup
	d.Setup = func(ctx context.Context, mgr ctrl.Manager, o manager.SetupOptions) error {
		services.WithSettings(link.FromEnv(os.Getenv))
		if before == nil {
			return nil
		}
		return before(ctx, mgr, o)
	}
}
