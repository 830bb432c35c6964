// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pairs remembers pairs that were made until the cluster is seen to have them: a look that comes too early must not make
// another one. The zero value is ready for use.
type Pairs struct {
	mu   sync.Mutex
	made map[types.UID]Pair
}

// Take returns the pair to use for an object, and when it is to be replaced: the one that is there while it is good, else one
// that was made already, else a new one.
func (k *Pairs) Take(uid types.UID, subject string, now time.Time, hosts []string, have Pair) (Pair, time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at, err := have.RenewAt(now, hosts); err == nil && now.Before(at) {
		delete(k.made, uid)
		return have, at, nil
	}
	made, ok := k.made[uid]
	at, err := made.RenewAt(now, hosts)
	if !ok || err != nil || !now.Before(at) {
		if made, err = NewPair(now, subject, hosts, have.Roots); err != nil {
			return Pair{}, time.Time{}, err
		}
		if at, err = made.RenewAt(now, hosts); err != nil {
			return Pair{}, time.Time{}, err
		}
		if k.made == nil {
			k.made = map[types.UID]Pair{}
		}
		k.made[uid] = made
	}
	return made, at, nil
}
