// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/modelplane/modelplane/api/modelregistry/v1alpha1"
	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestModelRegistryConversion lets a real API server convert: its defaults, its pruning and what it lets a conversion
// change are part of what must lose nothing.
func TestModelRegistryConversion(t *testing.T) {
	cluster := testkit.Start(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	installConverted(t, cluster, scheme, "modelregistry.opendatahub.io ModelRegistry")
	config := cluster.Config()
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("istio is stored as a proxy and shown as it was written", func(t *testing.T) { istioRoundTrip(t, c, cluster.Namespace(t)) })
	t.Run("writing v1alpha1 back changes nothing", func(t *testing.T) { writeBack(t, c, cluster.Namespace(t)) })
	t.Run("applying a v1alpha1 manifest again changes nothing", func(t *testing.T) { applyAgain(t, c, cluster) })
}

func istioRoundTrip(t *testing.T, c client.Client, namespace string) {
	written := &v1alpha1.ModelRegistry{
		ObjectMeta: metav1.ObjectMeta{Name: "mesh", Namespace: namespace},
		Spec:       v1alpha1.ModelRegistrySpec{Istio: &v1alpha1.Istio{Gateway: &v1alpha1.Gateway{Domain: "example.com"}}},
	}
	if err := c.Create(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	stored, shown := &v1beta1.ModelRegistry{}, &v1alpha1.ModelRegistry{}
	get(t, c, written, stored)
	want := &v1beta1.OAuthProxy{Port: new(int32(8443)), ServiceRoute: v1beta1.Enabled, Domain: "example.com", RoutePort: new(int32(443))}
	if diff := cmp.Diff(want, stored.Spec.OAuthProxy); diff != "" {
		t.Errorf("stored proxy (-want +got):\n%s", diff)
	}
	get(t, c, written, shown)
	if diff := cmp.Diff(written.Spec, shown.Spec); diff != "" {
		t.Errorf("shown (-written +shown):\n%s", diff)
	}
	if len(shown.Annotations) > 0 {
		t.Errorf("annotations are left over: %v", shown.Annotations)
	}
}

// writeBack uses everything that v1alpha1 cannot say.
func writeBack(t *testing.T, c client.Client, namespace string) {
	written := &v1beta1.ModelRegistry{
		ObjectMeta: metav1.ObjectMeta{Name: "generated", Namespace: namespace},
		Spec: v1beta1.ModelRegistrySpec{
			MySQL:         &v1beta1.MySQL{Host: "db", Username: "registry", Database: "registry"},
			Postgres:      &v1beta1.Postgres{GenerateDeployment: new(true), Image: "postgres:16"},
			KubeRBACProxy: &v1beta1.KubeRBACProxy{Domain: "example.com", Image: "proxy:1"},
		},
	}
	if err := c.Create(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	shown, after := &v1alpha1.ModelRegistry{}, &v1beta1.ModelRegistry{}
	get(t, c, written, shown)
	if err := c.Update(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	get(t, c, written, after)
	if diff := cmp.Diff(written.Spec, after.Spec); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
	if after.Generation != written.Generation {
		t.Errorf("generation went from %d to %d", written.Generation, after.Generation)
	}
}

// applyAgain is what a Git repository with a v1alpha1 manifest does while a controller works in v1beta1.
func applyAgain(t *testing.T, c client.Client, cluster *testkit.Cluster) {
	namespace := cluster.Namespace(t)
	const manifest = `
apiVersion: modelregistry.opendatahub.io/v1alpha1
kind: ModelRegistry
metadata: {name: from-git}
spec:
  rest: {}
  grpc: {}
  mysql: {host: db, username: registry, database: registry}
  oauthProxy: {domain: example.com}
`
	if _, stderr, err := cluster.Kubectl(t, manifest, "apply", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, stderr)
	}
	moved := &v1beta1.ModelRegistry{ObjectMeta: metav1.ObjectMeta{Name: "from-git", Namespace: namespace}}
	get(t, c, moved, moved)
	moved.Spec.KubeRBACProxy, moved.Spec.OAuthProxy = (*v1beta1.KubeRBACProxy)(moved.Spec.OAuthProxy), nil
	if err := c.Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := cluster.Kubectl(t, manifest, "apply", "-n", namespace, "-f", "-")
	if err != nil || !strings.Contains(stdout, "unchanged") {
		t.Errorf("kubectl apply of the same manifest: %v\n%s%s", err, stdout, stderr)
	}
	after := &v1beta1.ModelRegistry{}
	get(t, c, moved, after)
	if after.Spec.KubeRBACProxy == nil || after.Spec.OAuthProxy != nil {
		t.Errorf("the manifest took the proxy back: %+v", after.Spec)
	}
}

func get(t *testing.T, c client.Client, which, into client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(which), into); err != nil {
		t.Fatal(err)
	}
}

// installConverted installs a definition whose conversions this process answers for the length of the test.
func installConverted(t *testing.T, cluster *testkit.Cluster, scheme *runtime.Scheme, kind string) {
	t.Helper()
	dir, ca := cluster.ServingCert(t)
	port := serveConversion(t, cluster, scheme, dir)
	def := readDefinitions(t)[kind].DeepCopy()
	url := cluster.WebhookURL(port, "/convert")
	def.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca}
	cluster.InstallCRDs(t, def)
	t.Cleanup(func() {
		def.Spec.Conversion = nil
		cluster.InstallCRDs(t, def)
	})
}

func serveConversion(t *testing.T, cluster *testkit.Cluster, scheme *runtime.Scheme, certs string) int {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cluster.WebhookHost(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:   conversion.NewWebhookHandler(scheme, conversion.NewRegistry()),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return listener.Addr().(*net.TCPAddr).Port
}
