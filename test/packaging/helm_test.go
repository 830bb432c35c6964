// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// largestSecret is what the API server stores in one Secret, and so what Helm may keep of a release.
const largestSecret = corev1.MaxSecretSize

// TestHelm takes a release through its life with Helm itself, in the two ways in which Helm writes. The second
// installation finds the definitions that the first one left.
func TestHelm(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := restricted(t, cluster)
	objects := charttest.Render(t, chart.Release{Namespace: namespace})
	removeAfter(t, cluster, objects)
	loaded, err := loader.LoadDir(charttest.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		values map[string]any
		// Another test may have left definitions that belong to nobody, as another product would.
		takeOwnership bool
	}{
		{name: "server-side", takeOwnership: true},
		{name: "client-side", values: map[string]any{"enable": []any{"modelregistry"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &helm{cluster: cluster, namespace: namespace, chart: loaded, values: c.values, serverSide: c.name == "server-side"}
			h.install(t, c.takeOwnership)
			h.checkSize(t)
			h.injectBundles(t)
			h.upgrade(t, "replicas", 2)
			h.checkUpgraded(t)
			h.uninstall(t)
			h.checkGone(t, objects)
		})
	}
}

type helm struct {
	cluster    *testkit.Cluster
	namespace  string
	chart      *chartv2.Chart
	values     map[string]any
	serverSide bool
}

func (h *helm) configuration(t *testing.T) *action.Configuration {
	t.Helper()
	kubeconfig := h.cluster.Kubeconfig()
	getter := genericclioptions.NewConfigFlags(true)
	getter.KubeConfig, getter.Namespace = &kubeconfig, &h.namespace
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(getter, h.namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (h *helm) install(t *testing.T, takeOwnership bool) {
	t.Helper()
	install := action.NewInstall(h.configuration(t))
	install.ReleaseName, install.Namespace = chart.DefaultRelease, h.namespace
	install.ServerSideApply, install.WaitStrategy = h.serverSide, kube.HookOnlyStrategy
	install.TakeOwnership, install.ForceConflicts = takeOwnership, takeOwnership
	if _, err := install.Run(h.chart, maps.Clone(h.values)); err != nil {
		t.Fatalf("helm install: %v", err)
	}
}

func (h *helm) upgrade(t *testing.T, key string, value any) {
	t.Helper()
	values := map[string]any{key: value}
	maps.Copy(values, h.values)
	upgrade := action.NewUpgrade(h.configuration(t))
	upgrade.Namespace, upgrade.ServerSideApply = h.namespace, fmt.Sprint(h.serverSide)
	upgrade.WaitStrategy = kube.HookOnlyStrategy
	if _, err := upgrade.Run(chart.DefaultRelease, h.chart, values); err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
}

func (h *helm) uninstall(t *testing.T) {
	t.Helper()
	uninstall := action.NewUninstall(h.configuration(t))
	uninstall.WaitStrategy, uninstall.Timeout = kube.HookOnlyStrategy, time.Minute
	if _, err := uninstall.Run(chart.DefaultRelease); err != nil {
		t.Fatalf("helm uninstall: %v", err)
	}
}

// checkSize measures what Helm keeps of the release.
func (h *helm) checkSize(t *testing.T) {
	t.Helper()
	var secrets corev1.SecretList
	if err := h.cluster.Client().List(context.Background(), &secrets, client.InNamespace(h.namespace),
		client.MatchingLabels{"owner": "helm"}); err != nil {
		t.Fatal(err)
	}
	if len(secrets.Items) != 1 {
		t.Fatalf("%d releases, want 1", len(secrets.Items))
	}
	size := len(secrets.Items[0].Data["release"])
	t.Logf("Helm keeps %d bytes of the release, %d %% of what a Secret may hold", size, 100*size/largestSecret)
	if size > largestSecret*9/10 { // room for the values of people
		t.Errorf("the release takes %d bytes of the %d that a Secret may hold; make the definitions smaller", size, largestSecret)
	}
}

// callers are the objects that the manager writes its trusted roots to.
func (h *helm) callers() []client.Object {
	return []client.Object{
		named(&admissionv1.ValidatingWebhookConfiguration{}, chart.DefaultRelease),
		named(&apiextensionsv1.CustomResourceDefinition{}, "modelregistries.modelregistry.opendatahub.io"),
	}
}

func named[T client.Object](object T, name string) T {
	object.SetName(name)
	return object
}

// injectBundles writes as the manager does.
func (h *helm) injectBundles(t *testing.T) {
	t.Helper()
	for _, caller := range h.callers() {
		if err := h.cluster.Client().Get(context.Background(), client.ObjectKeyFromObject(caller), caller); err != nil {
			t.Fatal(err)
		}
		pointer := "/spec/conversion/webhook/clientConfig/caBundle"
		if _, ok := caller.(*admissionv1.ValidatingWebhookConfiguration); ok {
			pointer = "/webhooks/0/clientConfig/caBundle"
		}
		patch, err := json.Marshal([]map[string]any{{"op": "add", "path": pointer, "value": h.cluster.Config().CAData}})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.cluster.Client().Patch(context.Background(), caller, client.RawPatch(types.JSONPatchType, patch),
			client.FieldOwner("modelplane-certs")); err != nil {
			t.Fatal(err)
		}
	}
}

// checkUpgraded looks for the new value, and for what somebody else wrote.
func (h *helm) checkUpgraded(t *testing.T) {
	t.Helper()
	ctx, key := context.Background(), client.ObjectKey{Namespace: h.namespace, Name: chart.DefaultRelease}
	var deployment appsv1.Deployment
	if err := h.cluster.Client().Get(ctx, key, &deployment); err != nil {
		t.Fatal(err)
	}
	if got := *deployment.Spec.Replicas; got != 2 {
		t.Errorf("%d replicas after the upgrade, want 2", got)
	}
	for _, caller := range h.callers() {
		if err := h.cluster.Client().Get(ctx, client.ObjectKeyFromObject(caller), caller); err != nil {
			t.Fatal(err)
		}
		var bundle []byte
		switch c := caller.(type) {
		case *admissionv1.ValidatingWebhookConfiguration:
			bundle = c.Webhooks[0].ClientConfig.CABundle
		case *apiextensionsv1.CustomResourceDefinition:
			bundle = c.Spec.Conversion.Webhook.ClientConfig.CABundle
		}
		if string(bundle) != string(h.cluster.Config().CAData) {
			t.Errorf("the upgrade took the trusted roots from %T", caller)
		}
	}
}

// checkGone proves that exactly the definitions are left.
func (h *helm) checkGone(t *testing.T, objects []chart.Object) {
	t.Helper()
	for _, o := range objects {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		err := h.cluster.Client().Get(context.Background(), client.ObjectKeyFromObject(o.Unstructured), live)
		if o.GetKind() == "CustomResourceDefinition" {
			if err != nil || live.GetDeletionTimestamp() != nil {
				t.Errorf("%s did not survive: %v", o.GetName(), err)
			}
			continue
		}
		if err == nil {
			err = errors.New("it is still there")
		}
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}
