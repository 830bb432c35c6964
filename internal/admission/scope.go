// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespaced tells whether objects of a kind live in a namespace.
func (s *Schemas) Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	kind, err := s.of(u)
	if err != nil {
		return false, err
	}
	return kind.namespaced, nil
}
