// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"context"
	"fmt"
	"os"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/maas"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenants"
	"github.com/modelplane/modelplane/internal/manager"
)

// completeMaaS tells the room what the environment says of the platform.
func completeMaaS(d *manager.Domain, models *maas.Domain) {
	d.AddToScheme = maas.AddToScheme
	d.WholeCluster = true // gateways, tenants and models are in different namespaces
	d.Marked = append(d.Marked, "./internal/maas/tenants", "./internal/maas/platform")
	d.Setup = func(_ context.Context, _ ctrl.Manager, o manager.SetupOptions) error {
		s, err := settings.FromEnv(os.Getenv, o.Namespace)
		if err != nil {
			return err
		}
		models.WithSettings(s).WithImage(os.Getenv("MODELPLANE_IMAGE")).WithCertificates()
		if text := os.Getenv(tenants.EnvDeletionTimeout); text != "" {
			timeout, err := time.ParseDuration(text)
			if err != nil {
				return fmt.Errorf("%s is %q: it must be a duration such as 10m: %w", tenants.EnvDeletionTimeout, text, err)
			}
			models.WithDeletionTimeout(timeout)
		}
		return nil
	}
}
