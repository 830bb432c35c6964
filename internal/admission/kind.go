// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is what admission knows of one version of one kind. Everything but GVK
// and New is optional: without functions a kind is decoded strictly and no more.
type Kind struct {
	GVK schema.GroupVersionKind
	// New returns an empty object of the kind.
	New func() client.Object
	// PathWithoutVersion is set where the API server asks for all versions of the kind at one path, as the configurations
	// of other installations have it.
	PathWithoutVersion bool
	// Default fills in what a schema cannot express. It must be idempotent: it
	// runs on every write.
	Default func(ctx context.Context, obj client.Object) error
	// Validate refuses what a schema cannot express. old is nil for a new object.
	// An error that holds field errors is reported field by field.
	Validate func(ctx context.Context, old, obj client.Object) (warnings []string, err error)
	// ValidateDelete, when set, is asked before an object is deleted.
	ValidateDelete func(ctx context.Context, obj client.Object) (warnings []string, err error)

	// at is the path of a Guard, in place of the kind's own.
	at string
}

// Unattended makes a kind warn that nobody acts on it. Its objects are kept, so that manifests can be applied before there
// is a controller.
func (k Kind) Unattended() Kind {
	validate := k.Validate
	k.Validate = func(ctx context.Context, old, obj client.Object) ([]string, error) {
		warnings := []string{k.GVK.Kind + " is stored, but this version of Modelplane has no controller for it: nothing is made of it, " +
			"and its status stays empty"}
		if validate == nil {
			return warnings, nil
		}
		more, err := validate(ctx, old, obj)
		return append(warnings, more...), err
	}
	return k
}

// ValidatePath is where the kind is validated, in kubebuilder's convention.
func (k Kind) ValidatePath() string {
	if k.at != "" {
		return k.at
	}
	return k.path("validate")
}

// MutatePath is where the kind is defaulted, in kubebuilder's convention.
func (k Kind) MutatePath() string { return k.path("mutate") }

func (k Kind) path(verb string) string {
	parts := []string{verb, strings.ReplaceAll(k.GVK.Group, ".", "-"), k.GVK.Version, strings.ToLower(k.GVK.Kind)}
	if k.PathWithoutVersion {
		parts = slices.Delete(parts, 2, 3)
	}
	return "/" + strings.Join(parts, "-")
}
