// SPDX-License-Identifier: Apache-2.0

package knative_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/testkit"
)

func container(image string) []corev1.Container {
	return []corev1.Container{{Name: "kserve-container", Image: image}}
}

// defaults fills in, on every write, what Knative's own webhook does: also inside lists that are owned as a whole.
func defaults(_ context.Context, req admission.Request) admission.Response {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(req.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, key := range []string{"serving.knative.dev/creator", "serving.knative.dev/lastModifier"} {
		if annotations[key] == "" {
			annotations[key] = req.UserInfo.Username
		}
	}
	u.SetAnnotations(annotations)
	spec, _, _ := unstructured.NestedMap(u.Object, "spec", "template", "spec")
	for key, value := range map[string]any{"timeoutSeconds": int64(300), "containerConcurrency": int64(0), "enableServiceLinks": false} {
		if _, set := spec[key]; !set {
			spec[key] = value
		}
	}
	for i, c := range spec["containers"].([]any) {
		c := c.(map[string]any)
		if c["resources"] == nil {
			c["resources"] = map[string]any{}
		}
		if i == 0 && c["readinessProbe"] == nil {
			c["readinessProbe"] = map[string]any{"tcpSocket": map[string]any{"port": int64(0)}, "successThreshold": int64(1)}
		}
	}
	u.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"] = spec
	changed, err := json.Marshal(u)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, changed)
}

// withKnative installs Knative's kinds and a webhook that stands in for its own.
func withKnative(t *testing.T) *testkit.Cluster {
	t.Helper()
	cluster := testkit.Start(t)
	cluster.Install(t, testkit.Knative)
	dir, ca := cluster.ServingCert(t)
	port := testkit.FreePort(t)
	server := webhook.NewServer(webhook.Options{Host: cluster.WebhookHost(), Port: port, CertDir: dir})
	server.Register("/defaults", &webhook.Admission{Handler: admission.HandlerFunc(defaults)})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the webhook server: %v", err)
		}
	})
	testkit.Eventually(t, 10*time.Second, "the webhook server", func() error { return server.StartedChecker()(&http.Request{}) })
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook.serving.knative.dev"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "webhook.serving.knative.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(cluster.WebhookURL(port, "defaults")), CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"serving.knative.dev"}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
			}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := cluster.Client().Create(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Client().Delete(context.Background(), hook) })
	return cluster
}

// waitForDefaults returns when the API server asks the webhook.
func waitForDefaults(t *testing.T, cluster *testkit.Cluster) {
	t.Helper()
	probe := knative.Part{Name: "probe", Namespace: cluster.Namespace(t)}
	probe.Pod.Containers = container("example.com/probe:1")
	testkit.Eventually(t, 20*time.Second, "the webhook to be asked", func() error {
		u := knative.Service(probe, v1beta1.ComponentStatusSpec{}, config.Default())
		if err := cluster.Client().Create(t.Context(), u, client.DryRunAll); err != nil {
			return err
		}
		if u.GetAnnotations()["serving.knative.dev/creator"] == "" {
			return errors.New("nothing was filled in")
		}
		return nil
	})
}

func apply(t *testing.T, c client.Client, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	body := obj.DeepCopy()
	err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(body), client.FieldOwner("modelplane-test"), client.ForceOwnership)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// Every change of a template is a new revision. So neither a second apply may change anything, whatever Knative filled
// in, nor may the take-over of a Service that KServe's controller made.
func TestNoNewRevision(t *testing.T) {
	cluster := withKnative(t)
	waitForDefaults(t, cluster)
	for _, path := range inputs(t) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			in := readFile(t, path)
			t.Run("second apply", func(t *testing.T) {
				in.Part.Namespace = cluster.Namespace(t)
				wanted := knative.Service(in.Part, in.Status, &in.Config)
				first := apply(t, cluster.Client(), wanted)
				second := apply(t, cluster.Client(), wanted)
				third := apply(t, cluster.Client(), wanted)
				if second.GetGeneration() != 1 || second.GetResourceVersion() != third.GetResourceVersion() {
					t.Errorf("an apply changes something (-first +third):\n%s", cmp.Diff(first.Object, third.Object))
				}
				if first.GetResourceVersion() != second.GetResourceVersion() {
					t.Errorf("the second apply changes something (-first +second):\n%s", cmp.Diff(first.Object, second.Object))
				}
			})
			t.Run("take-over", func(t *testing.T) {
				in.Part.Namespace = cluster.Namespace(t)
				wanted := knative.Service(in.Part, in.Status, &in.Config)
				theirs := wanted.DeepCopy()
				if err := cluster.Client().Create(t.Context(), theirs, client.FieldOwner("manager")); err != nil {
					t.Fatal(err)
				}
				after := apply(t, cluster.Client(), wanted)
				if diff := cmp.Diff(theirs.Object["spec"], after.Object["spec"]); diff != "" || after.GetGeneration() != theirs.GetGeneration() {
					t.Errorf("the take-over changes the spec (-before +after):\n%s", diff)
				}
			})
		})
	}
}
