// SPDX-License-Identifier: Apache-2.0

package engine

import "strings"

// Keys that the engine writes on children (never into a pod template) and
// objects.
const (
	// LabelOwner holds the owner's UID, or OwnerShared. Children are watched, found and pruned by it.
	LabelOwner = "modelplane.dev/owner-uid"
	// OwnerShared is in LabelOwner of a child that several objects plan.
	OwnerShared = "shared"
	// AnnotationOwner names the owner as Kind.group/namespace/name where an
	// owner reference cannot.
	AnnotationOwner = "modelplane.dev/owner"
	// LabelIntent holds the digest of what was last applied. It is no annotation,
	// because a Deployment whose annotations change counts as a new generation.
	LabelIntent = "modelplane.dev/intent"
	// LabelTakingOver is on a child from the write that makes it ours until the
	// fields of its earlier controller are ours too. Like LabelIntent it is no
	// annotation.
	LabelTakingOver = "modelplane.dev/taking-over"
	// AnnotationRetained marks a child that outlives its owner.
	AnnotationRetained = "modelplane.dev/retained"
	// LabelGoesWithLast marks a shared child that is removed when nobody plans it
	// any more. One without it was made by a release that left such children.
	LabelGoesWithLast = "modelplane.dev/goes-with-last"
	// FinalizerPrefix, with the controller's name, is the finalizer of objects
	// that have something which the garbage collector cannot reach.
	FinalizerPrefix = "modelplane.dev/"

	fieldOwnerPrefix = "modelplane-"
)

// IsOurs tells whether a field manager is one of the controllers of this project.
func IsOurs(manager string) bool { return strings.HasPrefix(manager, fieldOwnerPrefix) }
