// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const lastAppliedByUser = "kubectl.kubernetes.io/last-applied-configuration"

// headOf is the form of an object that is kept as metadata only.
type headOf schema.GroupVersionKind

// formOf tells apart what a cache keeps apart: a kind as a Go type, as
// unstructured, and as metadata only.
func formOf(obj any) any {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		return o.GroupVersionKind()
	case *metav1.PartialObjectMetadata:
		return headOf(o.GroupVersionKind())
	}
	return reflect.TypeOf(obj)
}

// trims are the domains' own ways of making objects smaller, by cache and form.
type trims struct {
	mu sync.RWMutex
	by map[trimKey]trim
}

type trimKey struct {
	cache string
	form  any
}

type trim struct {
	do         func(client.Object)
	controller string
}

func newTrims() *trims { return &trims{by: map[trimKey]trim{}} }

// add notes how objects in a cache are trimmed. Two controllers see the same
// objects there, so they must agree; functions are the same if they have the
// same code.
func (t *trims) add(cache string, obj client.Object, do func(client.Object), controller string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := trimKey{cache, formOf(obj)}
	have, ok := t.by[key]
	if ok && reflect.ValueOf(have.do).Pointer() != reflect.ValueOf(do).Pointer() {
		return fmt.Errorf("the controllers %s and %s share %T in memory and must give the same function as Trim", have.controller, controller, obj)
	}
	if !ok {
		t.by[key] = trim{do: do, controller: controller}
	}
	return nil
}

// transform is what a cache does to an object before it keeps it.
func (t *trims) transform(cache string, always toolscache.TransformFunc) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		t.mu.RLock()
		do := t.by[trimKey{cache, formOf(obj)}].do
		t.mu.RUnlock()
		if o, ok := obj.(client.Object); ok && do != nil {
			do(o)
		}
		return always(obj)
	}
}

// trimInput drops what nobody reads and what can be as large as the object. Of
// what is kept as metadata only these are the annotations: whoever wrote them
// may put 256 KiB into each of other people's objects.
func trimInput(obj any) (any, error) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil
	}
	m.SetManagedFields(nil)
	if _, head := obj.(*metav1.PartialObjectMetadata); head {
		m.SetAnnotations(nil)
	}
	dropLastApplied(m)
	return obj, nil
}

func dropLastApplied(m metav1.Object) {
	if a := m.GetAnnotations(); a[lastAppliedByUser] != "" {
		delete(a, lastAppliedByUser)
		m.SetAnnotations(a)
	}
}

// shapes holds each managed-fields entry of ours once. Children of the same
// shape have the same entry but for their owner's UID.
type shapes struct {
	mu sync.Mutex
	by map[string]*metav1.FieldsV1
}

// mostShapes bounds what is shared; beyond it everything is forgotten and
// shared anew.
const mostShapes = 4096

func newShapes() *shapes { return &shapes{by: map[string]*metav1.FieldsV1{}} }

func (s *shapes) share(f *metav1.FieldsV1, holder string) *metav1.FieldsV1 {
	raw := withoutHolder(f.GetRawBytes(), holder)
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.by[string(raw)]; have != nil {
		return have
	}
	if len(s.by) >= mostShapes {
		clear(s.by)
	}
	key := string(raw)
	made := metav1.NewFieldsV1(key)
	s.by[key] = made
	return made
}

// anybody stands for the owner's UID in a shape.
const anybody = "00000000-0000-0000-0000-000000000000"

func withoutHolder(raw []byte, holder string) []byte {
	if holder == "" {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte(holder), []byte(anybody))
}

func withHolder(raw []byte, holder string) []byte {
	return bytes.ReplaceAll(raw, []byte(anybody), []byte(holder))
}

// trimChild keeps, of the managed fields, our own entries and the names of the
// others, which say who edited a child.
func (s *shapes) trimChild(obj any) (any, error) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil
	}
	dropLastApplied(m)
	var kept []metav1.ManagedFieldsEntry
	for _, e := range m.GetManagedFields() {
		if e.Subresource != "" {
			continue
		}
		slim := metav1.ManagedFieldsEntry{Manager: e.Manager, Operation: e.Operation, Time: e.Time}
		if IsOurs(e.Manager) && e.FieldsV1 != nil {
			slim.FieldsV1 = s.share(e.FieldsV1, m.GetLabels()[LabelOwner])
		}
		kept = append(kept, slim)
	}
	m.SetManagedFields(kept)
	return obj, nil
}
