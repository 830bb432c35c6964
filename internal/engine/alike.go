// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// alike tells whether two states of an object differ in nothing that is kept of
// it and matters to us: a status that was trimmed away, or a heartbeat in the
// managed fields, does not.
func alike(a, b client.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		slices.Equal(a.GetFinalizers(), b.GetFinalizers()) &&
		reflect.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp()) &&
		slices.EqualFunc(a.GetManagedFields(), b.GetManagedFields(), sameManager) &&
		reflect.DeepEqual(contentOf(a), contentOf(b))
}

// sameManager compares what is kept of managed fields, but for the time.
func sameManager(a, b metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation &&
		(a.FieldsV1 == b.FieldsV1 || bytes.Equal(a.FieldsV1.GetRawBytes(), b.FieldsV1.GetRawBytes()))
}

// contentOf is an object without its metadata. It shares everything else with
// the object.
func contentOf(obj client.Object) any {
	switch o := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return nil
	case *unstructured.Unstructured:
		rest := maps.Clone(o.Object)
		delete(rest, "metadata")
		return rest
	}
	v := reflect.ValueOf(obj).Elem()
	rest := reflect.New(v.Type()).Elem()
	rest.Set(v)
	if m := rest.FieldByName("ObjectMeta"); m.IsValid() {
		m.SetZero()
	}
	return rest.Interface()
}
