// SPDX-License-Identifier: Apache-2.0

package engine

import (
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

// askers holds a match function per object that asked; nil matches everything.
type askers map[types.NamespacedName]func(client.Object) bool

// tracker remembers which objects asked for what, so that a change wakes
// exactly those.
type tracker struct {
	mu      sync.RWMutex
	byNeed  map[need]askers
	byAsker map[types.NamespacedName]map[need]struct{}
}

func newTracker() *tracker {
	return &tracker{byNeed: map[need]askers{}, byAsker: map[types.NamespacedName]map[need]struct{}{}}
}

// add makes one need known at once.
func (t *tracker) add(who types.NamespacedName, n need, match func(client.Object) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byNeed[n] == nil {
		t.byNeed[n] = askers{}
	}
	t.byNeed[n][who] = match
	if t.byAsker[who] == nil {
		t.byAsker[who] = map[need]struct{}{}
	}
	t.byAsker[who][n] = struct{}{}
}

// replace sets all needs of an asker at once; an empty set forgets it.
func (t *tracker) replace(who types.NamespacedName, needs map[need]func(client.Object) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.byAsker[who] {
		if _, still := needs[n]; still {
			continue
		}
		delete(t.byNeed[n], who)
		if len(t.byNeed[n]) == 0 {
			delete(t.byNeed, n)
		}
	}
	if len(needs) == 0 {
		delete(t.byAsker, who)
		return
	}
	set := make(map[need]struct{}, len(needs))
	for n, match := range needs {
		set[n] = struct{}{}
		if t.byNeed[n] == nil {
			t.byNeed[n] = askers{}
		}
		t.byNeed[n][who] = match
	}
	t.byAsker[who] = set
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
			for who, match := range t.byNeed[n] {
				if match == nil || match(obj) {
					out[who] = struct{}{}
				}
			}
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

// concernedByAPI lists who asked whether an API is there.
func (t *tracker) concernedByAPI(gk schema.GroupKind) []types.NamespacedName {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []types.NamespacedName
	for who := range t.byNeed[need{gk: gk, api: true}] {
		out = append(out, who)
	}
	return out
}

func (t *tracker) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byAsker)
}
