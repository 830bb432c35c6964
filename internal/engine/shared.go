// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

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
}

func newSharing() *sharing {
	return &sharing{byChild: map[childKey]map[types.NamespacedName]string{}, byPlanner: map[types.NamespacedName][]childKey{}}
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
// nobody plans any more.
func (s *sharing) plans(who types.NamespacedName, keys []childKey) (abandoned []childKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.byPlanner[who] {
		if slices.Contains(keys, key) {
			continue
		}
		delete(s.byChild[key], who)
		if len(s.byChild[key]) == 0 {
			delete(s.byChild, key)
			abandoned = append(abandoned, key)
		}
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
	return abandoned
}

// say notes that the child is, or was, as this planner wants it.
func (s *sharing) say(o owner, in *intent) {
	if !in.Shared {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byChild[in.key][client.ObjectKeyFromObject(o)] = in.digest
}

func (s *sharing) said(o owner, in *intent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byChild[in.key][client.ObjectKeyFromObject(o)] == in.digest
}

// judge is check with a rule for shared children: who already had its say does
// not overrule the one that spoke later.
func (w *writer) judge(o owner, in *intent, live client.Object) verdict {
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

// addShared finds the live shared children of a plan, which are not among the
// owner's own, and sees to it that the owner is woken when they change.
func (w *writer) addShared(ctx context.Context, o owner, intents []*intent, have children) error {
	var keys []childKey
	for _, in := range intents {
		if in.Shared {
			keys = append(keys, in.key)
		}
	}
	w.forgetShared(w.sharing.plans(client.ObjectKeyFromObject(o), keys))
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
func (w *writer) leave(who types.NamespacedName) { w.forgetShared(w.sharing.plans(who, nil)) }

func (w *writer) forgetShared(keys []childKey) {
	for _, key := range keys {
		w.ledger.forget(OwnerShared, key)
	}
}
