// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// TestOnAServer puts the rules behind a real API server.
func TestOnAServer(t *testing.T) {
	cluster := testkit.Start(t)
	defs, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	cluster.InstallCRDs(t, defs...)
	c := cluster.Client()
	namespace := cluster.Namespace(t)
	stored := object(t, namespace, recorded("Knative", named("stored", "deploymentMode=Serverless", predictor("deploymentStrategy: {type: Recreate}, minReplicas: 1"))))
	stored.SetFinalizers([]string{"modelplane.dev/test"})
	create(t, c, stored)
	serveRules(t, cluster, namespace)

	t.Run("users' manifests", func(t *testing.T) { takesTheirs(t, cluster) })
	t.Run("examples", func(t *testing.T) { agrees(t, c, namespace) })
	t.Run("defaults", func(t *testing.T) { fillsIn(t, c, namespace) })
	t.Run("mode", func(t *testing.T) { keepsMode(t, c, namespace) })
	t.Run("stored before", func(t *testing.T) { letsGo(t, c, stored) })
	t.Run("misspelt", func(t *testing.T) { noticesMisspelling(t, c, namespace) })
	t.Run("applied twice", func(t *testing.T) { appliesTwice(t, cluster, namespace) })
}

// agrees asks the server about examples that need nothing but themselves, and
// wants the words that the table has.
func agrees(t *testing.T, c client.Client, namespace string) {
	kinds := kindsForTest(t)
	asked := 0
	for _, table := range [][]example{modeExamples, fieldExamples, implementationExamples, storageExamples, scalingExamples, nodeExamples, otherExamples} {
		for _, e := range table {
			if e.old != "" || e.given != "" {
				continue
			}
			asked++
			want, _ := admitted(t, kinds, e)
			u := object(t, namespace, e.object)
			err := c.Create(t.Context(), u, client.DryRunAll)
			if e.ok && err != nil {
				t.Errorf("%s: refused: %v", e.name, err)
			}
			if !e.ok && err == nil {
				t.Errorf("%s: accepted", e.name)
			}
			if !e.ok && !said(err, want) {
				t.Errorf("%s: the server says\n%v\nwant all of\n%s", e.name, err, strings.Join(want, "\n"))
			}
		}
	}
	if asked < 150 {
		t.Errorf("only %d examples were asked about", asked)
	}
}

// said tells whether an answer has all messages. What the schema refuses never
// reaches a rule, and is said in the words of the server.
func said(err error, want []string) bool {
	if err == nil || !strings.Contains(err.Error(), "denied the request") {
		return err != nil
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return true
}

// takesTheirs stores the manifests that users have, runtimes first.
func takesTheirs(t *testing.T, cluster *testkit.Cluster) {
	theirs := checkout.Manifests(t, "kserve")
	namespace := cluster.Namespace(t)
	count := 0
	for _, pattern := range []string{"runtimes/*.yaml", "*.yaml"} {
		files, err := filepath.Glob(filepath.Join(theirs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			u := object(t, namespace, string(text))
			if err := cluster.Client().Create(t.Context(), u); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			t.Cleanup(func() { _ = cluster.Client().Delete(context.Background(), u) })
			count++
		}
	}
	if count < 10 {
		t.Errorf("only %d manifests were found in %s", count, theirs)
	}
	conflict := object(t, namespace, runtimeOf("another", `protocolVersions: [v2], containers: [{name: kserve-container, image: a}], supportedModelFormats: [{name: huggingface, version: "1", autoSelect: true, priority: 2}]`))
	testkit.Eventually(t, 30*time.Second, "a runtime of the same priority to be refused", func() error {
		err := cluster.Client().Create(t.Context(), conflict.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "same priority assigned for the model format huggingface in the ClusterServingRuntime kserve-huggingfaceserver-multinode") {
			return fmt.Errorf("creating it returned: %w", err)
		}
		return nil
	})
}

func fillsIn(t *testing.T, c client.Client, namespace string) {
	u := object(t, namespace, named("defaults", "", `{predictor: {sklearn: {storageUri: s3://a}}, transformer: {containers: [{name: t, image: t}]}}`))
	create(t, c, u)
	for path, want := range map[string]string{
		"metadata.annotations.serving%kserve%io/deploymentMode": "Standard",
		"metadata.annotations.modelFormat":                      "sklearn",
		"spec.predictor.model.modelFormat.name":                 "sklearn",
		"spec.predictor.model.storageUri":                       "s3://a",
	} {
		parts := strings.Split(path, ".")
		for i := range parts {
			parts[i] = strings.ReplaceAll(parts[i], "%", ".")
		}
		if got, _, _ := unstructured.NestedString(u.Object, parts...); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if _, has, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "predictor", "sklearn"); has {
		t.Error("the framework block is still there beside the model")
	}
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "transformer", "containers")
	if name := containers[0].(map[string]any)["name"]; name != mainContainer {
		t.Errorf("the container of the transformer is called %v", name)
	}
}

// keepsMode goes through the life of a service whose mode was recorded.
func keepsMode(t *testing.T, c client.Client, namespace string) {
	u := object(t, namespace, named("modal", "", plain))
	create(t, c, u)
	if err := unstructured.SetNestedField(u.Object, "Standard", "status", "deploymentMode"); err != nil {
		t.Fatal(err)
	}
	if err := c.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	changed := u.DeepCopy()
	changed.SetAnnotations(map[string]string{"serving.kserve.io/deploymentMode": "Serverless"})
	if err := c.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), "cannot be changed from 'Standard' to 'Knative'") {
		t.Errorf("changing the mode returned %v", err)
	}
	left := u.DeepCopy()
	left.SetAnnotations(nil)
	unstructured.RemoveNestedField(left.Object, "status") // as a client that never read it
	if err := c.Update(t.Context(), left); err != nil {
		t.Errorf("leaving the mode out: %v", err)
	}
	if got := left.GetAnnotations()["serving.kserve.io/deploymentMode"]; got != "Standard" {
		t.Errorf("the mode is %q after it was left out", got)
	}
}

// letsGo changes, and then deletes, an object that was stored before there were
// rules and breaks one of them.
func letsGo(t *testing.T, c client.Client, u *unstructured.Unstructured) {
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(u.Object, int64(2), "spec", "predictor", "minReplicas"); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), u); err != nil {
		t.Fatalf("an unrelated change is refused: %v", err)
	}
	worse := u.DeepCopy()
	if err := unstructured.SetNestedField(worse.Object, "RollingUpdate", "spec", "predictor", "deploymentStrategy", "type"); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), worse); err == nil || !strings.Contains(err.Error(), "Knative mode cannot honour this field") {
		t.Errorf("changing the field that is wrong returned %v", err)
	}
	if err := c.Delete(t.Context(), u); err != nil {
		t.Fatalf("it cannot be deleted: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	u.SetFinalizers(nil)
	if err := c.Update(t.Context(), u); err != nil {
		t.Fatalf("its finalizer cannot be removed: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u); err == nil || client.IgnoreNotFound(err) != nil {
		t.Errorf("it is still there: %v", err)
	}
}

// noticesMisspelling sends what kubectl would not: other clients do not ask for fields to be validated, and what the API
// server does not know it drops for them.
func noticesMisspelling(t *testing.T, c client.Client, namespace string) {
	for text, want := range map[string]string{
		isvc("", predictor("minReplica: 2")):                                                   `spec.predictor.minReplica: unknown field; did you mean "minReplicas"?`,
		isvc("", `{predictor: {model: {modelFormat: {name: sklearn}, storageURI: s3://a/b}}}`): `spec.predictor.model.storageURI: unknown field; did you mean "storageUri"?`,
		isvc("", `{predictor: {sklearn: {storageURI: s3://a/b}}}`):                             `spec.predictor.sklearn.storageURI: unknown field; did you mean "storageUri"?`,
		isvc("", `{predictor: {`+iris+`}, transfomer: {containers: [{image: t}]}}`):            `spec.transfomer: unknown field; did you mean "transformer"?`,
		runtimeOf(namespace, oneContainer+", supportedModelFormat: [{name: a}]"):               `spec.supportedModelFormat: unknown field; did you mean "supportedModelFormats"?`,
		graph("root: {routerType: Sequence, steps: [{serviceNam: a}]}"):                        `spec.nodes[root].steps[0].serviceNam: unknown field; did you mean "serviceName"?`,
	} {
		err := c.Create(t.Context(), object(t, namespace, text), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nreturned %v\nwant %s", text, err, want)
		}
	}
}

// appliesTwice applies a manifest with a framework block, which is stored as a
// model, again with another model: kubectl then sends both.
func appliesTwice(t *testing.T, cluster *testkit.Cluster, namespace string) {
	for _, uri := range []string{"s3://models/one", "s3://models/two"} {
		text := named("applied", "", `{predictor: {sklearn: {storageUri: '`+uri+`'}}}`)
		text = strings.Replace(text, "namespace: a", "namespace: "+namespace, 1)
		if _, stderr, err := cluster.Kubectl(t, text, "apply", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		u := object(t, namespace, text)
		if err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedString(u.Object, "spec", "predictor", "model", "storageUri"); got != uri {
			t.Errorf("the model is at %q, want %q", got, uri)
		}
	}
	_, stderr, err := cluster.Kubectl(t, strings.Replace(named("warned", standard+" disable-autoupdate=x", predictor("containerConcurrency: 3")), "namespace: a", "namespace: "+namespace, 1),
		"apply", "-f", "-")
	if err != nil || !strings.Contains(stderr, "Warning: spec.predictor.containerConcurrency: has no effect in Standard mode") ||
		!strings.Contains(stderr, "did you mean disable-auto-update?") {
		t.Errorf("kubectl shows %q, %v", stderr, err)
	}
}

func create(t *testing.T, c client.Client, u *unstructured.Unstructured) {
	t.Helper()
	status, has := u.Object["status"]
	if err := c.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if has {
		u.Object["status"] = status
		if err := c.Status().Update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
}

// object reads a manifest into a namespace, if its kind has one.
func object(t *testing.T, namespace, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !strings.HasPrefix(u.GetKind(), "Cluster") {
		u.SetNamespace(namespace)
	}
	return u
}

// serveRules runs the webhooks with a reader on the API server and tells it of
// them.
func serveRules(t *testing.T, cluster *testkit.Cluster, namespace string) {
	t.Helper()
	kinds := kindsForTest(t)
	Rules{Config: settings(t, nil)}.Apply(kinds)
	scheme := runtime.NewScheme()
	if err := admission.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	dir, ca := cluster.ServingCert(t)
	port := testkit.FreePort(t)
	server := &readingServer{webhook.NewServer(webhook.Options{Host: cluster.WebhookHost(), Port: port, CertDir: dir}), admission.FromClient(c)}
	if err := admission.Register(server, scheme, kinds...); err != nil {
		t.Fatal(err)
	}
	cluster.Serve(t, server, port)
	install(t, cluster, port, ca, kinds)
	probe := object(t, namespace, isvc(standard, `{predictor: {}}`))
	testkit.Eventually(t, 30*time.Second, "the webhooks to be asked", func() error {
		if err := cluster.Client().Create(t.Context(), probe.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "exactly one of") {
			return fmt.Errorf("an empty predictor returned: %w", err)
		}
		return nil
	})
}

// readingServer gives requests something to read with, as the manager does.
type readingServer struct {
	webhook.Server
	reader admission.Reader
}

func (s *readingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		hook.ServeHTTP(w, req.WithContext(admission.WithReader(req.Context(), s.reader)))
	}))
}

func install(t *testing.T, cluster *testkit.Cluster, port int, ca []byte, kinds []admission.Kind) {
	t.Helper()
	validating, mutating, err := admission.Webhooks("modelplane-admit", admission.Service{Namespace: "n", Name: "s"}, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range validating.Webhooks {
		cluster.PointWebhook(&validating.Webhooks[i].ClientConfig, port, ca)
		// The older form of a review is understood as well.
		validating.Webhooks[i].AdmissionReviewVersions = []string{"v1beta1", "v1"}
	}
	for i := range mutating.Webhooks {
		cluster.PointWebhook(&mutating.Webhooks[i].ClientConfig, port, ca)
	}
	for _, obj := range []client.Object{mutating, validating} {
		if err := cluster.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cluster.Client().Delete(context.Background(), obj); err != nil {
				t.Errorf("removing the webhooks: %v", err)
			}
		})
	}
}
