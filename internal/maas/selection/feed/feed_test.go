// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maas "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestConversions: what the index is told of objects.
func TestConversions(t *testing.T) {
	gone := metav1.NewTime(time.Unix(5, 0))
	s := &maas.MaaSSubscription{ObjectMeta: metav1.ObjectMeta{Namespace: "maas", Name: "gold", DeletionTimestamp: &gone, Annotations: map[string]string{displayName: "Gold", description: "best"}}}
	s.Spec.Owner = maas.Subjects{Users: []string{"ann"}, Groups: []maas.GroupRef{{Name: "team"}}}
	s.Spec.Priority, s.Spec.TokenMetadata = 3, &maas.BillingMetadata{OrganizationID: "o", CostCenter: "c", Labels: map[string]string{"a": "b"}}
	for _, namespace := range []string{"x", "y"} {
		s.Spec.ModelRefs = append(s.Spec.ModelRefs, maas.SubscribedModel{
			ModelRef: maas.ModelRef{Namespace: namespace, Name: "m"}, TokenRateLimits: []maas.TokenRateLimit{{Limit: 7, Window: "1h"}}, BillingRate: &maas.BillingRate{PerToken: "1"},
		})
	}
	s.Status.Phase = maas.PhaseDegraded
	s.Status.TokenRateLimitStatuses = []maas.TokenRateLimitStatus{{ResourceStatus: maas.ResourceStatus{Name: "p", Namespace: "y", Ready: true}, Model: "m"}}
	model := func(namespace string, limited bool) selection.SubscribedModel {
		return selection.SubscribedModel{Model: selection.Model{Namespace: namespace, Name: "m"}, Limits: []selection.Limit{{Tokens: 7, Window: "1h"}}, PerToken: "1", Limited: limited}
	}
	if diff := cmp.Diff(&selection.Subscription{
		Namespace: "maas", Name: "gold", DisplayName: "Gold", Description: "best", Users: []string{"ann"}, Groups: []string{"team"}, Priority: 3, Phase: selection.Degraded,
		Deleted: gone.Time, OrganizationID: "o", CostCenter: "c", Labels: map[string]string{"a": "b"}, Models: []selection.SubscribedModel{model("x", false), model("y", true)},
	}, SubscriptionOf(s)); diff != "" {
		t.Error(diff)
	}
	r := &maas.MaaSModelRef{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "m", Annotations: map[string]string{capabilities: `["chat","tools"]`, useCase: "talk", contextWindow: "8k"}}}
	r.Spec.ModelRef = maas.BackendRef{Kind: maas.ExternalModelModel, Name: "gpt"}
	r.Status = maas.MaaSModelRefStatus{Phase: maas.MaaSModelRefReady, Endpoint: "https://endpoint", HTTPRouteHostnames: []string{"host"}}
	if diff := cmp.Diff(&selection.ModelRef{
		Model: selection.Model{Namespace: "x", Name: "m"}, Alias: "gpt", Kind: "ExternalModel", Backend: "gpt", URL: "https://host", Ready: true, UseCase: "talk", ContextWindow: "8k",
		Capabilities: []string{"chat", "tools"},
	}, ModelRefOf(r)); diff != "" {
		t.Error(diff)
	}
	r.Annotations[capabilities], r.Status.HTTPRouteHostnames, r.Spec.ModelRef.Kind, r.Status.Phase = "{", nil, maas.LLMInferenceServiceModel, maas.MaaSModelRefPending
	if got := ModelRefOf(r); got.Capabilities != nil || got.URL != "https://endpoint" || got.Alias != "" || got.Ready {
		t.Errorf("it is %+v", got)
	}
}

// TestFeed: the index follows a real API server, until the last object is gone.
func TestFeed(t *testing.T) {
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Spec.Group == maas.GroupVersion.Group {
			cluster.InstallCRDs(t, crd)
		}
	}
	namespace, elsewhere := cluster.Namespace(t), cluster.Namespace(t)
	dynamicClient, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	index := selection.NewIndex()
	f, err := New(dynamicClient, namespace, index, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { stop(); <-ended }()
	scheme := cluster.Scheme()
	if err := maas.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	subscription := func(namespace string) *maas.MaaSSubscription {
		s := &maas.MaaSSubscription{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gold"}}
		s.Spec.Owner.Users = []string{"ann"}
		s.Spec.ModelRefs = []maas.SubscribedModel{{ModelRef: maas.ModelRef{Namespace: "models", Name: "llama"}, TokenRateLimits: []maas.TokenRateLimit{{Limit: 1, Window: "1m"}}}}
		return s
	}
	policy := &maas.MaaSAuthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	policy.Spec.ModelRefs, policy.Spec.Subjects.Users = []maas.ModelRef{{Namespace: "models", Name: "llama"}}, []string{"ann"}
	ref := &maas.MaaSModelRef{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "r"}}
	ref.Spec.ModelRef = maas.BackendRef{Kind: maas.ExternalModelModel, Name: "r"}
	mine, theirs := subscription(namespace), subscription(elsewhere)
	for _, o := range []client.Object{mine, theirs, policy, ref} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	mine.Status.Phase = maas.PhaseActive
	if err := c.Status().Update(ctx, mine); err != nil {
		t.Fatal(err)
	}
	ask := selection.Request{Username: "ann", Model: "models/llama"}
	testkit.Eventually(t, time.Minute, "the subscription to be chosen", func() error {
		choice, err := index.Select(ask)
		switch {
		case err != nil:
			return err
		case !choice.Allowed || !f.Synced() || choice.Subscription.Namespace != namespace || index.ModelRef(selection.Model{Namespace: elsewhere, Name: "r"}) == nil:
			return errors.New("not everything is there yet")
		}
		return nil
	})
	for _, o := range []client.Object{mine, theirs, policy, ref} {
		if err := c.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, time.Minute, "everything to be gone", func() error {
		if s, p, r := index.Sizes(); s+p+r > 0 {
			return errors.New("something is still there")
		}
		return nil
	})
}
