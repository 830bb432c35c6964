// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"context"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/mlflow/access"
	"github.com/modelplane/modelplane/internal/mlflow/module"
)

// completeMLflow tells the room what the environment says of the platform, in the variables that installations have.
func completeMLflow(d *manager.Domain, tracking *mlflow.Domain) {
	d.Home, d.Named = mlflow.Home(), mlflow.Named()
	d.WholeCluster = true
	d.Marked = append(d.Marked, "./internal/mlflow")
	d.Options = []manager.Option{
		{Name: "module", Env: module.EnvEnabled, Controllers: []engine.Controller{tracking.Module()}},
		{Name: "access", Env: access.EnvEnabled, Controllers: []engine.Controller{tracking.Access()}, Named: access.Named()},
	}
	for _, o := range d.Options {
		if os.Getenv(o.Env) == "true" {
			d.Controllers = append(d.Controllers, o.Controllers...)
		}
	}
	d.Setup = func(_ context.Context, _ ctrl.Manager, o manager.SetupOptions) error {
		tracking.WithPlatform(mlflow.FromEnv(os.Getenv, o.Namespace))
		return nil
	}
}
