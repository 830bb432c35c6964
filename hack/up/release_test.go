// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// helm is Helm itself, on the release of the test.
func helm(t *testing.T, cluster *testkit.Cluster) *action.Configuration {
	t.Helper()
	kubeconfig, namespace := cluster.Kubeconfig(), chart.DefaultNamespace
	getter := genericclioptions.NewConfigFlags(true)
	getter.KubeConfig, getter.Namespace = &kubeconfig, &namespace
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(getter, namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// with is a small release with values.
func with(own map[string]any) map[string]any {
	values := map[string]any{"enable": []any{"modelregistry"}}
	maps.Copy(values, own)
	return values
}

// here is the installer on the API server of the test.
func here(t *testing.T, cluster *testkit.Cluster, own map[string]any) *release {
	t.Helper()
	values := with(own)
	r, err := newRelease(t.Context(), "../../"+chartDir, values, func(_ context.Context, stdin string, args ...string) (string, error) {
		out, told, err := cluster.Kubectl(t, stdin, args...)
		if err != nil {
			err = fmt.Errorf("kubectl %s: %w: %s", args[0], err, told)
		}
		return out, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// replicas is what the installed Deployment asks for.
func replicas(t *testing.T, cluster *testkit.Cluster) int32 {
	t.Helper()
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: chart.DefaultNamespace, Name: chart.DefaultRelease}
	if err := cluster.Client().Get(t.Context(), key, &d); err != nil {
		t.Fatal(err)
	}
	return *d.Spec.Replicas
}

// TestReleaseIsHelms installs without Helm, and goes on with Helm: it knows the release, upgrades it, and the installer
// upgrades what Helm upgraded; what a revision no longer has goes; Helm uninstalls it all.
func TestReleaseIsHelms(t *testing.T) {
	cluster := testkit.Start(t)
	account := client.ObjectKey{Namespace: chart.DefaultNamespace, Name: "other"}
	first := here(t, cluster, map[string]any{"serviceAccount": map[string]any{"name": account.Name}})
	if err := first.install(t.Context(), time.Second); err == nil || !strings.Contains(err.Error(), "timed out") { // nobody makes pods here
		t.Fatalf("installed without a pod: %v", err)
	}
	if err := cluster.Client().Get(t.Context(), account, &corev1.ServiceAccount{}); err != nil {
		t.Fatal(err)
	}
	second := here(t, cluster, map[string]any{"replicas": 2})
	if last := second.last(); last == nil || last.Info.Status != common.StatusFailed || last.Manifest != first.made.Manifest {
		t.Fatalf("the first attempt is remembered as %+v", last.Info)
	}
	deploy(t, second)
	if err := cluster.Client().Get(t.Context(), account, &corev1.ServiceAccount{}); !apierrors.IsNotFound(err) {
		t.Errorf("an account that is no longer part of the release: %v", err)
	}
	found, err := action.NewGet(helm(t, cluster)).Run(chart.DefaultRelease)
	if got, ok := found.(*releasev1.Release); err != nil || !ok || got.Version != 2 || got.Info.Status != common.StatusDeployed {
		t.Fatalf("Helm sees %+v, %v", found, err)
	}

	upgrade := action.NewUpgrade(helm(t, cluster))
	upgrade.Namespace, upgrade.ServerSideApply, upgrade.WaitStrategy = chart.DefaultNamespace, "auto", kube.HookOnlyStrategy
	upgrade.ForceConflicts = true // Helm calls itself by the name of the program, which here is the test
	if _, err := upgrade.RunWithContext(t.Context(), chart.DefaultRelease, second.made.Chart, with(map[string]any{"replicas": 3})); err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
	if got := replicas(t, cluster); got != 3 {
		t.Errorf("%d replicas after Helm's upgrade", got)
	}
	third := here(t, cluster, map[string]any{"replicas": 3})
	if last := third.last(); last.Version != 3 || last.Manifest != third.made.Manifest {
		t.Error("the same chart and values are another manifest to Helm")
	}
	fourth := here(t, cluster, map[string]any{"replicas": 4})
	deploy(t, fourth)
	if got := replicas(t, cluster); got != 4 {
		t.Errorf("%d replicas after the installer's upgrade", got)
	}
	var said []string
	for _, rev := range here(t, cluster, nil).earlier {
		said = append(said, fmt.Sprint(rev.Version, " ", rev.Info.Status))
	}
	if got := strings.Join(said, ", "); got != "2 superseded, 3 superseded, 4 deployed" {
		t.Errorf("the revisions are %s", got)
	}

	uninstall := action.NewUninstall(helm(t, cluster))
	uninstall.WaitStrategy, uninstall.Timeout = kube.HookOnlyStrategy, time.Minute
	if _, err := uninstall.Run(chart.DefaultRelease); err != nil {
		t.Fatalf("helm uninstall: %v", err)
	}
	if got := here(t, cluster, nil); got.last() != nil {
		t.Error("the release is still there")
	}
	var d appsv1.Deployment
	if err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: chart.DefaultNamespace, Name: chart.DefaultRelease}, &d); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment: %v", err)
	}
}

// deploy does all of an installation but waiting for pods, which nobody makes.
func deploy(t *testing.T, r *release) {
	t.Helper()
	next := r.next()
	if err := r.put(t.Context()); err != nil {
		t.Fatal(err)
	}
	next.SetStatus(common.StatusDeployed, done)
	if err := r.write(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := r.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
}
