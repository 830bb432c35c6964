// SPDX-License-Identifier: Apache-2.0

// Package feed keeps an index of subscriptions up to date from a Kubernetes API server. It watches MaaSSubscriptions and
// MaaSAuthPolicies of one namespace and MaaSModelRefs of all, turns them into what the index takes, and decides nothing.
package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	maas "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/selection"
)

// Feed of an index.
type Feed struct {
	index     *selection.Index
	log       *slog.Logger
	factories []dynamicinformer.DynamicSharedInformerFactory
	synced    []cache.InformerSynced
}

// New watches the subscriptions and auth policies of a namespace, and model refs everywhere. Kinds that are not installed
// are waited for: until they are, the feed is not synced.
func New(client dynamic.Interface, namespace string, index *selection.Index, log *slog.Logger) (*Feed, error) {
	f := &Feed{index: index, log: log}
	here := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	everywhere := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	f.factories = []dynamicinformer.DynamicSharedInformerFactory{here, everywhere}
	return f, cmp.Or(
		watch(f, here, "maassubscriptions", func(s *maas.MaaSSubscription) { index.PutSubscription(SubscriptionOf(s)) }, index.DeleteSubscription),
		watch(f, here, "maasauthpolicies", func(p *maas.MaaSAuthPolicy) { index.PutAuthPolicy(AuthPolicyOf(p)) }, index.DeleteAuthPolicy),
		watch(f, everywhere, "maasmodelrefs", func(r *maas.MaaSModelRef) { index.PutModelRef(ModelRefOf(r)) },
			func(namespace, name string) {
				index.DeleteModelRef(selection.Model{Namespace: namespace, Name: name})
			}),
	)
}

// watch hands every object of a kind over, and the names of those that are gone.
func watch[T any](f *Feed, factory dynamicinformer.DynamicSharedInformerFactory, resource string, put func(*T), gone func(namespace, name string)) error {
	informer := factory.ForResource(maas.GroupVersion.WithResource(resource)).Informer()
	if err := informer.SetTransform(slim); err != nil {
		return err
	}
	seen := func(obj any) {
		object, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			// What cannot be read counts for nothing: a request is rather refused than let through by what it was before.
			f.log.Error("An object cannot be read; it is left out", "resource", resource, "namespace", object.GetNamespace(), "name", object.GetName(), "err", err.Error())
			gone(object.GetNamespace(), object.GetName())
			return
		}
		put(typed)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, now any) { seen(now) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if object, ok := obj.(*unstructured.Unstructured); ok {
				gone(object.GetNamespace(), object.GetName())
			}
		},
	})
	if err != nil {
		return err
	}
	f.synced = append(f.synced, registration.HasSynced)
	return nil
}

// slim drops what nobody reads, which is half of an object.
func slim(obj any) (any, error) {
	if object, ok := obj.(*unstructured.Unstructured); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// Run watches until the context ends.
func (f *Feed) Run(ctx context.Context) error {
	for _, factory := range f.factories {
		factory.Start(ctx.Done())
	}
	<-ctx.Done()
	for _, factory := range f.factories {
		factory.Shutdown()
	}
	return nil
}

// Synced tells whether the index has everything that was there at the start.
func (f *Feed) Synced() bool {
	return !slices.ContainsFunc(f.synced, func(synced cache.InformerSynced) bool { return !synced() })
}

// Annotations that describe objects to people.
const (
	displayName   = "openshift.io/display-name"
	description   = "openshift.io/description"
	useCase       = "opendatahub.io/genai-use-case"
	contextWindow = "opendatahub.io/context-window"
	capabilities  = "opendatahub.io/model-capabilities"
)

func deleted(o metav1.Object) time.Time {
	if t := o.GetDeletionTimestamp(); t != nil {
		return t.Time
	}
	return time.Time{}
}

func names(groups []maas.GroupRef) []string {
	out := make([]string, 0, len(groups))
	for _, g := range groups {
		out = append(out, g.Name)
	}
	return out
}

// SubscriptionOf is an object as the index takes it.
func SubscriptionOf(s *maas.MaaSSubscription) *selection.Subscription {
	out := &selection.Subscription{
		Namespace: s.Namespace, Name: s.Name, DisplayName: s.Annotations[displayName], Description: s.Annotations[description],
		Users: s.Spec.Owner.Users, Groups: names(s.Spec.Owner.Groups), Priority: s.Spec.Priority, Phase: string(s.Status.Phase), Deleted: deleted(s),
	}
	if b := s.Spec.TokenMetadata; b != nil {
		out.OrganizationID, out.CostCenter, out.Labels = b.OrganizationID, b.CostCenter, b.Labels
	}
	for _, ref := range s.Spec.ModelRefs {
		m := selection.SubscribedModel{Model: selection.Model{Namespace: ref.Namespace, Name: ref.Name}, Limited: limited(s, ref.ModelRef)}
		for _, l := range ref.TokenRateLimits {
			m.Limits = append(m.Limits, selection.Limit{Tokens: l.Limit, Window: l.Window})
		}
		if ref.BillingRate != nil {
			m.PerToken = ref.BillingRate.PerToken
		}
		out.Models = append(out.Models, m)
	}
	return out
}

// limited tells whether the status says that the limits of a model are in force. A status names the model without its
// namespace, and the namespace of the policy, which is that of the model: where two models share a name, that decides.
func limited(s *maas.MaaSSubscription, ref maas.ModelRef) bool {
	namesakes := 0
	for _, other := range s.Spec.ModelRefs {
		if other.Name == ref.Name {
			namesakes++
		}
	}
	return slices.ContainsFunc(s.Status.TokenRateLimitStatuses, func(status maas.TokenRateLimitStatus) bool {
		return status.Ready && status.Model == ref.Name && (namesakes == 1 || status.Namespace == ref.Namespace)
	})
}

// AuthPolicyOf is an object as the index takes it.
func AuthPolicyOf(p *maas.MaaSAuthPolicy) *selection.AuthPolicy {
	out := &selection.AuthPolicy{Namespace: p.Namespace, Name: p.Name, Users: p.Spec.Subjects.Users, Groups: names(p.Spec.Subjects.Groups), Deleted: deleted(p)}
	for _, ref := range p.Spec.ModelRefs {
		out.Models = append(out.Models, selection.Model{Namespace: ref.Namespace, Name: ref.Name})
	}
	return out
}

// ModelRefOf is an object as the index takes it.
func ModelRefOf(r *maas.MaaSModelRef) *selection.ModelRef {
	out := &selection.ModelRef{
		Model: selection.Model{Namespace: r.Namespace, Name: r.Name}, Alias: r.Status.ResolvedModelAlias, Created: r.CreationTimestamp.Time,
		Kind: string(r.Spec.ModelRef.Kind), Backend: r.Spec.ModelRef.Name, URL: r.Status.Endpoint, Ready: r.Status.Phase == maas.MaaSModelRefReady,
		DisplayName: r.Annotations[displayName], Description: r.Annotations[description], UseCase: r.Annotations[useCase], ContextWindow: r.Annotations[contextWindow],
	}
	if r.Spec.ModelRef.Kind == maas.ExternalModelModel {
		out.Alias = cmp.Or(out.Alias, r.Spec.ModelRef.Name)
	}
	if hosts := r.Status.HTTPRouteHostnames; len(hosts) > 0 && hosts[0] != "" {
		out.URL = fmt.Sprintf("https://%s", hosts[0])
	}
	if text := r.Annotations[capabilities]; text != "" {
		if err := json.Unmarshal([]byte(text), &out.Capabilities); err != nil {
			out.Capabilities = nil // a list that cannot be read describes nothing
		}
	}
	return out
}
