// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"hash/maphash"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// entry is what the engine remembers of its own last write or check of a
// child. It bridges the moment between a write and its arrival in the cache,
// and saves checking a child that did not change.
type entry struct {
	uid     types.UID // empty when a write was tried and its outcome is not known
	digest  string
	version string // resource version after our write, or when last found intact
	fields  uint64 // hash of our managed-fields entry at that version
	at      int64  // when we wrote or last looked for it, in seconds
	deleted bool   // we deleted it
	gone    bool   // somebody else deleted it
	theirs  bool   // somebody else made it, and none of our caches has it
}

// ledger holds the entries of all children, by owner so that they go with it.
type ledger struct {
	mu      sync.Mutex
	byOwner map[types.UID]map[childKey]entry
	seed    maphash.Seed
}

func newLedger() *ledger {
	return &ledger{byOwner: map[types.UID]map[childKey]entry{}, seed: maphash.MakeSeed()}
}

func (l *ledger) get(owner types.UID, key childKey) (entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byOwner[owner][key]
	return e, ok
}

// of is a copy of what is known of an owner's children.
func (l *ledger) of(owner types.UID) map[childKey]entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.byOwner[owner])
}

func (l *ledger) put(owner types.UID, key childKey, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.byOwner[owner]
	if m == nil {
		m = map[childKey]entry{}
		l.byOwner[owner] = m
	}
	m[key] = e
}

// tried notes a write whose outcome is not known: its answer may have been lost.
func (l *ledger) tried(owner types.UID, key childKey) {
	if _, known := l.get(owner, key); !known {
		l.put(owner, key, entry{})
	}
}

// restore takes back what was noted of a child before a request that failed.
func (l *ledger) restore(owner types.UID, key childKey, before entry, known bool) {
	if known {
		l.put(owner, key, before)
		return
	}
	l.forget(owner, key)
}

// left notes that a child is gone from the cluster. Word of an earlier child of
// the same name does not count.
func (l *ledger) left(owner types.UID, key childKey, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byOwner[owner][key]
	if !ok || e.uid != uid {
		return
	}
	if !e.deleted {
		l.byOwner[owner][key] = entry{gone: true}
		return
	}
	l.drop(owner, key)
}

// forget drops one child.
func (l *ledger) forget(owner types.UID, key childKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(owner, key)
}

func (l *ledger) drop(owner types.UID, key childKey) {
	delete(l.byOwner[owner], key)
	if len(l.byOwner[owner]) == 0 {
		delete(l.byOwner, owner)
	}
}

// forgetOwner drops all children of an owner that is gone.
func (l *ledger) forgetOwner(owner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byOwner, owner)
}

// forgetKind drops all children of an API that is gone.
func (l *ledger) forgetKind(match func(childKey) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for owner, m := range l.byOwner {
		for key := range m {
			if match(key) {
				delete(m, key)
			}
		}
		if len(m) == 0 {
			delete(l.byOwner, owner)
		}
	}
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, m := range l.byOwner {
		n += len(m)
	}
	return n
}

func (l *ledger) hash(fields []byte) uint64 { return maphash.Bytes(l.seed, fields) }

// older tells whether resource version a came before b. Versions that cannot
// be compared count as not older, so that what is seen is believed.
func older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}
