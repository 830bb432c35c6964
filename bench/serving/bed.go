// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

const (
	home        = "modelplane-system" // the manager's own namespace
	space       = "bench"             // the services' namespace
	account     = "measured"
	podsPerNode = 100
)

var scheme = func() *k8sruntime.Scheme {
	s := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types contradict each other
		}
	}
	return s
}()

// bed is a whole Kubernetes without machines: API server, controllers and
// scheduler are real, nodes and pods are played by kwok, and a gateway accepts
// every route. Who is measured talks to it through a proxy that counts.
type bed struct {
	*testkit.Cluster
	t      testing.TB
	client client.Client
	proxy  *proxy
	// measured is the account of the manager, or of the plain client.
	measured *rest.Config
}

// newBed starts everything that is not measured. No two measurements share one.
// The trace, if there is one, gets what is asked by who is measured.
func newBed(t testing.TB, services int, trace io.Writer) *bed {
	t.Helper()
	b := &bed{Cluster: testkit.StartOwn(t), t: t}
	c, err := client.New(b.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b.client = c
	b.InstallCRDs(t, testkit.ThirdParty(testkit.GatewayAPI)...)
	for _, name := range []string{home, space} {
		b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i := range services/podsPerNode + 2 {
		b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}})
	}
	b.ControllerManager(t)
	b.Scheduler(t)
	kwok := b.playNodes()
	b.acceptRoutes(t.Context())
	b.proxy = newProxy(t, b.Cluster, trace)
	b.measured = b.ServiceAccountConfig(t, home, account)
	b.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: account}},
	})
	b.waitForNodes(kwok)
	return b
}

func (b *bed) create(o client.Object) {
	b.t.Helper()
	if err := b.client.Create(b.t.Context(), o); err != nil {
		b.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// stages are the parts of kwok's own description of nodes and pods that are used:
// whatever is scheduled runs and is ready at once.
var stages = []string{
	"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
	"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml",
}

// playNodes starts kwok, which has a Go module of its own so that what it needs
// stays out of the manager's.
func (b *bed) playNodes() *testkit.Program {
	b.t.Helper()
	module, err := checkout.Dir("bench", "serving", "kwok")
	if err != nil {
		b.t.Fatal(err)
	}
	path, err := build("go", "tool", "-C", module, "-n", "kwok")
	if err != nil {
		b.t.Fatalf("build kwok: %v", err)
	}
	sources, err := build("go", "-C", module, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	if err != nil {
		b.t.Fatalf("find kwok: %v", err)
	}
	args := []string{"--kubeconfig=" + b.Kubeconfig(), "--manage-all-nodes=true", "--cidr=10.0.0.0/12", "--node-lease-duration-seconds=40"}
	for _, stage := range stages {
		args = append(args, "--config="+filepath.Join(sources, "kustomize", "stage", stage))
	}
	// Settings of the person who runs this must not take part.
	return b.Program(b.t, "kwok", []string{"HOME=" + b.t.TempDir()}, path, args...)
}

// build runs a command of the toolchain and returns what it printed.
func build(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, complaints.String())
	}
	return strings.TrimSpace(string(out)), nil
}

func (b *bed) waitForNodes(kwok *testkit.Program) {
	b.t.Helper()
	testkit.Eventually(b.t, 2*time.Minute, "the nodes to be ready", func() error {
		nodes := &corev1.NodeList{}
		if err := b.client.List(b.t.Context(), nodes); err != nil {
			return err
		}
		for i := range nodes.Items {
			ready := slices.ContainsFunc(nodes.Items[i].Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			if !ready || len(nodes.Items[i].Spec.Taints) > 0 {
				return fmt.Errorf("%s is not ready; kwok wrote:\n%s", nodes.Items[i].Name, kwok.Output())
			}
		}
		return nil
	})
}

// installed are the kinds of the chart that a manager outside of the cluster needs.
var installed = []string{"ConfigMap", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}

// installOurs puts definitions, configuration and webhooks of this checkout into
// the cluster. The manager itself points the webhooks to where it listens.
func (b *bed) installOurs() {
	b.t.Helper()
	crds, err := charts.CRDs()
	if err != nil {
		b.t.Fatal(err)
	}
	crds = slices.DeleteFunc(slices.Clone(crds), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group != v1beta1.Group
	})
	b.InstallCRDs(b.t, crds...)
	objects, err := chart.Render(charttest.Dir(), chart.Release{
		Namespace: home,
		Values: map[string]any{"enable": []any{"serving"}, "serving": map[string]any{"config": map[string]any{
			"ingress": map[string]any{"enableGatewayApi": true, "kserveIngressGateway": gatewayName, "ingressDomain": "models.test"},
		}}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, o := range objects {
		if slices.Contains(installed, o.GetKind()) {
			b.create(o.Unstructured)
		}
	}
}

// installTheirs applies manifests of another manager.
func (b *bed) installTheirs(paths []string) {
	b.t.Helper()
	for _, path := range paths {
		if _, complaints, err := b.Kubectl(b.t, "", "apply", "--server-side", "--force-conflicts", "-f", path); err != nil {
			b.t.Fatalf("apply %s: %v\n%s", path, err, complaints)
		}
	}
}

// until polls with the patience of somebody who measures, and says what is
// missing when it was in vain.
func (b *bed) until(ctx context.Context, patience time.Duration, what string, check func() error) {
	b.t.Helper()
	testkit.Eventually(b.t, patience, what, func() error {
		if err := ctx.Err(); err != nil {
			b.t.Fatalf("waiting for %s: %v", what, err)
		}
		return check()
	})
}
