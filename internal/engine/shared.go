// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sharing knows who plans which shared child, and what each of them last had
// its say about.
type sharing struct {
	writing sync.Mutex // one writer at a time

	mu        sync.Mutex
	byChild   map[childKey]map[types.NamespacedName]string // planner, digest it wrote or found
	byPlanner map[types.NamespacedName][]childKey
	// planned are the objects whose wishes are known since the start.
	planned map[types.NamespacedName]bool
	// doubts counts how often there may have been shared children that nobody plans,
	// and settled up to which of them that was looked into.
	doubts, settled int
	// all lists the objects of the kind.
	all func(ctx context.Context) ([]types.NamespacedName, error)
}

func newSharing() *sharing {
	return &sharing{byChild: map[childKey]map[types.NamespacedName]string{}, byPlanner: map[types.NamespacedName][]childKey{},
		planned: map[types.NamespacedName]bool{}, doubts: 1}
}

// alone keeps other writers of shared children out until it is released.
func (s *sharing) alone() (release func()) {
	s.writing.Lock()
	return s.writing.Unlock
}

// planners are woken when a shared child changes.
func (s *sharing) planners(key childKey) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.byChild[key]))
}

// plans notes which shared children an object plans now, and returns those that
// nobody plans any more. Where the object had its say against others, these are to
// be asked again.
func (s *sharing) plans(who types.NamespacedName, keys []childKey) (abandoned []childKey, again []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned[who] = true
	for _, key := range s.byPlanner[who] {
		if slices.Contains(keys, key) {
			continue
		}
		last := s.byChild[key][who]
		delete(s.byChild[key], who)
		if len(s.byChild[key]) == 0 {
			delete(s.byChild, key)
			abandoned = append(abandoned, key)
			s.doubts++
		}
		again = append(again, s.reopen(key, last)...)
	}
	delete(s.byPlanner, who)
	for _, key := range keys {
		if s.byChild[key] == nil {
			s.byChild[key] = map[types.NamespacedName]string{}
		}
		if _, planned := s.byChild[key][who]; !planned {
			s.byChild[key][who] = "" // has not had its say
		}
		s.byPlanner[who] = keys
	}
	return abandoned, again
}

// reopen lets those have their say once more who were overruled by one that left.
func (s *sharing) reopen(key childKey, last string) (again []types.NamespacedName) {
	if last == "" || slices.Contains(slices.Collect(maps.Values(s.byChild[key])), last) {
		return nil // it had none, or others want the same
	}
	for other := range s.byChild[key] {
		s.byChild[key][other] = ""
		again = append(again, other)
	}
	return again
}

// say notes that the child is, or was, as this planner wants it.
func (s *sharing) say(o owner, in *intent) {
	if !in.Shared {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	who := client.ObjectKeyFromObject(o)
	if _, plans := s.byChild[in.key][who]; plans { // else it was forgotten meanwhile
		s.byChild[in.key][who] = in.digest
	}
}

func (s *sharing) said(o owner, in *intent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byChild[in.key][client.ObjectKeyFromObject(o)] == in.digest
}

// judge is check with a rule for shared children: who already had its say does
// not overrule the one that spoke later.
func (w *writer) judge(o owner, in *intent, live client.Object) verdict {
	if live != nil && (in.CreateOnly || w.optedOut(live)) {
		return intact
	}
	v := w.check(in, live)
	if !in.Shared {
		return v
	}
	if v == changed && w.sharing.said(o, in) {
		return intact
	}
	if v == intact {
		w.sharing.say(o, in)
	}
	return v
}

// optedOut tells whether a user keeps a child for himself.
func (w *writer) optedOut(live client.Object) bool {
	return w.optOut != "" && live.GetAnnotations()[w.optOut] == "false"
}

// addShared finds the live shared children of a plan, which are not among the
// owner's own, and sees to it that the owner is woken when they change.
func (w *writer) addShared(ctx context.Context, o owner, intents []*intent, have children) error {
	var keys []childKey
	for _, in := range intents {
		if in.Shared {
			keys = append(keys, in.key)
		}
	}
	w.share(ctx, client.ObjectKeyFromObject(o), keys)
	for _, key := range keys {
		if have[key] != nil {
			continue
		}
		obj, err := w.child(ctx, key)
		if err != nil {
			return err
		}
		if obj != nil {
			have[key] = obj
		}
	}
	return nil
}

// leave forgets an object that is gone.
func (w *writer) leave(ctx context.Context, who types.NamespacedName) {
	w.share(ctx, who, nil)
	w.sharing.mu.Lock()
	delete(w.sharing.planned, who)
	w.sharing.mu.Unlock()
}

// removeUnshared removes the shared children that nobody plans any more. It waits
// until the wishes of all objects are known, so that nothing is removed because a
// process has just started, and what an earlier process left is removed then.
func (w *writer) removeUnshared(ctx context.Context) *Problem {
	doubts, idle := w.sharing.mayBeIdle()
	if !idle {
		return nil
	}
	have, err := w.childrenOf(ctx, OwnerShared)
	if err != nil {
		return problemOf(err, "Reading the shared children")
	}
	if len(have) == 0 {
		return nil
	}
	if complete, err := w.sharing.complete(ctx); err != nil || !complete {
		return asProblem(err, "Reading who shares children")
	}
	defer w.sharing.alone()()
	nobody := &metav1.PartialObjectMetadata{}
	nobody.SetUID(OwnerShared)
	out := outcome{}
	for key, obj := range have {
		_, removable := obj.GetLabels()[LabelGoesWithLast]
		if removable && len(w.sharing.planners(key)) == 0 && w.made(obj) && !w.optedOut(obj) {
			w.remove(ctx, owner{Object: nobody}, key, obj, &out)
		}
	}
	if len(out.problems) > 0 {
		return summary(out.problems)
	}
	w.sharing.settle(doubts)
	return nil
}

func (s *sharing) mayBeIdle() (doubts int, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubts, s.doubts > s.settled && s.all != nil
}

// settle notes that the doubts up to a number are no more. Those that came while
// they were looked into stay.
func (s *sharing) settle(doubts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = max(s.settled, doubts)
}

// complete tells whether the wishes of all objects are known.
func (s *sharing) complete(ctx context.Context) (bool, error) {
	all, err := s.all(ctx)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(all, func(who types.NamespacedName) bool { return !s.planned[who] }), nil
}

// leftAlone tells whether a child that is only created is there already, whoever
// made it: that of somebody else is in no cache, and is watched like what is in the
// way of a child, so that it is made when they delete it.
func (w *writer) leftAlone(ctx context.Context, o owner, in *intent, live client.Object, out *outcome) (bool, error) {
	if !in.CreateOnly {
		return false, nil
	}
	if live != nil {
		return true, w.settle(ctx, in, live)
	}
	last, known := w.ledger.get(in.holder, in.key)
	switch {
	case !known || last.gone || last.deleted:
	case last.theirs:
		if state := w.blockers.standing(w.waiter(client.ObjectKeyFromObject(o)), in.key); state != "" {
			out.block(in.key, state)
			return true, nil
		}
	case last.digest == in.digest && !in.passed(last.version):
		return true, nil // written, not yet in the cache
	}
	head, err := w.look(ctx, in.key)
	if apierrors.IsNotFound(err) && known && last.uid != "" && !last.deleted {
		w.ledger.put(in.holder, in.key, entry{gone: true})
	}
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if w.inherited(o, in, head) {
		return true, w.tie(ctx, in, head)
	}
	w.ledger.put(in.holder, in.key, entry{uid: head.UID, digest: in.digest, version: head.ResourceVersion, theirs: true})
	if head.GetDeletionTimestamp() != nil { // a Namespace counts as gone from now on, so that its end is no news
		out.again = soonest(out.again, unseenPause)
		return true, nil
	}
	out.block(in.key, stateOf(in.key, head))
	return true, nil
}

// share notes what an object shares now, and forgets what nobody does any more.
func (w *writer) share(ctx context.Context, who types.NamespacedName, keys []childKey) {
	abandoned, again := w.sharing.plans(who, keys)
	for _, key := range abandoned {
		w.ledger.forget(OwnerShared, key)
	}
	for _, other := range again {
		w.waker.wake(ctx, other)
	}
}
