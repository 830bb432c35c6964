// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Contested is the condition that appears (True) when somebody else keeps undoing
// what we do for an object, and is absent otherwise.
const Contested = "Contested"

// Contest says when a repair is no longer an answer and how far apart repairs are then.
type Contest struct {
	// Repairs of the same thing, undone by the same manager Within this time, make
	// a contest. It is over when a repair has lasted that long.
	Repairs int
	Within  time.Duration
	// Pause before the next repair; it doubles up to Longest.
	Pause, Longest time.Duration
}

// Ways in which a child can be contested.
const (
	taken     = "taken"     // fields of it
	removed   = "removed"   // the child itself
	restored  = "restored"  // one that we pruned
	rewritten = "rewritten" // the status
)

// rivals knows with whom we contest what. A user's single edit is repaired at
// once; a controller that never gives in is told of and not fought.
type rivals struct {
	rules Contest
	clock clock.PassiveClock

	mu sync.Mutex
	by map[types.UID]map[childKey]*contest
}

// contest is about one child, or with an empty key about the status.
type contest struct {
	rival   string
	named   string // who it is, where that was found out later
	way     string
	fields  []string
	repairs []time.Time // the last few
	pause   time.Duration
}

func newRivals(rules Contest, c clock.PassiveClock) *rivals {
	return &rivals{rules: rules, clock: c, by: map[types.UID]map[childKey]*contest{}}
}

func (c *contest) on() bool { return c != nil && c.pause > 0 }

func (c *contest) last() time.Time { return c.repairs[len(c.repairs)-1] }

// sameAs tells whether it is still the same contest. Somebody who edits
// one field after the other is no rival.
func (c *contest) sameAs(rival, way string, fields []string) bool {
	return c != nil && c.rival == rival && c.way == way &&
		(len(fields) == 0 || slices.ContainsFunc(fields, func(f string) bool { return slices.Contains(c.fields, f) }))
}

// mostFields bounds what is remembered of a contest.
const mostFields = 16

// repaired notes that we set something back, and tells whether that is a contest
// and whether it has just become one.
func (r *rivals) repaired(uid types.UID, key childKey, rival, way string, fields []string) (on, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	c := r.by[uid][key]
	if !c.sameAs(rival, way, fields) {
		c = &contest{rival: rival, way: way}
		if r.by[uid] == nil {
			r.by[uid] = map[childKey]*contest{}
		}
		r.by[uid][key] = c
	}
	for _, f := range fields {
		if !slices.Contains(c.fields, f) && len(c.fields) < mostFields {
			c.fields = append(c.fields, f)
		}
	}
	slices.Sort(c.fields)
	c.repairs = append(c.repairs, now)
	c.repairs = c.repairs[max(0, len(c.repairs)-r.rules.Repairs):]
	switch {
	case c.on():
		c.pause = min(2*c.pause, r.rules.Longest)
		return true, false
	case len(c.repairs) == r.rules.Repairs && now.Sub(c.repairs[0]) <= r.rules.Within:
		c.pause = r.rules.Pause
		return true, true
	}
	return false, false
}

// held tells whether a repair has to wait.
func (r *rivals) held(uid types.UID, key childKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.by[uid][key]
	return c.on() && r.clock.Now().Before(c.last().Add(c.pause))
}

// calm notes that something is as we want it. A contest is over when it stays so,
// and the answer tells whether it has just ended.
func (r *rivals) calm(uid types.UID, key childKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.by[uid][key]
	if c == nil || r.clock.Now().Before(c.last().Add(r.rules.Within)) {
		return false
	}
	r.drop(uid, key)
	return c.on()
}

// calmOthers is calm for everything but the status that settled says is as we want it.
func (r *rivals) calmOthers(uid types.UID, settled func(childKey) bool) {
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.by[uid]))
	r.mu.Unlock()
	for _, key := range keys {
		if key != statusKey && settled(key) {
			r.calm(uid, key)
		}
	}
}

// forget ends a contest, because something else is wanted now.
func (r *rivals) forget(uid types.UID, key childKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(uid, key)
}

func (r *rivals) drop(uid types.UID, key childKey) {
	delete(r.by[uid], key)
	if len(r.by[uid]) == 0 {
		delete(r.by, uid)
	}
}

func (r *rivals) forgetOwner(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, uid)
}

// due is when an object must be looked at because of its contests: for the next
// repair, or to see that a contest is over. Zero if it has none.
func (r *rivals) due(uid types.UID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var again time.Duration
	now := r.clock.Now()
	for _, c := range r.by[uid] {
		if !c.on() {
			continue
		}
		for _, at := range []time.Duration{c.pause, r.rules.Within} {
			if left := c.last().Add(at).Sub(now); left > 0 {
				again = soonest(again, left)
			}
		}
		again = soonest(again, r.rules.Longest)
	}
	return again
}

// name says who a rival is.
func (r *rivals) name(uid types.UID, key childKey, rival string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.by[uid][key]; c != nil {
		c.named = rival
	}
}

// known is the rival's name.
func (r *rivals) known(uid types.UID, key childKey) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.by[uid][key]; c != nil {
		return cmp.Or(c.named, c.rival)
	}
	return ""
}

// problem words an object's contests, nil if it has none.
func (r *rivals) problem(kind string, uid types.UID) *Problem {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []childKey
	for key, c := range r.by[uid] {
		if c.on() {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, func(a, b childKey) int { return strings.Compare(a.String(), b.String()) })
	text := r.by[uid][keys[0]].words(kind, keys[0])
	if n := len(keys) - 1; n > 0 {
		text += fmt.Sprintf(" (%d more)", n)
	}
	return WaitFor("UndoneByAnother", "%s", text)
}

// words says who does what, and what to do about it.
func (c *contest) words(kind string, key childKey) string {
	who := cmp.Or(c.named, c.rival, "somebody")
	said := map[string]string{
		taken:     fmt.Sprintf("%s is set back again and again, because %s keeps changing %s.", key, who, few(c.fields)),
		removed:   fmt.Sprintf("%s is made again and again, because %s keeps deleting it.", key, who),
		restored:  fmt.Sprintf("%s is removed again and again, because %s keeps making it.", key, who),
		rewritten: fmt.Sprintf("The status is written again and again, because %s keeps changing it.", who),
	}[c.way]
	return said + fmt.Sprintf(" It is now done at growing intervals. Stop the other one, or take this %s away from it.", kind)
}

// few names some of many fields.
func few(fields []string) string {
	const some = 3
	if len(fields) <= some {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more fields", strings.Join(fields[:some], ", "), len(fields)-some)
}

// managerNames bounds the names of field managers in metrics, which anybody can
// choose.
type managerNames struct {
	mu    sync.Mutex
	known map[string]bool
}

const mostManagerNames = 20

func (m *managerNames) bounded(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) < mostManagerNames {
		m.known[name] = true
	}
	if !m.known[name] {
		return "other"
	}
	return name
}
