// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds of one list, so that a crowded namespace costs little.
const (
	pageSize = 500
	maxPages = 10
)

// reads looks at the cluster with the permissions of whoever asks. What may not
// be read, or cannot, is remembered and told in the end.
type reads struct {
	from client.Reader

	mu     sync.Mutex
	unread map[string]string // what, and why not
}

// query says what to list.
type query struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	// metadata leaves the content at the server.
	metadata bool
	// keep chooses what is wanted of a long list; all if nil.
	keep func(*unstructured.Unstructured) bool
}

// list is what could be read. It asks page by page and stops at a bound.
func (r *reads) list(ctx context.Context, gvk schema.GroupVersionKind, q query) []unstructured.Unstructured {
	var out []unstructured.Unstructured
	next := ""
	for range maxPages {
		page, err := r.page(ctx, gvk, q, next)
		if err != nil {
			r.missing(gvk, q.namespace, err)
			return out
		}
		for i := range page.Items {
			if q.keep == nil || q.keep(&page.Items[i]) {
				out = append(out, page.Items[i])
			}
		}
		if next = page.GetContinue(); next == "" {
			return out
		}
	}
	r.note(resource(gvk), fmt.Sprintf("only the first %d were looked at", pageSize*maxPages))
	return out
}

func (r *reads) page(ctx context.Context, gvk schema.GroupVersionKind, q query, next string) (*unstructured.UnstructuredList, error) {
	options := &client.ListOptions{Namespace: q.namespace, LabelSelector: q.labels, FieldSelector: q.fields, Limit: pageSize, Continue: next}
	listKind := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	full := &unstructured.UnstructuredList{}
	full.SetGroupVersionKind(listKind)
	if !q.metadata {
		return full, r.from.List(ctx, full, options)
	}
	bare := &metav1.PartialObjectMetadataList{}
	bare.SetGroupVersionKind(listKind)
	if err := r.from.List(ctx, bare, options); err != nil {
		return nil, err
	}
	full.SetContinue(bare.Continue)
	for i := range bare.Items {
		body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&bare.Items[i])
		if err != nil {
			return nil, err
		}
		u := unstructured.Unstructured{Object: body}
		u.SetGroupVersionKind(gvk)
		full.Items = append(full.Items, u)
	}
	return full, nil
}

// presence is the outcome of a look at one object.
type presence int

const (
	unknown presence = iota
	present
	absent
)

func (r *reads) get(ctx context.Context, key client.ObjectKey, u *unstructured.Unstructured) presence {
	err := r.from.Get(ctx, key, u)
	switch {
	case err == nil:
		return present
	case apierrors.IsNotFound(err):
		return absent
	}
	r.missing(u.GroupVersionKind(), key.Namespace, err)
	return unknown
}

// missing remembers what could not be read. A permission is asked for by its
// name, so that is what is said.
func (r *reads) missing(gvk schema.GroupVersionKind, namespace string, err error) {
	what := resource(gvk)
	if namespace == "" {
		what += " of all namespaces"
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		r.note(what, "you may not read them")
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		r.note(what, "the cluster does not serve them")
	default:
		r.note(what, clip(err.Error(), 200))
	}
}

func (r *reads) note(what, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread == nil {
		r.unread = map[string]string{}
	}
	r.unread[what] = why
}

// missed are the lines for what could not be read.
func (r *reads) missed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, what := range slices.Sorted(maps.Keys(r.unread)) {
		out = append(out, what+": "+r.unread[what])
	}
	return out
}

// readAll tells whether nothing of a kind was missed.
func (r *reads) readAll(gvk schema.GroupVersionKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what := range r.unread {
		if name, _, _ := strings.Cut(what, " "); name == resource(gvk) {
			return false
		}
	}
	return true
}

// resource is how permissions name a kind.
func resource(gvk schema.GroupVersionKind) string {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.GroupResource().String()
}

// clip keeps foreign words short.
func clip(s string, most int) string {
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "…"
}
