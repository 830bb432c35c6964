// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"time"
)

// Wish is a model that looks for a place.
type Wish struct {
	Type string
	// LastUsed is when the model was last asked for; a time in the future says that this is a further copy of a busy model.
	LastUsed int64
	// Self is the instance that decides. Balanced says that callers spread their requests already, so that staying here is as
	// good as any other of the good places.
	Self     string
	Balanced bool
	// Excluded are instances that have the model, failed to load it, or could not be reached.
	Excluded func(id string) bool
}

const (
	// When the best place is full, others count as equally good whose oldest models are about as old.
	lruSlack, lruShare = 45 * time.Second, 10 // hundredths of the age
	// Preferred places are worth more than that.
	preferredSlack, preferredShare = 2 * time.Minute, 25
	// Places with space: a quarter of the best one's space, and not many more models.
	spaceDivisor            = 4
	fewModels, moreModels   = 10, 125 // hundredths of the best one's
	leastRPM                = 100
	day                     = 24 * time.Hour
	ratherNow               = 5 * time.Second
	ratherSoon              = 12 * time.Minute
	notWorthLooking         = 5 * day
	busyForCopies           = 110 // hundredths of the least busy one's requests
	busyForNow, busyForSoon = 150, 300
	busyForRest             = 400
)

// Choose names the instance that should load the model. Random draws from 0 to n-1. False when no instance may.
func (v View) Choose(instances []*Instance, c Constraints, w Wish, random func(n int) int) (*Instance, bool) {
	list := v.Shortlist(instances, c, w)
	if len(list) == 0 {
		return nil, false
	}
	if w.Balanced {
		if i := slices.IndexFunc(list, func(i *Instance) bool { return i.ID == w.Self }); i >= 0 {
			return list[i], true
		}
	}
	list = v.calm(list, w.LastUsed)
	return list[random(len(list))], true
}

// Shortlist are the places that are about as good as the best one, best first.
func (v View) Shortlist(instances []*Instance, c Constraints, w Wish) []*Instance {
	candidates := v.candidates(instances, c, w)
	if len(candidates) == 0 {
		return nil
	}
	v.Sort(candidates)
	best := candidates[0]
	if preferred := v.preferred(candidates, c, w.Type); len(preferred) > 0 {
		if list := v.near(preferred, v.bar(best, preferred[0])); len(list) > 0 {
			return list
		}
	}
	return v.near(candidates, bar{best, lruSlack, lruShare})
}

// candidates may load the model. Those that are about to end or to be replaced stay only when there is nobody else.
func (v View) candidates(instances []*Instance, c Constraints, w Wish) []*Instance {
	var able []*Instance
	for _, i := range instances {
		if c.Allows(w.Type, i.Labels) && (w.Excluded == nil || !w.Excluded(i.ID)) && !i.Shutdown {
			able = append(able, i)
		}
	}
	staying := slices.DeleteFunc(slices.Clone(able), func(i *Instance) bool { return v.Replaced[replicaSet(i.ID)] })
	if len(staying) > 0 {
		return staying
	}
	return able
}

// preferred are the candidates that the type asks for; when it asks for none, the most specialised ones, if they differ.
func (v View) preferred(candidates []*Instance, c Constraints, modelType string) []*Instance {
	if asks, _ := c.prefers(modelType, nil); asks {
		return slices.DeleteFunc(slices.Clone(candidates), func(i *Instance) bool {
			_, met := c.prefers(modelType, i.Labels)
			return !met
		})
	}
	if len(c.types) < 2 {
		return nil
	}
	scores := make([]int, len(candidates))
	for n, i := range candidates {
		scores[n] = c.reserved(i.Labels)
	}
	most := slices.Max(scores)
	if most == slices.Min(scores) {
		return nil
	}
	var list []*Instance
	for n, i := range candidates {
		if scores[n] == most {
			list = append(list, i)
		}
	}
	return list
}

// bar is what a place must reach to be about as good as another.
type bar struct {
	best  *Instance
	slack time.Duration
	share int64
}

// bar of preferred places: with space they are compared among themselves; without, they must not give up models that are
// much younger than those that the best place of all would give up. A full one is no choice while another has space.
func (v View) bar(best, preferred *Instance) bar {
	if v.Full(best) || v.Full(preferred) {
		return bar{best, preferredSlack, preferredShare}
	}
	return bar{preferred, lruSlack, lruShare}
}

// near are the places that reach the bar. Each is judged by its own record.
func (v View) near(sorted []*Instance, b bar) []*Instance {
	var list []*Instance
	for _, i := range sorted {
		if i == b.best || v.reaches(i, b) {
			list = append(list, i)
		}
	}
	return list
}

func (v View) reaches(i *Instance, b bar) bool {
	if v.version(i) < v.version(b.best) {
		return false
	}
	if !v.Full(b.best) {
		return !v.Full(i) && i.Free() >= b.best.Free()/spaceDivisor &&
			(i.Count < fewModels || int64(i.Count)*100 <= int64(b.best.Count)*moreModels)
	}
	slack := max(b.slack.Milliseconds(), v.age(b.best)*b.share/100)
	return !v.Full(i) || i.LRUTime <= b.best.LRUTime+slack
}

// calm leaves out those that are much busier than the least busy one. The sooner the model will be asked for, the more
// that matters; for one that nobody asked for in days it does not.
func (v View) calm(list []*Instance, lastUsed int64) []*Instance {
	factor, ok := v.busyFactor(lastUsed)
	if !ok || len(list) < 2 {
		return list
	}
	least := list[0].RPM
	for _, i := range list {
		least = min(least, i.RPM)
	}
	least = max(least, leastRPM)
	return slices.DeleteFunc(slices.Clone(list), func(i *Instance) bool { return i.RPM*100 > least*factor })
}

func (v View) busyFactor(lastUsed int64) (int64, bool) {
	ago := time.Duration(v.Now-lastUsed) * time.Millisecond
	switch {
	case ago < 0:
		return busyForCopies, true
	case ago < ratherNow:
		return busyForNow, true
	case ago < ratherSoon:
		return busyForSoon, true
	case ago <= notWorthLooking:
		return busyForRest, true
	}
	return 0, false
}
