// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/modelplane/modelplane/internal/chart"
)

const chartDir = "charts/modelplane"

// imageValues are the chart's values for an image, or none for the chart's own.
func imageValues(reference string) map[string]any {
	repository, tag, found := cutTag(reference)
	if !found {
		return map[string]any{}
	}
	return map[string]any{"image": map[string]any{"repository": repository, "tag": tag}}
}

// cutTag minds that a registry may have a port.
func cutTag(reference string) (repository, tag string, found bool) {
	i := strings.LastIndexByte(reference, ':')
	if i < 0 || strings.Contains(reference[i:], "/") {
		return reference, "", false
	}
	return reference[:i], reference[i+1:], true
}

// localValues also make room: what a model server asks for by default would fill a small machine with one model.
func localValues(reference, server string) map[string]any {
	values := imageValues(reference)
	values["runtimes"] = map[string]any{"servers": map[string]any{serverImage: imageValues(server)}}
	values["serving"] = map[string]any{"config": map[string]any{
		"storageInitializer": map[string]any{"image": reference},
		"inferenceService": map[string]any{"resource": map[string]any{
			"cpuRequest": "50m", "cpuLimit": "1", "memoryRequest": "64Mi", "memoryLimit": "1Gi",
		}},
	}}
	return values
}

// release is the installation in one cluster, as Helm keeps it.
type release struct {
	*action.Configuration
	chart   *chartv2.Chart
	values  map[string]any
	timeout time.Duration
}

// install does what `helm upgrade --install --wait` does, except that it leaves a release alone that is already so.
func (u *up) install(ctx context.Context, kubeconfig string, values map[string]any) error {
	u.heading("the chart")
	start := time.Now()
	r, err := u.release(kubeconfig, values)
	if err != nil {
		return err
	}
	if err := r.ensureNamespace(ctx); err != nil {
		return err
	}
	last, err := r.last()
	if err != nil {
		return err
	}
	switch {
	case last == nil:
		err = r.installNew(ctx, false)
	case last.Info.Status == common.StatusDeployed:
		var same bool
		if same, err = r.unchanged(ctx, last); err == nil && same {
			u.say("chart", "installed already, revision %d", last.Version)
			return u.waitForManager(ctx, kubeconfig)
		}
		if err == nil {
			err = r.upgrade(ctx)
		}
	default:
		err = r.recover(ctx, last)
	}
	if err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	u.say("chart", "installed and ready in %s", since(start))
	return nil
}

// waitForManager is for a release that was ready once: its pods may have been killed meanwhile.
func (u *up) waitForManager(ctx context.Context, kubeconfig string) error {
	start := time.Now()
	_, err := u.kubectl(ctx, kubeconfig, "", "rollout", "status", "--namespace", chart.DefaultNamespace,
		"deployment/"+chart.DefaultRelease, "--timeout", u.timeout.String())
	if err != nil {
		return fmt.Errorf("the manager is not ready: %w", err)
	}
	u.say("manager", "ready in %s", since(start))
	return nil
}

func (u *up) release(kubeconfig string, values map[string]any) (*release, error) {
	namespace := chart.DefaultNamespace
	getter := genericclioptions.NewConfigFlags(true)
	getter.KubeConfig, getter.Namespace = &kubeconfig, &namespace
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(getter, namespace, "secret"); err != nil {
		return nil, err
	}
	cfg.Releases.MaxHistory = 3
	loaded, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, err
	}
	return &release{Configuration: cfg, chart: loaded, values: values, timeout: u.timeout}, nil
}

// ensureNamespace holds the manager to the strictest level of pod security, which `helm --create-namespace` cannot say.
func (r *release) ensureNamespace(ctx context.Context) error {
	clients, err := r.KubernetesClientSet()
	if err != nil {
		return err
	}
	const level = "restricted"
	namespace := corev1.Namespace(chart.DefaultNamespace).WithLabels(map[string]string{
		"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level,
	})
	_, err = clients.CoreV1().Namespaces().Apply(ctx, namespace, metav1.ApplyOptions{FieldManager: "helm", Force: true})
	if err != nil {
		return fmt.Errorf("namespace %s: %w", chart.DefaultNamespace, err)
	}
	return nil
}

// last is the newest revision, or nil.
func (r *release) last() (*releasev1.Release, error) {
	found, err := r.Releases.Last(chart.DefaultRelease)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	last, ok := found.(*releasev1.Release)
	if !ok {
		return nil, fmt.Errorf("the release is kept in a form that is not known here: %T", found)
	}
	return last, nil
}

// installNew adopts what is there without a release, such as definitions that a removed release left.
func (r *release) installNew(ctx context.Context, replace bool) error {
	install := action.NewInstall(r.Configuration)
	install.ReleaseName, install.Namespace = chart.DefaultRelease, chart.DefaultNamespace
	install.ServerSideApply, install.ForceConflicts, install.TakeOwnership = true, true, true
	install.WaitStrategy, install.Timeout, install.Replace = kube.StatusWatcherStrategy, r.timeout, replace
	_, err := install.RunWithContext(ctx, r.chart, r.values)
	return err
}

func (r *release) newUpgrade() *action.Upgrade {
	upgrade := action.NewUpgrade(r.Configuration)
	upgrade.Namespace, upgrade.ServerSideApply, upgrade.ForceConflicts = chart.DefaultNamespace, "true", true
	upgrade.WaitStrategy, upgrade.Timeout = kube.StatusWatcherStrategy, r.timeout
	upgrade.TakeOwnership = true // what a new version of the chart brings may be there already
	upgrade.MaxHistory = r.Releases.MaxHistory
	return upgrade
}

func (r *release) upgrade(ctx context.Context) error {
	_, err := r.newUpgrade().RunWithContext(ctx, chart.DefaultRelease, r.chart, r.values)
	return err
}

// unchanged compares what would be installed with what is, as Helm rendered it.
func (r *release) unchanged(ctx context.Context, last *releasev1.Release) (bool, error) {
	dry := r.newUpgrade()
	dry.DryRunStrategy = action.DryRunClient
	found, err := dry.RunWithContext(ctx, chart.DefaultRelease, r.chart, r.values)
	if err != nil {
		return false, err
	}
	next, ok := found.(*releasev1.Release)
	return ok && next.Manifest == last.Manifest, nil
}

// recover goes on after an installation that failed, or whose end Helm never saw.
func (r *release) recover(ctx context.Context, last *releasev1.Release) error {
	if last.Info.Status.IsPending() {
		last.SetStatus(common.StatusFailed, "interrupted")
		if err := r.Releases.Update(last); err != nil {
			return err
		}
	}
	if _, err := r.Releases.Deployed(chart.DefaultRelease); err != nil {
		return r.installNew(ctx, true)
	}
	return r.upgrade(ctx)
}
