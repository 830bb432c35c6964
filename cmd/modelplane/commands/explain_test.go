// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// TestKnownKinds: the scheme knows every kind that explain looks for, and what
// is special is said of kinds that can be explained.
func TestKnownKinds(t *testing.T) {
	known, err := newKnown()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[schema.GroupKind]bool{}
	for _, c := range known.Controllers {
		gvk, err := apiutil.GVKForObject(c.Object(), known.Scheme)
		if err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
		kinds[gvk.GroupKind()] = true
		for _, child := range c.Spec().Children {
			if _, err := apiutil.GVKForObject(child.Object, known.Scheme); err != nil {
				t.Errorf("%s: %v", c.Name(), err)
			}
		}
	}
	for _, a := range known.About {
		if !kinds[a.Kind] {
			t.Errorf("%s has no controller", a.Kind)
		}
	}
	if len(known.About) == 0 {
		t.Error("nothing is said of any kind")
	}
}
