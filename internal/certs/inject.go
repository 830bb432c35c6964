// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PartOfLabel and PartOfValue mark the webhook configurations and CRDs that are looked after.
const (
	PartOfLabel = "app.kubernetes.io/part-of"
	PartOfValue = "modelplane"
)

// fieldOwner is the name under which managed fields show the writes of this package.
const fieldOwner = client.FieldOwner("modelplane-certs")

var (
	validatingKind = admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	mutatingKind   = admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")
	crdKind        = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
)

// callback is one place from which the API server calls us, in one of three kinds of object.
type callback struct {
	pointer string // JSON pointer to the client configuration
	url     *string
	service *serviceRef
	bundle  []byte
}

type serviceRef struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Path      *string `json:"path,omitempty"`
}

// target is one object with the places in it.
type target struct {
	kind      schema.GroupVersionKind
	name      string
	version   string
	callbacks []callback
}

// injector points the API server at us: address and trusted roots. It writes only what differs.
type injector struct {
	client  client.Client
	service serviceRef // ours; a configuration that names another service belongs to another installation
	former  []string   // further names of our service
	base    *url.URL   // set when the API server reaches us by URL
	log     logr.Logger
}

// selector picks our objects; the caches use it too.
func selector() labels.Selector {
	return labels.SelectorFromSet(labels.Set{PartOfLabel: PartOfValue})
}

// ensure brings every place up to date. It tries all of them before it reports what failed. Conflicts are errors for a
// live reader, who wants certainty, and nothing for a cached one, whom the watch will wake again.
func (i *injector) ensure(ctx context.Context, reader client.Reader, bundle []byte) error {
	targets, err := i.targets(ctx, reader)
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range targets {
		err := i.ensureTarget(ctx, t, bundle)
		if apierrors.IsConflict(err) && reader != client.Reader(i.client) {
			err = nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// done tells whether every place is up to date.
func (i *injector) done(ctx context.Context, reader client.Reader, bundle []byte) (bool, error) {
	targets, err := i.targets(ctx, reader)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(targets, func(t target) bool { return len(i.corrections(t, bundle)) > 0 }), nil
}

func (i *injector) corrections(t target, bundle []byte) []operation {
	var ops []operation
	for _, c := range t.callbacks {
		ops = append(ops, i.correct(c, bundle)...)
	}
	return ops
}

func (i *injector) ensureTarget(ctx context.Context, t target, bundle []byte) error {
	ops := i.corrections(t, bundle)
	if len(ops) == 0 {
		return nil
	}
	// The resource version turns a list that changed its order meanwhile into a conflict.
	ops = append([]operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: t.version}}, ops...)
	patch, err := json.Marshal(ops)
	if err != nil {
		return fmt.Errorf("encode the patch for %s %q: %w", t.kind.Kind, t.name, err)
	}
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: t.name}}
	obj.SetGroupVersionKind(t.kind)
	err = i.client.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, patch), fieldOwner)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("point %s %q at this manager: %w", t.kind.Kind, t.name, err)
	}
	injections.WithLabelValues(t.kind.Kind).Inc()
	i.log.Info("Pointed webhooks at this manager", "kind", t.kind.Kind, "name", t.name)
	return nil
}

// operation is one line of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// correct lists what has to change in one place. "add" also replaces.
func (i *injector) correct(c callback, bundle []byte) []operation {
	if c.service != nil && !i.ours(*c.service) {
		return nil
	}
	var ops []operation
	if i.base != nil {
		want := i.base.String() + i.pathOf(c)
		if c.service != nil {
			ops = append(ops, operation{Op: "remove", Path: c.pointer + "/service"})
		}
		if c.url == nil || *c.url != want {
			ops = append(ops, operation{Op: "add", Path: c.pointer + "/url", Value: want})
		}
	} else if c.url != nil {
		path := i.pathOf(c)
		ours := serviceRef{Namespace: i.service.Namespace, Name: i.service.Name, Path: &path}
		ops = append(ops,
			operation{Op: "remove", Path: c.pointer + "/url"},
			operation{Op: "add", Path: c.pointer + "/service", Value: ours})
	}
	if bundle != nil && !bytes.Equal(c.bundle, bundle) {
		ops = append(ops, operation{Op: "add", Path: c.pointer + "/caBundle", Value: bundle})
	}
	return ops
}

// ours tells whether a service leads here.
func (i *injector) ours(s serviceRef) bool {
	return s.Namespace == i.service.Namespace && (s.Name == i.service.Name || slices.Contains(i.former, s.Name))
}

// pathOf is the webhook's path, however the place is addressed at the moment.
func (i *injector) pathOf(c callback) string {
	if c.service != nil {
		if c.service.Path == nil {
			return ""
		}
		return *c.service.Path
	}
	if c.url == nil {
		return ""
	}
	u, err := url.Parse(*c.url)
	if err != nil {
		return ""
	}
	if i.base != nil {
		return strings.TrimPrefix(u.Path, i.base.Path)
	}
	return u.Path
}

// bundles collects the roots that the API server trusts for us at the moment.
func (i *injector) bundles(ctx context.Context, reader client.Reader) ([][]byte, error) {
	targets, err := i.targets(ctx, reader)
	if err != nil {
		return nil, err
	}
	var found [][]byte
	for _, t := range targets {
		for _, c := range t.callbacks {
			if len(c.bundle) > 0 && (c.service == nil || i.ours(*c.service)) {
				found = append(found, c.bundle)
			}
		}
	}
	return found, nil
}

// targets reads the objects of the three kinds.
func (i *injector) targets(ctx context.Context, reader client.Reader) ([]target, error) {
	mine := client.MatchingLabelsSelector{Selector: selector()}
	var validating admissionv1.ValidatingWebhookConfigurationList
	var mutating admissionv1.MutatingWebhookConfigurationList
	var crds apiextensionsv1.CustomResourceDefinitionList
	for _, list := range []client.ObjectList{&validating, &mutating, &crds} {
		if err := reader.List(ctx, list, mine); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	var all []target
	for n := range validating.Items {
		o := &validating.Items[n]
		t := target{kind: validatingKind, name: o.Name, version: o.ResourceVersion}
		for w := range o.Webhooks {
			t.callbacks = append(t.callbacks, admissionCallback(w, &o.Webhooks[w].ClientConfig))
		}
		all = append(all, t)
	}
	for n := range mutating.Items {
		o := &mutating.Items[n]
		t := target{kind: mutatingKind, name: o.Name, version: o.ResourceVersion}
		for w := range o.Webhooks {
			t.callbacks = append(t.callbacks, admissionCallback(w, &o.Webhooks[w].ClientConfig))
		}
		all = append(all, t)
	}
	for n := range crds.Items {
		o := &crds.Items[n]
		if c := conversionOf(o); c != nil {
			all = append(all, target{kind: crdKind, name: o.Name, version: o.ResourceVersion,
				callbacks: []callback{conversionCallback(c)}})
		}
	}
	return all, nil
}

func admissionCallback(index int, c *admissionv1.WebhookClientConfig) callback {
	out := callback{pointer: fmt.Sprintf("/webhooks/%d/clientConfig", index), url: c.URL, bundle: c.CABundle}
	if c.Service != nil {
		out.service = &serviceRef{Namespace: c.Service.Namespace, Name: c.Service.Name, Path: c.Service.Path}
	}
	return out
}

func conversionCallback(c *apiextensionsv1.WebhookClientConfig) callback {
	out := callback{pointer: "/spec/conversion/webhook/clientConfig", url: c.URL, bundle: c.CABundle}
	if c.Service != nil {
		out.service = &serviceRef{Namespace: c.Service.Namespace, Name: c.Service.Name, Path: c.Service.Path}
	}
	return out
}

// conversionOf is nil for a CRD that is converted without a webhook.
func conversionOf(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Strategy != apiextensionsv1.WebhookConverter || conversion.Webhook == nil {
		return nil
	}
	return conversion.Webhook.ClientConfig
}
