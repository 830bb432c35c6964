// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"context"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/maas"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/manager"
)

// completeMaaS tells the room what the environment says of the platform.
func completeMaaS(d *manager.Domain, models *maas.Domain) {
	d.AddToScheme = maas.AddToScheme
	d.WholeCluster = true // gateways, tenants and models are in different namespaces
	d.Setup = func(_ context.Context, _ ctrl.Manager, o manager.SetupOptions) error {
		s, err := settings.FromEnv(os.Getenv, o.Namespace)
		if err == nil {
			models.WithSettings(s)
		}
		return err
	}
}
