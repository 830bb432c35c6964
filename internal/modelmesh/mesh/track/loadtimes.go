// SPDX-License-Identifier: Apache-2.0

package track

import (
	"math"
	"sync"
	"time"
)

const (
	leastAssumed = 3 * time.Second
	// The first samples pull the assumption towards them, later ones set it, at every fourth.
	firstSamples, everyNth = 3, 4
	// A spread that few samples show is less certain.
	fewSamples, wide, narrow = 20, 5, 3
	// Types come from users; beyond so many a new one is only ever assumed the default.
	mostTypes = 4096
)

// LoadTimes learns for each type of model how long a load takes, so that a copy that is still loading can be told from one
// that should be there by now. It is safe for many goroutines.
type LoadTimes struct {
	initial time.Duration
	mu      sync.RWMutex
	types   map[string]*loadTime
}

// loadTime is a running mean and variance in milliseconds.
type loadTime struct {
	samples       int
	mean, squares float64
	assumed       time.Duration
}

// NewLoadTimes knows nothing yet but the time after which a runtime gives up a load.
func NewLoadTimes(timeout time.Duration) *LoadTimes {
	return &LoadTimes{initial: max(leastAssumed, timeout/3), types: map[string]*loadTime{}}
}

// Initial is what is assumed of a type of which nothing is known.
func (l *LoadTimes) Initial() time.Duration { return l.initial }

// AssumeLoaded is how long after its beginning a load of this type can be taken for done.
func (l *LoadTimes) AssumeLoaded(modelType string) time.Duration {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if t := l.types[modelType]; t != nil {
		return t.assumed
	}
	return l.initial
}

// Loaded takes note of a load that succeeded.
func (l *LoadTimes) Loaded(modelType string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.types[modelType]
	if t == nil {
		if len(l.types) >= mostTypes {
			return
		}
		t = &loadTime{assumed: l.initial}
		l.types[modelType] = t
	}
	t.add(took)
}

func (t *loadTime) add(took time.Duration) {
	ms := float64(took) / float64(time.Millisecond)
	t.samples++
	delta := ms - t.mean
	t.mean += delta / float64(t.samples)
	t.squares += delta * (ms - t.mean)
	switch {
	case t.samples <= firstSamples:
		t.assumed = (2*t.assumed + milliseconds(t.mean)) / 3
	case t.samples%everyNth == 0:
		deviations := float64(narrow)
		if t.samples <= fewSamples {
			deviations = wide
		}
		t.assumed = milliseconds(t.mean + deviations*math.Sqrt(t.squares/float64(t.samples)))
	}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
