// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

func TestCorrect(t *testing.T) {
	const at = "/webhooks/0/clientConfig"
	ours := func() *serviceRef { return &serviceRef{Namespace: "ns", Name: "webhook", Path: ptr.To("/validate")} }
	bundle, other := []byte("roots"), []byte("other")
	setBundle := operation{Op: "add", Path: at + "/caBundle", Value: bundle}
	removeService := operation{Op: "remove", Path: at + "/service"}
	setURL := operation{Op: "add", Path: at + "/url", Value: "https://host:1/base/validate"}
	base := &url.URL{Scheme: "https", Host: "host:1", Path: "/base"}
	for _, c := range []struct {
		name   string
		in     callback
		base   *url.URL
		bundle []byte
		want   []operation
	}{
		{name: "up to date", in: callback{service: ours(), bundle: bundle}, bundle: bundle},
		{name: "no roots yet", in: callback{service: ours()}, bundle: bundle, want: []operation{setBundle}},
		{name: "other roots", in: callback{service: ours(), bundle: other}, bundle: bundle, want: []operation{setBundle}},
		{name: "roots are somebody else's affair", in: callback{service: ours(), bundle: other}},
		{name: "a former name of the service", in: callback{service: &serviceRef{Namespace: "ns", Name: "former"}, bundle: other}, bundle: bundle,
			want: []operation{setBundle}},
		{name: "that name elsewhere", in: callback{service: &serviceRef{Namespace: "elsewhere", Name: "former"}}, bundle: bundle},
		{name: "another installation", in: callback{service: &serviceRef{Namespace: "elsewhere", Name: "webhook"}}, bundle: bundle},
		{name: "another service", in: callback{service: &serviceRef{Namespace: "ns", Name: "other"}}, base: base, bundle: bundle},
		{name: "service to URL", in: callback{service: ours()}, base: base, bundle: bundle,
			want: []operation{removeService, setURL, setBundle}},
		{name: "service to URL, roots not ours", in: callback{service: ours()}, base: base,
			want: []operation{removeService, setURL}},
		{name: "URL up to date", in: callback{url: ptr.To("https://host:1/base/validate"), bundle: bundle}, base: base, bundle: bundle},
		{name: "URL of an earlier run", in: callback{url: ptr.To("https://host:2/base/validate"), bundle: bundle}, base: base,
			bundle: bundle, want: []operation{setURL}},
		{name: "URL to service", in: callback{url: ptr.To("https://host:2/validate"), bundle: bundle}, bundle: bundle,
			want: []operation{{Op: "remove", Path: at + "/url"}, {Op: "add", Path: at + "/service", Value: *ours()}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &injector{service: serviceRef{Namespace: "ns", Name: "webhook"}, former: []string{"former"}, base: c.base}
			c.in.pointer = at
			if diff := cmp.Diff(c.want, i.correct(c.in, c.bundle)); diff != "" {
				t.Errorf("unexpected operations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHosts: the certificate is good for every name by which the process is reached.
func TestHosts(t *testing.T) {
	k := &Keeper{opts: Options{Namespace: "ns", Service: "webhook", Former: []string{"former"}, Aliases: []string{"metrics", ""}}}
	for _, service := range []string{"webhook", "former", "metrics"} {
		if host := service + ".ns.svc"; !slices.Contains(k.hosts(), host) {
			t.Errorf("%s is not among %v", host, k.hosts())
		}
	}
}

// convertedCRD is a definition whose versions are converted by a webhook at the Service.
func convertedCRD(b *bench) *apiextensionsv1.CustomResourceDefinition {
	b.t.Helper()
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: ptr.To(true)}}}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "converts.certs.modelplane.test", Labels: map[string]string{PartOfLabel: PartOfValue}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    "certs.modelplane.test",
			Scope:    apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "converts", Singular: "convert", Kind: "Convert", ListKind: "ConvertList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ConversionReviewVersions: []string{"v1"},
					ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
						Namespace: b.namespace, Name: b.service, Path: ptr.To("/convert")}},
				},
			},
		},
	}
	if err := b.cluster.Client().Create(b.t.Context(), crd); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = b.cluster.Client().Delete(context.Background(), crd) })
	return crd
}

func TestEveryKindOfWebhookIsPointedAtUs(t *testing.T) {
	b := newBench(t)
	crd := convertedCRD(b)
	foreign := b.createConfig("foreign")
	foreign.Webhooks[0].ClientConfig.Service.Namespace = "another-installation"
	mutating := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace, Labels: map[string]string{PartOfLabel: PartOfValue}},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "one.modelplane.test", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: *b.config.Webhooks[0].ClientConfig.DeepCopy(),
		}, {
			Name: "two.modelplane.test", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: *b.config.Webhooks[0].ClientConfig.DeepCopy(),
		}},
	}
	for _, err := range []error{b.cluster.Client().Update(t.Context(), foreign), b.cluster.Client().Create(t.Context(), mutating)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = b.cluster.Client().Delete(context.Background(), mutating) })

	keeper, _ := b.replica(b.cluster.Config(), clocktesting.NewFakeClock(time.Now()), Lifetimes{})
	b.ready(keeper)
	bundle := b.secret().Data[keyRoots]
	testkit.Eventually(t, patience, "all webhooks to be ours", func() error {
		for _, obj := range []client.Object{crd, mutating, foreign} {
			if err := b.cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
		}
		conversion := crd.Spec.Conversion.Webhook.ClientConfig
		if !bytes.Equal(conversion.CABundle, bundle) || conversion.Service != nil || *conversion.URL != b.address.String()+"/convert" {
			return fmt.Errorf("conversion: %v", conversion)
		}
		for _, webhook := range mutating.Webhooks {
			c := webhook.ClientConfig
			if !bytes.Equal(c.CABundle, bundle) || c.Service != nil || *c.URL != b.address.String()+"/validate" {
				return fmt.Errorf("webhook %s: %v", webhook.Name, c)
			}
		}
		return b.consistent()
	})
	if c := foreign.Webhooks[0].ClientConfig; c.URL != nil || c.CABundle != nil {
		t.Errorf("the webhook of another installation was changed: %v", c)
	}
}

func TestWipedRootsAreRepaired(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	keeper, _ := b.replica(counter.Wrap(b.cluster.Config()), clocktesting.NewFakeClock(time.Now()), Lifetimes{})
	b.ready(keeper)
	b.behind(keeper)
	testkit.Eventually(t, patience, "the first injection", b.consistent)
	for _, wipe := range []struct {
		name string
		edit func(*admissionv1.WebhookClientConfig)
	}{
		{"roots", func(c *admissionv1.WebhookClientConfig) { c.CABundle = nil }},
		{"everything", func(c *admissionv1.WebhookClientConfig) { *c = b.config.Webhooks[0].ClientConfig }},
	} {
		t.Run(wipe.name, func(t *testing.T) {
			before := counter.Snapshot()
			var config admissionv1.ValidatingWebhookConfiguration
			if err := b.cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(b.config), &config); err != nil {
				t.Fatal(err)
			}
			wipe.edit(&config.Webhooks[0].ClientConfig)
			if err := b.cluster.Client().Update(t.Context(), &config); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, patience, "the repair", func() error {
				return errors.Join(b.consistent(), b.admit(t.Context()))
			})
			if writes := counter.Since(before).Writes(); writes != 1 {
				t.Errorf("%d writes for one repair:\n%s", writes, counter.Since(before))
			}
		})
	}
}

// TestConfigurationThatComesLaterIsCompleted: a chart may be installed after the manager.
func TestConfigurationThatComesLaterIsCompleted(t *testing.T) {
	b := newBench(t)
	keeper := b.keeper(b.cluster.Config(), Options{Clock: clocktesting.NewFakeClock(time.Now()), Log: testLog(t)})
	if err := b.cluster.Client().Delete(t.Context(), b.config); err != nil {
		t.Fatal(err)
	}
	b.run(keeper)
	b.ready(keeper)
	b.behind(keeper)
	b.config = b.createConfig("validate")
	testkit.Eventually(t, patience, "the injection", b.consistent)
	b.settled()
}

// TestLateReplicaTakesNothingBack: a replica that does not learn of a new Secret sees roots that it does not know appear
// in the webhook configuration. It must not replace them by those it knows.
func TestLateReplicaTakesNothingBack(t *testing.T) {
	b := newBench(t)
	clock := clocktesting.NewFakeClock(time.Now())
	stalled := make(chan struct{})
	counter := testkit.NewCounter()
	lateOne, _ := b.replica(counter.Wrap(stallSecrets(b.cluster.Config(), stalled)), clock, Lifetimes{})
	b.ready(lateOne)
	prompt, _ := b.replica(b.cluster.Config(), clock, Lifetimes{})
	b.ready(prompt)
	old := b.roots()[0]
	close(stalled)
	before := counter.Snapshot()
	if err := b.cluster.Client().Delete(t.Context(), b.secret()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "another root beside the old one", func() error {
		if err := b.consistent(); err != nil {
			return err
		}
		if roots := b.roots(); len(roots) != 2 || !contains(roots, old) {
			return fmt.Errorf("%d roots", len(roots))
		}
		return nil
	})
	injections := func() int {
		return counter.Since(before).Of("patch", "admissionregistration.k8s.io/validatingwebhookconfigurations")
	}
	testkit.Eventually(t, patience, "the late replica to look", func() error {
		if counter.Since(before).Of("get", "secrets")+injections() == 0 {
			return errors.New("it did nothing")
		}
		return nil
	})
	testkit.Quiet(t, time.Second, "the new root's stay", func() error {
		if n := injections(); n > 0 {
			return fmt.Errorf("the late replica wrote the configuration %d times", n)
		}
		return b.consistent()
	})
}

// stallSecrets lets watches of Secrets hang, without an end, from the moment the channel is closed.
func stallSecrets(cfg *rest.Config, stalled <-chan struct{}) *rest.Config {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && req.URL.Query().Get("watch") == "true" && strings.HasSuffix(req.URL.Path, "/secrets") {
				resp.Body = &stalling{ReadCloser: resp.Body, stalled: stalled, ended: req.Context().Done()}
			}
			return resp, err
		})
	})
	return cfg
}

type stalling struct {
	io.ReadCloser
	stalled, ended <-chan struct{}
}

func (s *stalling) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	select {
	case <-s.stalled:
		<-s.ended
		return 0, io.EOF
	default:
		return n, err
	}
}
