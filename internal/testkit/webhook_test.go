// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func TestWebhookOverTLS(t *testing.T) {
	cluster := Start(t)
	namespace, port := cluster.Namespace(t), FreePort(t)
	dir, ca := cluster.ServingCert(t)
	server := webhook.NewServer(webhook.Options{Host: cluster.WebhookHost(), Port: port, CertDir: dir})
	server.Register("/judge", &webhook.Admission{Handler: admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
		if req.Name == "bad" {
			return admission.Denied("bad by name")
		}
		return admission.Allowed("")
	})})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the webhook server: %v", err)
		}
	})
	Eventually(t, 10*time.Second, "the webhook server", func() error { return server.StartedChecker()(&http.Request{}) })

	config := judge(namespace)
	cluster.PointWebhook(&config.Webhooks[0].ClientConfig, port, ca)
	if want := cluster.WebhookURL(port, "judge"); *config.Webhooks[0].ClientConfig.URL != want {
		t.Errorf("URL = %s, want %s", *config.Webhooks[0].ClientConfig.URL, want)
	}
	if err := cluster.Client().Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Client().Delete(context.Background(), config) })

	configs := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().ConfigMaps(namespace)
	Eventually(t, 20*time.Second, "the webhook's verdict", func() error {
		err := create(configs, "bad")
		_ = configs.Delete(t.Context(), "bad", metav1.DeleteOptions{})
		if err == nil {
			return errors.New("not asked yet")
		}
		if !strings.Contains(err.Error(), "bad by name") {
			t.Fatalf("error = %v, want the webhook's words", err)
		}
		return nil
	})
	if err := create(configs, "good"); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// judge names a Service, as a chart would.
func judge(namespace string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none, fail, path := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, "/judge"
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "judge.testkit.modelplane.io", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "webhooks", Path: &path},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
}
