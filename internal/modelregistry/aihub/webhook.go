// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
)

// Rules gives the kinds of the room, among others, the rules that their schemas cannot express.
func (d *Domain) Rules(kinds []admission.Kind) []admission.Kind {
	for i := range kinds {
		if k := &kinds[i]; k.GVK == v1alpha1.GroupVersion.WithKind("Catalog") {
			k.PathWithoutVersion, k.Validate = true, d.validate
		}
	}
	return kinds
}

// validate looks at the name and the namespace of a new Catalog, in the words that existing tools expect; neither can change
// later.
func (d *Domain) validate(_ context.Context, old, obj client.Object) ([]string, error) {
	c := obj.(*v1alpha1.Catalog)
	found := &admission.Report{}
	for _, text := range ignoredBy(c, d.settings) {
		found.Warn(field.NewPath("spec"), "%s", text)
	}
	if was, ok := old.(*v1alpha1.Catalog); ok && was != nil {
		return found.Result()
	}
	meta := field.NewPath("metadata")
	if c.Name != v1alpha1.CatalogName {
		found.Refuse(field.Invalid(meta.Child("name"), c.Name, "catalog resource name must be '"+v1alpha1.CatalogName+"'"))
	}
	if only := d.settings.CatalogNamespace; only != "" && c.Namespace != only {
		found.Refuse(field.Invalid(meta.Child("namespace"), c.Namespace, "namespace must be "+only))
	}
	return found.Result()
}
