// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// need is one thing that a decision depended on: an object by name, every
// object of a namespace (or cluster), those with a value in the index, or the
// presence of an API.
type need struct {
	gk        schema.GroupKind
	namespace string
	name      string // empty: all in the namespace, which if empty too means all
	indexed   bool   // name is a value in the index
	api       bool
}

// askers are who asked for one thing, each with a function that says what of it concerns them; nil is everything. Nearly
// all things are asked for by one object only, for which a map would take ten times the memory.
type askers struct {
	who   types.NamespacedName
	match func(client.Object) bool
	more  map[types.NamespacedName]func(client.Object) bool // all of them, once there were several
}

// set tells whether this one has not asked before.
func (a *askers) set(who types.NamespacedName, match func(client.Object) bool) bool {
	known := a.who == who
	switch {
	case a.more != nil:
		_, known = a.more[who]
		a.more[who] = match
	case known || a.who == types.NamespacedName{}:
		a.who, a.match = who, match
	default:
		*a = askers{more: map[types.NamespacedName]func(client.Object) bool{a.who: a.match, who: match}}
	}
	return !known
}

// remove forgets one, and tells whether somebody is left.
func (a *askers) remove(who types.NamespacedName) bool {
	delete(a.more, who)
	return len(a.more) > 0 || a.more == nil && a.who != who
}

func (a *askers) each(do func(types.NamespacedName, func(client.Object) bool)) {
	if a.more == nil {
		do(a.who, a.match)
	}
	for who, match := range a.more {
		do(who, match)
	}
}

// tracker remembers which objects asked for what, so that a change wakes
// exactly those.
type tracker struct {
	mu      sync.RWMutex
	byNeed  map[need]*askers
	byAsker map[types.NamespacedName][]need
}

func newTracker() *tracker {
	return &tracker{byNeed: map[need]*askers{}, byAsker: map[types.NamespacedName][]need{}}
}

// add makes one need known at once.
func (t *tracker) add(who types.NamespacedName, n need, match func(client.Object) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set(who, n, match) {
		t.byAsker[who] = append(t.byAsker[who], n)
	}
}

// set tells whether the need is a new one.
func (t *tracker) set(who types.NamespacedName, n need, match func(client.Object) bool) bool {
	if t.byNeed[n] == nil {
		t.byNeed[n] = &askers{}
	}
	return t.byNeed[n].set(who, match)
}

// replace sets all needs of an asker at once; an empty set forgets it.
func (t *tracker) replace(who types.NamespacedName, needs map[need]func(client.Object) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.byAsker[who] {
		if _, still := needs[n]; !still && !t.byNeed[n].remove(who) {
			delete(t.byNeed, n)
		}
	}
	if len(needs) == 0 {
		delete(t.byAsker, who)
		return
	}
	all := make([]need, 0, len(needs))
	for n, match := range needs {
		all = append(all, n)
		t.set(who, n, match)
	}
	t.byAsker[who] = all
}

// concerned lists who asked for any of these states of one object (before and
// after a change). index may be nil.
func (t *tracker) concerned(gk schema.GroupKind, index func(client.Object) []string, states ...client.Object) map[types.NamespacedName]struct{} {
	out := map[types.NamespacedName]struct{}{}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, obj := range states {
		if obj == nil {
			continue
		}
		for _, n := range needsOf(gk, index, obj) {
			if t.byNeed[n] == nil {
				continue
			}
			t.byNeed[n].each(func(who types.NamespacedName, match func(client.Object) bool) {
				if match == nil || match(obj) {
					out[who] = struct{}{}
				}
			})
		}
	}
	return out
}

// needsOf lists in which ways an object can have been asked for.
func needsOf(gk schema.GroupKind, index func(client.Object) []string, obj client.Object) []need {
	ns := obj.GetNamespace()
	out := []need{{gk: gk, namespace: ns, name: obj.GetName()}, {gk: gk, namespace: ns}, {gk: gk}}
	if index == nil {
		return out
	}
	for _, value := range index(obj) {
		out = append(out, need{gk: gk, namespace: ns, name: value, indexed: true}, need{gk: gk, name: value, indexed: true})
	}
	return out
}

// concernedByAPI lists who asked for an API or for anything of it: that it went, or
// came, is news to all of them.
func (t *tracker) concernedByAPI(gk schema.GroupKind) []types.NamespacedName {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := map[types.NamespacedName]struct{}{}
	for n, by := range t.byNeed {
		if n.gk == gk {
			by.each(func(who types.NamespacedName, _ func(client.Object) bool) { out[who] = struct{}{} })
		}
	}
	return slices.Collect(maps.Keys(out))
}

func (t *tracker) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byAsker)
}
