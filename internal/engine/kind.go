// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is what a domain contributes: how to look at one object of the kind and
// what to decide about it.
type Kind[T client.Object, Seen any] interface {
	// Observe reads everything the decision depends on. It returns an error
	// only when the world failed it; what is missing or wrong belongs into
	// Seen, for Plan to judge.
	Observe(ctx context.Context, r Reader, obj T) (Seen, error)
	// Plan is pure: no client, no clock, no randomness, no environment. It must
	// not change obj or seen.
	Plan(obj T, seen Seen) Plan
}

// Teardown is implemented by a Kind whose objects do not just go: something must
// run first, or be removed in an order, or stand in the way. Only such kinds get
// a finalizer for it.
type Teardown[T client.Object, Seen any] interface {
	// Teardown decides about an object that is being deleted. It is pure like
	// Plan, and asked again whenever something that Observe read or a child
	// changes, never by the clock.
	Teardown(obj T, seen Seen) Ending
}

// Ending is the decision about an object that is being deleted.
type Ending struct {
	// Plan is what must be for now. Children are those that still must exist (a
	// Job that runs before the end), and all others are removed: an order of
	// removal is a plan that names what goes later, until it sees that the rest
	// is gone. Problem says what is in the way, and KeepChildren that nothing is removed
	// until then.
	Plan
	// Finished lets the object go, and with it all children but those retained.
	// The plan is then ignored. It is also taken for granted when what the plan
	// wants can no longer be made because the namespace goes.
	Finished bool
}

// Plan is the complete decision about one object.
type Plan struct {
	// Children are all objects that should exist on behalf of the object.
	// Whatever the object had before and is not named here is removed.
	Children []Child
	// KeepChildren leaves the children as they are, because nothing can be decided
	// about them now. Of Children only those are then written that are to be
	// retained.
	KeepChildren bool
	// DeleteSelf deletes the object itself, because what it depends on for good is
	// gone, and says this event. The rest of the plan is then ignored.
	DeleteSelf *Event
	// Status is the complete status (the struct or a pointer to it), with zero
	// transition times: the engine keeps or stamps them, and says which
	// generation a condition speaks of unless it does so itself. Nil leaves the
	// status alone.
	Status any
	// Problem is what keeps the object from being as asked, nil if nothing does.
	Problem *Problem
	// Events are said only when the status changes with this plan; a warning
	// whose words a condition had before is not said again.
	Events []Event
	// Calls are what other systems are asked to do for the object, after its
	// children were written. Observe reads what came of them with Reader.Answer.
	Calls []Call
	// RemoveAnnotations are annotations of the object that asked for something which has been
	// done. They are taken off before the status is written, so that a status that
	// says so never stands beside the request.
	RemoveAnnotations []string
	// SetLabels are labels that the object itself is to have, which tell others what came of it
	// elsewhere. They are written before the status, and never taken off.
	SetLabels map[string]string
	// NoFinalizer says that the object may go without a Teardown: it gets no finalizer for
	// it, and loses the one that it had.
	NoFinalizer bool
	// RequeueAfter asks for another look, for what no watch can tell (a
	// certificate's renewal). Zero means never.
	RequeueAfter time.Duration
}

// Child is one object of a plan.
type Child struct {
	// Object is the intent: only the fields that Modelplane cares about.
	Object client.Object
	// Stage orders the writes: a stage begins when all of the lower ones were
	// applied.
	Stage int
	// Retain makes the child outlive its owner; it is never pruned, and has no
	// owner references, whoever sets them.
	Retain bool
	// Replace allows the child to be deleted and made anew when the API server
	// refuses to change a field of it.
	Replace bool
	// Adopt takes over an object that has the child's name already and that
	// nobody controls, as an earlier release or controller left it. Without it
	// such a name is taken: the object is left alone, and the child waits. If
	// Object has a UID, it means the object with that UID and no other.
	Adopt bool
	// CreateOnly makes the child once and never changes it, such as a generated
	// password: whatever has its name is left as it is, whoever made it. It is
	// pruned, and goes with its owner, like any other child if we made it.
	CreateOnly bool
	// Owner is another object that the child goes with instead, in the child's
	// namespace or without one. The plan still decides whether it exists.
	Owner *metav1.OwnerReference
	// Shared marks a child that several objects of the kind plan with the same
	// content, such as a certificate bundle per namespace. It has no owner and is
	// removed when none of them plans it any more, unless it is to be retained.
	// Plans that disagree about it are a mistake: each has its say once per change
	// of its mind, and the last one stands.
	Shared bool
	// Unmanaged leaves the child as it is, if it is there: it is neither made nor
	// changed nor pruned. Of Object only kind, name and namespace count.
	Unmanaged bool
	// Delete removes the object that Observe has seen, when all else is written: one
	// that is ours although it has no label of the engine, as an earlier release left
	// it, or although it was retained. Of Object only kind, name, namespace and UID
	// count.
	Delete bool
	// Initial are fields of Object ("spec.replicas") that are written when the
	// child is made and then belong to whoever changes them, such as an
	// autoscaler. The path must not lead through a list.
	Initial []string
}

// Event is something worth telling the person who looks at the object.
type Event struct {
	Warning bool
	Reason  string
	Message string
}

// Spec says what the engine must know of a kind before the first object comes.
type Spec struct {
	// Name of the controller: in logs, metrics and the field owner.
	Name string
	// Resource is the plural name of the kind where it cannot be guessed.
	Resource string
	// Children are the kinds that a plan may name, also those that it named in
	// earlier releases, so that they are found and pruned.
	Children []ChildKind
	// Inputs are the kinds that Observe reads besides its own object and
	// children.
	Inputs []Input
	// Ready is the condition that says whether the object works. Default Ready.
	Ready string
	// ReadyEvent is the reason of the event that says that an object became
	// ready. Default Ready.
	ReadyEvent string
	// NotReadyEvent is the reason of the warning that says that an object which
	// was ready no longer is. None if empty.
	NotReadyEvent string
	// Select limits the controller to objects with these labels. One that loses
	// them is no longer looked after, and its children stay as they are.
	Select labels.Selector
	// HomeName limits the controller to the one object of this name in the manager's
	// own namespace, so that it neither keeps nor may read any other. Its children
	// are Shared, or of another Owner.
	HomeName string
	// NoStatus is set for a kind whose status is not ours to write, or that has
	// none (a Namespace, a ConfigMap). What a plan has to say is said in events and
	// metrics.
	NoStatus bool
	// OptOut is an annotation of children. Where it is "false", the child is left
	// to its user: not changed, not repaired, not pruned.
	OptOut string
	// Sources wake objects for what happens outside the API server.
	Sources []EventSource
	// Executor makes the calls that plans name, each within CallTimeout (10 s by
	// default). It is tried again with pauses, apart from the controller's workers.
	Executor    Executor
	CallTimeout time.Duration
	// KnativeConditions marks Knative-style conditions (no observedGeneration in them).
	KnativeConditions bool
	// Finalizer is the name of ours on the objects, where others know it by another.
	Finalizer string
	// Status is the part of the status that this controller decides, where several
	// look after one kind. Nil: all that no other one decides.
	Status *StatusOwnership
	// OldFinalizers are those that other controllers left on existing objects;
	// they are taken off when such an object is deleted.
	OldFinalizers []string
	// OldManagers are the field managers of controllers that made such children
	// before us. What they set in a child becomes ours once, when we take the
	// child over, so that a plan that does not have it removes it. What they
	// set later is theirs: others go by the same name.
	OldManagers []string
	// FormerOwners are objects that controllers before us made the owners of such
	// children, instead of the object itself. What a plan adopts, or only creates,
	// loses the references to them when it is taken over, and goes with our owner.
	FormerOwners []FormerOwner
	// Blocked writes a problem that does not end by itself, and that the plan's own
	// status does not speak of, to where tools of the kind look for failures. The
	// condition that says whether the object is ready is False already.
	Blocked func(status map[string]any, p *Problem)
	// ApplyFailedReasons gives the reason for a child that cannot be written, by its kind,
	// where users know one; "" stands for all other kinds. By default the reason
	// is that of the failure.
	ApplyFailedReasons map[string]string
	// FarReaching is set when plans may name children that an owner reference
	// cannot reach (in another namespace, or cluster-scoped ones of a namespaced
	// object). Such objects get a finalizer.
	FarReaching bool
	// DeletesSelf is set when plans may have DeleteSelf, which needs a permission.
	DeletesSelf bool
	// RemovesAnnotations is set when plans may have RemoveAnnotations, which needs a permission.
	RemovesAnnotations bool
	// SetsLabels is set when plans may have SetLabels, which needs a permission.
	SetsLabels bool
	// Workers is the number of objects handled at the same time. Default: the
	// manager's, or else 10.
	Workers int
}

// FormerOwner is an owner by its kind and name, whichever version of it was meant. Without a name it is every one of the
// kind: two kinds of ours may hand a child to and fro, where both plans agree whose it is and adopt it by its UID.
type FormerOwner struct{ Group, Kind, Name string }

// IsFormer tells whether a reference means one of them.
func IsFormer(owners []FormerOwner, ref metav1.OwnerReference) bool {
	of := FormerOwner{Group: schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group, Kind: ref.Kind}
	every := slices.Contains(owners, of)
	of.Name = ref.Name
	return every || slices.Contains(owners, of)
}

// ChildKind is a kind that plans may name.
type ChildKind struct {
	// Object is an empty object of the kind; for a kind that is not in the
	// scheme, an unstructured one with its apiVersion and kind.
	Object client.Object
	// Optional marks an API that may be absent, and come and go at any time.
	Optional bool
	// Resource is the plural name where it cannot be guessed from the kind.
	Resource string
	// Restricted is for a kind whose children hold addresses of pods, which OpenShift lets only those write who may create
	// the subresource "restricted" of it.
	Restricted bool
	// MetadataOnly keeps only the metadata of these children in memory, for a kind
	// whose content and status nobody reads. Reader.Child gives it as
	// *metav1.PartialObjectMetadata, and nobody is woken by a change that takes
	// no field of ours and does not show in the metadata.
	MetadataOnly bool
	// Trim drops from a child what Observe never reads, before the child is kept
	// in memory. It must leave the metadata alone. Controllers that have a kind
	// in common must give the same function, a named one.
	Trim func(client.Object)
}

// Input is a kind that Observe reads.
type Input struct {
	// Object is an empty object of the kind, as in ChildKind.
	Object client.Object
	// MetadataOnly keeps only names, labels and owners in memory; Observe reads
	// such an input as *metav1.PartialObjectMetadata, and its content and
	// annotations, where it must, with Reader.GetUncached.
	MetadataOnly bool
	// Select restricts what is watched and kept. All of it if nil.
	Select labels.Selector
	// Trim drops from an input what Observe never reads, before it is kept in
	// memory, as in ChildKind. It must leave name, namespace, UID and
	// resource version alone. A change of what was dropped wakes nobody.
	Trim func(client.Object)
	// Index gives values by which a List with Indexed finds an input among many
	// without looking at the others.
	Index func(client.Object) []string
	// Home is for a kind of which objects in the manager's own namespace are read, too, also by a manager that looks after
	// some namespaces only. ConfigMaps are so without it. The chart's role for that namespace must permit it.
	Home bool
	// Optional as in ChildKind.
	Optional bool
	// Resource as in ChildKind.
	Resource string
}

func (s *Spec) readyType() string {
	if s.Ready == "" {
		return "Ready"
	}
	return s.Ready
}

func (s *Spec) workers(managers int) int {
	const enough = 10
	return cmp.Or(max(s.Workers, 0), max(managers, 0), enough)
}

// fieldOwner is the one owner of all fields that a controller applies.
func (s *Spec) fieldOwner() string { return fieldOwnerPrefix + s.Name }
