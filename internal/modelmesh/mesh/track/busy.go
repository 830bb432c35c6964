// SPDX-License-Identifier: Apache-2.0

package track

import "time"

// FirstSample and NextSamples say when Busy wants to be shown the counter.
const (
	FirstSample = 3 * time.Second
	NextSamples = time.Minute
)

const (
	// busyOver is how far back the rate looks, up to a sample more.
	busyOver = 6 * time.Minute
	ringSize = 35
)

// Busy is how busy an instance has been in the last minutes: the growth of a counter of requests, per minute. In latency
// mode the counter is of busy time instead. It belongs to one goroutine.
type Busy struct {
	samples []sample // a ring, once it is full
	next    int
}

type sample struct{ at, count int64 }

// Sample remembers the counter.
func (b *Busy) Sample(at, count int64) {
	if len(b.samples) < ringSize {
		b.samples = append(b.samples, sample{at, count})
		return
	}
	b.samples[b.next] = sample{at, count}
	b.next = (b.next + 1) % ringSize
}

// PerMinute is the growth per minute since the youngest sample that is six minutes old, or the oldest one there is.
func (b *Busy) PerMinute(now, count int64) int64 {
	var from sample
	for i, s := range b.samples {
		old, older := now-s.at >= busyOver.Milliseconds(), s.at < from.at
		switch fromOld := now-from.at >= busyOver.Milliseconds(); {
		case i == 0, old && (!fromOld || !older), !fromOld && older:
			from = s
		}
	}
	if len(b.samples) == 0 || now <= from.at || count <= from.count {
		return 0
	}
	return (count - from.count) * time.Minute.Milliseconds() / (now - from.at)
}
