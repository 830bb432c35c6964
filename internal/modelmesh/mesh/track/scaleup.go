// SPDX-License-Identifier: Apache-2.0

package track

import "time"

// RateTick is how often an instance looks at how often its models are used.
const RateTick = 10 * time.Second

// CopyAhead is how far in the future the last use of a further copy is said to lie, so that it finds a calm place.
const CopyAhead = 20 * time.Second

const (
	heavyPct          = 75
	longestLRUAge     = 6 * time.Hour
	windowsOfAge      = 30
	secondCopyFree    = 0.10
	settleAfterCopy   = 10 * time.Second
	busyInstance      = 4 // times the threshold of one model
	busierInstance    = 2
	manyCopies        = 2
	shareOfCluster    = 3
	tenthsPerMinute   = 600_000 // of milliseconds
	leastThreshold    = 10
	minuteMillisecond = 60_000
)

// RPM is the rate of so many requests in that time, per minute.
func RPM(requests int64, over time.Duration) int64 {
	if over <= 0 {
		return 0
	}
	return requests * minuteMillisecond / max(1, over.Milliseconds())
}

// Threshold is the configured rate at which a copy asks for another, within its limit.
func Threshold(configured int64) int64 { return max(configured, leastThreshold) }

// LatencyThreshold is the rate at which copies that work on so many requests at once are busy for pct hundredths of the time,
// given how long requests took: so many, for a time in tenths of milliseconds.
func LatencyThreshold(concurrency int, requests, tenths int64, pct int) int64 {
	if tenths <= 0 {
		return 0
	}
	return int64(concurrency) * requests * tenthsPerMinute * int64(pct) / 100 / tenths
}

// Heavy tells whether a copy works hard, though not yet hard enough for another one.
func Heavy(rpm, threshold int64) bool { return rpm*100 > threshold*heavyPct }

// Window is how long ago an earlier use must lie for a model to count as used again and again.
type Window struct{ Min, Max time.Duration }

// SecondCopy is the window as users know it.
var SecondCopy = Window{Min: 7 * time.Minute, Max: 40 * time.Minute}

func (w Window) has(earlier, now int64) bool {
	ago := now - earlier
	return earlier > 0 && ago >= w.Min.Milliseconds() && ago <= w.Max.Milliseconds()
}

// Pattern remembers as much of a model's uses as is needed to see that it is used again and again. It takes 24 bytes,
// since there is one per loaded model.
type Pattern struct {
	last, mark, before int64 // marks are at least the window's beginning apart
}

// Used takes note of a use and tells whether there was one before, within the window.
func (p *Pattern) Used(now int64, w Window) bool {
	again := w.has(p.last, now) || w.has(p.mark, now) || w.has(p.before, now)
	if p.mark == 0 || now-p.mark >= w.Min.Milliseconds() {
		p.before, p.mark = p.mark, now
	}
	p.last = max(p.last, now)
	return again
}

// Peer is an instance that may have the model.
type Peer struct {
	ID  string
	RPM int64 // of the whole instance
	Has bool  // a copy of the model, loaded or loading, or a failure to load it
}

// Demand is what one instance knows of one model of its own after a tick in which the model was used.
type Demand struct {
	Now       int64
	RPM       int64 // of this copy
	Tick      time.Duration
	Threshold int64
	// Again is what Pattern said.
	Again  bool
	Window Window
	// Started are the beginnings of all copies, AssumeLoaded how long a load takes.
	Started      []int64
	AssumeLoaded time.Duration
	// FreeShare and LRUTime are of the instances that may load the model, which are Peers and this one.
	FreeShare float64
	LRUTime   int64
	SelfRPM   int64
	Peers     []Peer
}

// Growth is what should happen: so many further copies, not at the instances that are too busy.
type Growth struct {
	Copies  int
	TooBusy []string
}

// ScaleUp decides about further copies. A model that is used now and then gets a second copy when there is space, so that a
// lost instance does not cost a load; one that is used too much for its copies gets as many as the rate asks for.
func ScaleUp(d Demand) Growth {
	if d.RPM < d.Threshold {
		if len(d.Started) == 1 && d.Again && d.spacious() && d.candidates(nil) > 0 {
			return Growth{Copies: 1}
		}
		return Growth{}
	}
	settled := d.Tick + settleAfterCopy + 2*d.AssumeLoaded
	for _, start := range d.Started {
		if len(d.Started) > 1 && d.Now-start < settled.Milliseconds() {
			return Growth{}
		}
	}
	busy := d.tooBusy()
	copies := min(d.RPM/max(1, d.Threshold), int64(d.candidates(busy)))
	if copies > manyCopies {
		copies = max(manyCopies, min(copies, int64(len(d.Peers)+1)/shareOfCluster))
	}
	return Growth{Copies: int(copies), TooBusy: busy}
}

// spacious: a tenth is free, or what would be pushed out was used long ago.
func (d Demand) spacious() bool {
	age := time.Duration(d.Now-d.LRUTime) * time.Millisecond
	return d.FreeShare >= secondCopyFree || d.LRUTime > 0 && age > max(windowsOfAge*d.Window.Min, longestLRUAge)
}

func (d Demand) tooBusy() []string {
	limit := max(busyInstance*d.Threshold, d.SelfRPM-busierInstance*d.Threshold)
	var ids []string
	for _, p := range d.Peers {
		if p.RPM > limit {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// candidates counts each instance once, whether it has the model, is too busy, or both.
func (d Demand) candidates(busy []string) int {
	without := map[string]bool{}
	for _, id := range busy {
		without[id] = true
	}
	n := 0
	for _, p := range d.Peers {
		if !p.Has && !without[p.ID] {
			n++
		}
	}
	return n
}
