// SPDX-License-Identifier: Apache-2.0

// Package placement decides which instance should load a model: who may, who is best, and who of the good ones it will be.
// Everything is a pure function of the records that instances publish. It must not read a clock, draw random numbers or
// call anybody: time and chance are given by the caller. Times are milliseconds since 1970.
package placement

import (
	"cmp"
	"slices"
	"time"
)

// Instance is what an instance has published of itself. Capacity, Used and space are in units of 8 KiB.
type Instance struct {
	ID       string
	LRUTime  int64 // last use of what was used longest ago; 0 when it has nothing
	Count    int   // models
	Capacity int64
	Used     int64
	// LoadThreads is how many models it loads at once, LoadsInProgress how many it loads or will load next.
	LoadThreads, LoadsInProgress int
	RPM                          int64 // requests per minute
	Shutdown                     bool
	StartTime                    int64
	Version                      int64
	Location, Zone               string
	Labels                       []string
}

// Free is the space that is left.
func (i *Instance) Free() int64 { return max(0, i.Capacity-i.Used) }

// View is how instances are looked at.
type View struct {
	Now int64
	// MinSpace is the free space below which an instance counts as full.
	MinSpace int64
	// ChurnAge: what is full and gives up models that were used less long ago is saturated, and its version counts for nothing.
	ChurnAge time.Duration
	// Replaced are replica sets whose instances are avoided while there are others; see Upgrades.
	Replaced map[string]bool
}

// Full tells whether a further model would push another one out.
func (v View) Full(i *Instance) bool { return i.Free() < v.MinSpace }

// age is how long ago the instance's oldest model was used.
func (v View) age(i *Instance) int64 { return max(0, v.Now-i.LRUTime) }

func (v View) saturated(i *Instance) bool {
	return v.Full(i) && v.age(i) < v.ChurnAge.Milliseconds()
}

// version is one that a saturated instance does not have, however new it is: a new version must not be the reason to push
// out models that are in use.
func (v View) version(i *Instance) int64 {
	if v.saturated(i) {
		return 0
	}
	return i.Version
}

// Compare is negative when a is the better place. It orders all instances the same way for everybody who sees the same
// records, and never calls two different ones equal.
func (v View) Compare(a, b *Instance) int {
	if order := cmp.Or(
		falseFirst(a.Shutdown, b.Shutdown),
		cmp.Compare(v.version(b), v.version(a)),
		falseFirst(v.Full(a), v.Full(b)),
	); order != 0 {
		return order
	}
	full := v.Full(a) // as is b
	if full {
		if order := cmp.Compare(a.LRUTime, b.LRUTime); order != 0 {
			return order
		}
	}
	return cmp.Or(
		cmp.Compare(a.Count, b.Count),
		cmp.Compare(b.Free(), a.Free()),
		cmp.Compare(a.LRUTime, b.LRUTime),
		cmp.Compare(b.LoadThreads-b.LoadsInProgress, a.LoadThreads-a.LoadsInProgress),
		cmp.Compare(a.LoadsInProgress, b.LoadsInProgress),
		cmp.Compare(b.Capacity, a.Capacity),
		cmp.Compare(a.RPM, b.RPM),
		cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Location, b.Location),
		cmp.Compare(a.Zone, b.Zone),
		slices.Compare(a.Labels, b.Labels),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Sort puts the best place first.
func (v View) Sort(instances []*Instance) { slices.SortFunc(instances, v.Compare) }

// Totals is what a set of instances has together.
type Totals struct {
	Instances      int
	Models         int
	Capacity, Used int64
	// LRUTime is the last use of the oldest model anywhere among them; 0 when none has any.
	LRUTime int64
}

// FreeShare is the part of the capacity that is free, from 0 to 1.
func (t Totals) FreeShare() float64 {
	if t.Capacity <= 0 {
		return 0
	}
	return float64(max(0, t.Capacity-t.Used)) / float64(t.Capacity)
}

// Sum adds up the instances that may load the type and are not about to end.
func Sum(instances []*Instance, c Constraints, modelType string) Totals {
	var t Totals
	for _, i := range instances {
		if i.Shutdown || !c.Allows(modelType, i.Labels) {
			continue
		}
		t.Instances++
		t.Models += i.Count
		t.Capacity += i.Capacity
		t.Used += i.Used
		if i.LRUTime > 0 && (t.LRUTime == 0 || i.LRUTime < t.LRUTime) {
			t.LRUTime = i.LRUTime
		}
	}
	return t
}
