// SPDX-License-Identifier: Apache-2.0

package track

import (
	"reflect"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/placement"
)

// PublishEvery is when an instance looks whether its record is still right; in between it may look when something happened.
const PublishEvery = 40 * time.Second

const (
	publishGap     = 2 * time.Second
	publishAnyway  = 160 * time.Second
	lruMoved       = 20 * time.Second
	lruShare       = 16 // parts of its age
	capacityPct    = 2
	usedPct        = 20
	countMoved     = 10
	countPct       = 15
	loadsMoved     = 3
	rpmMoved       = 100
	rpmPct         = 10
	rpmWorthSaying = 10 // below that, ten hundredths are nothing that anybody decides by
)

// Publish tells whether the record that others have of this instance must be written anew. All instances read every record
// that is written, so a change that moves no model is not worth it, until the record is old.
func Publish(published, current *placement.Instance, publishedAt int64, v placement.View) bool {
	since := time.Duration(v.Now-publishedAt) * time.Millisecond
	switch {
	case published == nil:
		return true
	case since < publishGap:
		return false
	case since > publishAnyway:
		return !reflect.DeepEqual(published, current)
	}
	return published.Shutdown != current.Shutdown ||
		v.Full(published) != v.Full(current) ||
		published.LoadThreads != current.LoadThreads ||
		share(published.Capacity, current.Capacity) >= capacityPct ||
		share(published.Used, current.Used) >= usedPct ||
		lruChanged(published, current, v.Now) ||
		countChanged(published.Count, current.Count) ||
		loadsChanged(published, current) ||
		rpmChanged(published.RPM, current.RPM)
}

// share is the difference in hundredths of what was published; of nothing, anything is more than all.
func share(published, current int64) int64 {
	difference := apart(published, current)
	if published == 0 {
		return difference * 100
	}
	return difference * 100 / published
}

func apart(a, b int64) int64 { return max(a-b, b-a) }

func lruChanged(published, current *placement.Instance, now int64) bool {
	moved := apart(published.LRUTime, current.LRUTime)
	if moved == 0 {
		return false
	}
	return moved >= lruMoved.Milliseconds() || moved >= max(0, now-published.LRUTime)/lruShare
}

func countChanged(published, current int) bool {
	return apart(int64(published), int64(current)) >= countMoved || share(int64(published), int64(current)) >= countPct
}

// loadsChanged: what matters is whether there is a free slot, whether it loads at all, and a queue that grows.
func loadsChanged(published, current *placement.Instance) bool {
	was, is := published.LoadsInProgress, current.LoadsInProgress
	return (was == 0) != (is == 0) ||
		(was >= current.LoadThreads) != (is >= current.LoadThreads) ||
		apart(int64(was), int64(is)) >= loadsMoved
}

func rpmChanged(published, current int64) bool {
	difference := apart(published, current)
	return difference >= rpmMoved || difference >= rpmWorthSaying && share(published, current) > rpmPct
}
