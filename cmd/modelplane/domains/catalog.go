// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"cmp"
	"context"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/modelregistry/aihub"
	"github.com/modelplane/modelplane/internal/version"
)

// withCatalog looks after catalogs, as the environment says in the variables that installations have.
func withCatalog(d *manager.Domain) {
	hub := aihub.New()
	d.Admission, d.Controllers = hub.Rules(d.Admission), append(d.Controllers, hub.Controllers()...)
	d.Marked = append(d.Marked, "./internal/modelregistry/aihub")
	options := []manager.Option{
		{Name: "aihub", Env: aihub.EnvModule, Controllers: []engine.Controller{hub.Module()}},
		{Name: "catalog", Env: aihub.EnvInstance, Controllers: []engine.Controller{hub.Instance(catalogNamespace())}},
	}
	for _, o := range options {
		if os.Getenv(o.Env) == "true" {
			d.Controllers = append(d.Controllers, o.Controllers...)
		}
	}
	d.Options = append(d.Options, options...)
	if os.Getenv(aihub.EnvModule) == "true" {
		hub.AsModule()
	}
	before := d.Setup
	d.Setup = func(ctx context.Context, mgr ctrl.Manager, o manager.SetupOptions) error {
		settings := aihub.FromEnv(os.Getenv, o.Namespace)
		settings.Version = version.Get().Version
		hub.WithPlatform(settings)
		if before == nil {
			return nil
		}
		return before(ctx, mgr, o)
	}
}

// catalogNamespace is where the catalog is that nobody makes an object for: with the registries, or with the manager.
func catalogNamespace() string {
	return cmp.Or(os.Getenv("REGISTRIES_NAMESPACE"), os.Getenv("POD_NAMESPACE"))
}
