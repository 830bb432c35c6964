// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestOnAServer creates every manifest, reads it back in the version it was written in, and finds everything there.
func TestOnAServer(t *testing.T) {
	cluster := testkit.Start(t)
	install(t, cluster)
	config := cluster.Config()
	// Deprecated versions are meant here.
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c = client.WithFieldValidation(c, metav1.FieldValidationStrict)
	refuses(t, c, cluster.Namespace(t))
	for _, dir := range []string{ours, theirs} {
		t.Run(strings.Trim(dir, "./"), func(t *testing.T) {
			manifests, namespace := read(t, dir), cluster.Namespace(t)
			for _, m := range manifests {
				t.Run(m.name, func(t *testing.T) { kept(t, c, m, namespace) })
			}
		})
	}
}

// refuses waits until the webhooks are asked, without which the rest would prove less than it says.
func refuses(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	wrong := &unstructured.Unstructured{}
	wrong.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("InferenceService"))
	wrong.SetNamespace(namespace)
	wrong.SetName("misspelt")
	wrong.Object["spec"] = map[string]any{"predictor": map[string]any{"containers": []any{map[string]any{"name": "a", "imagee": "b"}}}}
	testkit.Eventually(t, 30*time.Second, "the webhooks to be asked", func() error {
		err := c.Create(t.Context(), wrong.DeepCopy(), client.DryRunAll)
		if err == nil {
			return errors.New("an unknown field in a template was accepted")
		}
		if !strings.Contains(err.Error(), "spec.predictor.containers[0].imagee: unknown field") {
			return err
		}
		return nil
	})
}

// kept creates an object, compares what is stored and removes it again, since others may have the same name.
func kept(t *testing.T, c client.Client, m manifest, namespace string) {
	obj := m.DeepCopy()
	if namespaced, err := c.IsObjectNamespaced(obj); err != nil {
		t.Fatal(err)
	} else if namespaced {
		obj.SetNamespace(namespace)
	}
	sent := obj.DeepCopy()
	delete(sent.Object, "stringData") // of a Secret; it comes back as data
	if err := c.Create(t.Context(), obj); err != nil {
		t.Fatalf("refused: %v", err)
	}
	defer func() {
		if err := c.Delete(context.Background(), obj); err != nil {
			t.Errorf("deleting it: %v", err)
		}
	}()
	back := m.DeepCopy()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), back); err != nil {
		t.Fatal(err)
	}
	for _, what := range lost(m.GetKind(), sent.Object, back.Object) {
		t.Error(what)
	}
}

// install makes the server as the chart would: all definitions, with conversion and admission answered by this process.
func install(t *testing.T, cluster *testkit.Cluster) {
	t.Helper()
	dir, ca := cluster.ServingCert(t)
	port := testkit.FreePort(t)
	kinds := serve(t, cluster, dir, port)
	defs, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, def := range defs {
		def = def.DeepCopy()
		if def.Spec.Conversion != nil {
			url := cluster.WebhookURL(port, "/convert")
			def.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca}
		}
		cluster.InstallCRDs(t, def)
	}
	validating, _, err := admission.Webhooks("examples", admission.Service{}, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range validating.Webhooks {
		cluster.PointWebhook(&validating.Webhooks[i].ClientConfig, port, ca)
	}
	if err := cluster.Client().Create(t.Context(), validating); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Client().Delete(context.Background(), validating); err != nil {
			t.Errorf("removing the webhooks: %v", err)
		}
	})
}

// serve answers admission and conversion of all kinds for the length of the test.
func serve(t *testing.T, cluster *testkit.Cluster, certs string, port int) []admission.Kind {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := admission.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var kinds []admission.Kind
	for _, domain := range []string{admission.Serving, admission.ModelMesh, admission.ModelRegistry, admission.MaaS, admission.MLflow} {
		found, err := admission.Kinds(domain)
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, found...)
	}
	server := webhook.NewServer(webhook.Options{Host: cluster.WebhookHost(), Port: port, CertDir: certs})
	if err := admission.Register(server, scheme, kinds...); err != nil {
		t.Fatal(err)
	}
	server.Register("/convert", conversion.NewWebhookHandler(scheme, conversion.NewRegistry()))
	cluster.Serve(t, server, port)
	return kinds
}
