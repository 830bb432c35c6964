// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"context"
	"os"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/modelmesh/namespaces"
	"github.com/modelplane/modelplane/internal/modelmesh/predictors"
	"github.com/modelplane/modelplane/internal/modelmesh/runtimes"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
	"github.com/modelplane/modelplane/internal/serving"
)

// modelMesh are the rooms of multi-model serving, which go by the same settings.
type modelMesh struct {
	settings   *settings.Source
	runtimes   *runtimes.Domain
	rules      *runtimes.Rules
	predictors *predictors.Domain
}

func newModelMesh() *modelMesh {
	source := settings.NewSource()
	return &modelMesh{
		settings: source, runtimes: runtimes.New(source), rules: runtimes.NewRules(source), predictors: predictors.New(meshesOf(source)),
	}
}

// meshesOf is what the settings say of how meshes are reached.
func meshesOf(source *settings.Source) predictors.Settings {
	return func(ctx context.Context, r engine.Reader) (predictors.Platform, error) {
		now, err := source.Observe(ctx, r)
		if err != nil {
			return predictors.Platform{}, err
		}
		platform := source.Platform()
		out := predictors.Platform{
			Home: platform.Namespace, Service: now.InferenceServiceName, Port: now.InferenceServicePort, Endpoint: now.ModelMeshEndpoint,
			TLSSecret: now.TLS.SecretName, ClientAuth: now.TLS.ClientAuth != "", EtcdSecret: platform.EtcdSecretName(now.Settings),
			Enabled: platform.Enabled, Problem: now.Problem(),
		}
		if now.RESTProxy.Enabled {
			out.RESTPort = now.RESTProxy.Port
		}
		return out, nil
	}
}

func (m *modelMesh) controllers() []engine.Controller {
	return slices.Concat(m.runtimes.Controllers(), []engine.Controller{namespaces.Controller(m.settings), m.settings.Controller()}, m.predictors.Controllers())
}

// complete adds the webhook on runtimes, and lets the kinds that are shared with serving be admitted by the same rules, also
// where serving is not enabled.
func (m *modelMesh) complete(d *manager.Domain, models *serving.Domain, platform *configuration) {
	d.Marked = append(d.Marked, "./internal/config", "./internal/modelmesh/runtimes")
	d.Guards = append(d.Guards, m.rules.Guard())
	d.Setup = func(_ context.Context, mgr ctrl.Manager, o manager.SetupOptions) error {
		m.settings.WithPlatform(settings.FromEnv(os.Getenv, o.Namespace, o.Watched))
		m.rules.Connect(mgr.GetAPIReader())
		watcher, err := platform.follow(mgr, o.Namespace)
		if err == nil {
			models.SetSource(watcher)
		}
		return err
	}
}
