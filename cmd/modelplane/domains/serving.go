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
	"github.com/modelplane/modelplane/internal/serving/pods"
	"github.com/modelplane/modelplane/internal/serving/shipped"
)

// completeServing adds the webhook that completes the pods of InferenceServices,
// and tells the room where its configuration is. A replica answers webhooks once
// it knows the configuration.
func completeServing(d *manager.Domain, models *serving.Room) {
	mutator := &pods.Mutator{}
	d.AddToScheme = serving.AddToScheme
	d.Hooks = append(d.Hooks, pods.Hook(mutator))
	d.Marked = append(d.Marked, "./internal/serving/pods", "./internal/serving/shipped", "./internal/config")
	d.Setup = func(_ context.Context, mgr ctrl.Manager, o manager.SetupOptions) error {
		watcher, err := config.NewWatcher(mgr.GetConfig(), o.Namespace, mgr.GetEventRecorder("modelplane-config"))
		if err != nil {
			return err
		}
		if err := mgr.Add(watcher); err != nil {
			return err
		}
		cluster, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return err
		}
		models.In(o.Namespace).On(cluster).Use(watcher)
		mutator.Connect(watcher, o.Namespace, mgr.GetAPIReader(), mgr.GetClient())
		keeper, err := shipped.New(mgr.GetConfig(), o.Namespace)
		if err != nil {
			return err
		}
		return errors.Join(mgr.Add(keeper), mgr.AddReadyzCheck("configuration", watcher.Check))
	}
}
