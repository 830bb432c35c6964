// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// Webhook is where and under which name the API server asks about multi-model runtimes, as other installations have it.
const (
	WebhookPath = "/validate-serving-modelmesh-io-v1alpha1-servingruntime"
	WebhookName = "servingruntime.modelmesh-webhook-server.default"
)

// Rules refuse multi-model runtimes that could not run.
type Rules struct {
	source *settings.Source
	live   atomic.Pointer[client.Reader]
}

// NewRules go by the settings of a source.
func NewRules(source *settings.Source) *Rules { return &Rules{source: source} }

// Connect lets the rules read the configuration from the cluster: a replica that does not lead has not read it otherwise.
func (r *Rules) Connect(live client.Reader) { r.live.Store(&live) }

// Guard is the webhook, on both kinds of runtimes.
func (r *Rules) Guard() admission.Guard {
	return admission.Guard{Name: WebhookName, Path: WebhookPath, Kinds: []admission.Kind{
		{
			GVK: v1alpha1.GroupVersion.WithKind("ServingRuntime"), Validate: r.validate,
			New: func() client.Object { return &v1alpha1.ServingRuntime{} },
		},
		{
			GVK: v1alpha1.GroupVersion.WithKind("ClusterServingRuntime"), Validate: r.validate,
			New: func() client.Object { return &v1alpha1.ClusterServingRuntime{} },
		},
	}}
}

func (r *Rules) validate(ctx context.Context, old, obj client.Object) ([]string, error) {
	rt := viewOf(obj)
	known, err := r.serverTypes(ctx, rt)
	if err != nil {
		return nil, err
	}
	found := examine(rt, known)
	if before := viewOf(old); before != nil {
		found = found.Since(examine(before, known))
	}
	return found.Result()
}

// serverTypes are the ones that there are adapters for. The configuration is asked only about one that is not usual.
func (r *Rules) serverTypes(ctx context.Context, rt *view) ([]string, error) {
	usual := settings.Default("").BuiltInServerTypes
	if rt.spec.BuiltInAdapter == nil || slices.Contains(usual, string(rt.spec.BuiltInAdapter.ServerType)) {
		return nil, nil // without one, or with one that the configuration may have taken out: the plan tells
	}
	reader := admission.ReaderFrom(ctx)
	if live := r.live.Load(); live != nil {
		reader = admission.FromClient(*live)
	}
	if reader == nil {
		return usual, nil
	}
	var texts []settings.Layer
	for _, l := range []settings.Layer{{Name: settings.DefaultsName, Key: settings.DefaultsKey}, {Name: settings.Name, Key: settings.Key}} {
		cm := &corev1.ConfigMap{}
		err := reader.Get(ctx, types.NamespacedName{Namespace: r.source.Platform().Namespace, Name: l.Name}, cm)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read the ConfigMap %s: %w", l.Name, err)
		}
		if text, ok := cm.Data[l.Key]; ok {
			l.Text = text
			texts = append(texts, l)
		}
	}
	now, _, faults := settings.Parse(r.source.Platform().PodImage, texts...)
	if len(faults) > 0 {
		return nil, nil // the plan tells
	}
	return now.BuiltInServerTypes, nil
}
