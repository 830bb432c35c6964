// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"strings"
	"time"
)

// beingReplaced is how long a new replica set is taken for the successor of others with the same labels.
const beingReplaced = 20 * time.Minute

// replicaSet is the part of an instance's id that pods of one ReplicaSet share. An id is the end of a pod's name: six
// characters of the set's hash, a dash, and five of the pod's own.
func replicaSet(id string) string {
	const shared = 6
	if len(id) <= shared {
		return id
	}
	return id[:shared]
}

// Upgrades notices that a Deployment is being rolled to a new version, so that models do not go where they would have to
// leave again in a minute. The zero value is ready; it belongs to one goroutine.
type Upgrades struct {
	// first start of any instance of a replica set, by labels and set; it stays when that instance goes.
	first map[upgradeKey]int64
}

type upgradeKey struct{ labels, set string }

// Replaced are the replica sets that have a younger sibling with the same labels which began within the last 20 minutes.
// It is given all instances each time, and remembers only when a set was first seen to have started.
func (u *Upgrades) Replaced(instances []*Instance, now int64) map[string]bool {
	seen := map[upgradeKey]int64{}
	for _, i := range instances {
		labels := slices.Sorted(slices.Values(i.Labels))
		key := upgradeKey{strings.Join(labels, ","), replicaSet(i.ID)}
		start, ok := seen[key]
		if was, known := u.first[key]; known && !ok {
			start, ok = was, true
		}
		if !ok || i.StartTime < start {
			start = i.StartTime
		}
		seen[key] = start
	}
	u.first = seen
	newest := map[string]int64{} // by labels
	for key, start := range seen {
		newest[key.labels] = max(newest[key.labels], start)
	}
	replaced := map[string]bool{}
	for key, start := range seen {
		if latest := newest[key.labels]; start < latest && now-latest < beingReplaced.Milliseconds() {
			replaced[key.set] = true
		}
	}
	return replaced
}
