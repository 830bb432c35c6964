// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"slices"
	"time"
)

const (
	// scarce is the free share of the instances that may load a model below which copies are given up.
	scarce = 0.05
	// sparePct of an instance's capacity may go in one run.
	sparePct          = 5
	unusedShare       = 10 // parts of the age of the oldest model
	unusedMost        = 10 * time.Hour
	quietTicks        = 8
	calmLeast         = 10 * time.Minute
	calmMost          = 5 * time.Hour
	calmNumerator     = 2
	calmDenominator   = 3
	mostQueued        = 1
	fewestToBeDropped = 2
)

// QuietAfterLoad is how long copies beyond the second stay at least.
const QuietAfterLoad = 30 * time.Minute

// Copy is what one instance knows of a model of its own that has other copies.
type Copy struct {
	ID       string
	Weight   int64
	LastUsed int64
	// Copies are those that are loaded, this one too.
	Copies int
	// WorsePlace: of the two instances that have a copy this is the one where it is less wanted.
	WorsePlace bool
	// LastHeavy is when this copy last worked hard, LastLoad when the youngest copy began, LastUnload when one was last given up; 0: never.
	LastHeavy, LastLoad, LastUnload int64
	RPM, Threshold                  int64
	Queued                          int // requests that wait
}

// State is what an instance knows of itself and of those that may load the same models.
type State struct {
	Now       int64
	FreeShare float64
	// LRUTime is the last use of what was used longest ago.
	LRUTime  int64
	Capacity int64
	Tick     time.Duration
	// Third is how long copies beyond the second stay at least; QuietAfterLoad when it is 0.
	Third time.Duration
}

func (s State) third() time.Duration {
	if s.Third > 0 {
		return s.Third
	}
	return QuietAfterLoad
}

func (s State) age() time.Duration {
	if s.LRUTime == 0 {
		return 0
	}
	return time.Duration(max(0, s.Now-s.LRUTime)) * time.Millisecond
}

func (s State) since(at int64) time.Duration {
	if at == 0 {
		return time.Duration(1<<63 - 1)
	}
	return time.Duration(s.Now-at) * time.Millisecond
}

// Spare tells whether the model can do without this copy.
func (s State) Spare(c Copy) bool {
	switch {
	case c.Copies < fewestToBeDropped:
		return false
	case c.Copies == fewestToBeDropped:
		return c.WorsePlace && s.since(c.LastUsed) > s.unused()
	}
	return s.since(c.LastUnload) > quietTicks*s.Tick &&
		s.since(c.LastLoad) > s.third() &&
		s.since(c.LastHeavy) > s.calm() &&
		c.RPM*calmDenominator <= c.Threshold*calmNumerator &&
		c.Queued <= mostQueued
}

// unused is how long the second copy of a model may lie idle: a tenth of the age of the oldest model, at most ten hours.
func (s State) unused() time.Duration { return min(s.age()/unusedShare, unusedMost) }

// calm is how long a further copy must have had little to do; the younger what has to go for it, the less.
func (s State) calm() time.Duration {
	return min(max(s.age()/unusedShare, min(calmLeast, s.third())), calmMost)
}

// ScaleDown picks the copies that should go, those used longest ago first, a twentieth of the capacity at most. Nothing goes
// while there is space. Copies that were used in the same millisecond are different ones all the same. Whoever acts on it
// must still see that another copy answers.
func ScaleDown(s State, copies []Copy) []Copy {
	if s.FreeShare > scarce {
		return nil
	}
	var spare []Copy
	for _, c := range copies {
		if s.Spare(c) {
			spare = append(spare, c)
		}
	}
	slices.SortFunc(spare, func(a, b Copy) int { return cmp.Or(cmp.Compare(a.LastUsed, b.LastUsed), cmp.Compare(a.ID, b.ID)) })
	budget := s.Capacity * sparePct / 100
	return slices.DeleteFunc(spare, func(c Copy) bool {
		if c.Weight > budget {
			return true
		}
		budget -= c.Weight
		return false
	})
}
