// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"context"
	"errors"

	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/serving/defaultruntimes"
	"github.com/modelplane/modelplane/internal/serving/podwebhook"
)

// completeServing adds the webhook that completes the pods of InferenceServices and
// the runtimes that come with a release, and tells the room where its configuration is. A replica answers webhooks once
// it knows the configuration.
func completeServing(d *manager.Domain, models *serving.Domain, platform *configuration) {
	mutator := &podwebhook.Mutator{}
	d.AddToScheme = serving.AddToScheme
	d.Hooks = append(d.Hooks, podwebhook.Hook(mutator))
	d.Marked = append(d.Marked, "./internal/serving/podwebhook", "./internal/config")
	d.Controllers = append(d.Controllers, defaultruntimes.Controller())
	d.Setup = func(_ context.Context, mgr ctrl.Manager, o manager.SetupOptions) error {
		watcher, err := platform.follow(mgr, o.Namespace)
		if err != nil {
			return err
		}
		cluster, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return err
		}
		models.WithNamespace(o.Namespace).WithKubernetes(cluster).SetSource(watcher)
		mutator.Connect(watcher, o.Namespace, mgr.GetAPIReader(), mgr.GetClient())
		return mutator.Follow(mgr, o.Watched)
	}
}

// configuration is followed once, whoever needs it.
type configuration struct{ watcher *config.Watcher }

func (c *configuration) follow(mgr ctrl.Manager, namespace string) (*config.Watcher, error) {
	if c.watcher != nil {
		return c.watcher, nil
	}
	watcher, err := config.NewWatcher(mgr.GetConfig(), namespace, mgr.GetEventRecorder("modelplane-config"))
	if err != nil {
		return nil, err
	}
	c.watcher = watcher
	return watcher, errors.Join(mgr.Add(watcher), mgr.AddReadyzCheck("configuration", watcher.Check))
}
