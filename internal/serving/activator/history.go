// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"math"
	"time"

	"github.com/modelplane/modelplane/internal/serving/activation"
)

// Tuning is how calmly pods come and go.
type Tuning struct {
	// Window is how long what was counted is averaged over; Panic the short one in which a burst shows.
	Window, Panic time.Duration
	// Idle is how long no request must have come before the last pod goes.
	Idle time.Duration
	// DownDelay is how long fewer pods must have been enough before some go.
	DownDelay time.Duration
}

// sample is what was counted between two looks, all replicas together.
type sample struct {
	at               time.Time
	concurrency, rps float64
}

// history is what the leader has seen of one service. It begins when the leader first looks: what was before nobody knows,
// so that no pod is taken away before a whole window has passed.
type history struct {
	since    time.Time
	samples  []sample
	lastBusy time.Time
	panicky  time.Time // no pod goes before
	wishes   []wish
}

type wish struct {
	at   time.Time
	pods int32
}

// add notes a sample. A busy one, or one of which a part is missing, counts as a request for when the last pod may go.
func (h *history) add(s sample, busy bool, tuning Tuning) {
	if h.since.IsZero() {
		h.since, h.lastBusy = s.at, s.at
	}
	if busy {
		h.lastBusy = s.at
	}
	h.samples = append(h.samples, s)
	for len(h.samples) > 1 && s.at.Sub(h.samples[0].at) > tuning.Window {
		h.samples = h.samples[1:]
	}
}

// average of what pods are counted by, over the last while.
func (h *history) average(now time.Time, over time.Duration, metric string) float64 {
	sum, n := 0.0, 0
	for i := len(h.samples) - 1; i >= 0 && now.Sub(h.samples[i].at) < over; i-- {
		if metric == activation.RPS {
			sum += h.samples[i].rps
		} else {
			sum += h.samples[i].concurrency
		}
		n++
	}
	return sum / float64(max(n, 1))
}

// burst is how many times more pods than there are must be wanted for a burst.
const burst = 2

// desired is how many pods there should be, given how many there are asked for and ready now. Zero pods take idleness for as
// long as is set; up to then the last one stays.
func (h *history) desired(now time.Time, s activation.Settings, tuning Tuning, current, ready int32) int32 {
	stable := podsFor(h.average(now, tuning.Window, s.Metric), s.Target)
	short := podsFor(h.average(now, tuning.Panic, s.Metric), s.Target)
	if short >= burst*max(ready, 1) {
		h.panicky = now.Add(tuning.Window)
	}
	want := stable
	if now.Before(h.panicky) {
		want = max(want, short, current)
	}
	if now.Sub(h.since) < tuning.Window {
		want = max(want, current)
	}
	want = h.delayed(now, want, tuning.DownDelay)
	least := max(s.Min, 1)
	if s.Min == 0 && h.idle(now, s, tuning) {
		least = 0
	}
	if current == 0 && want == 0 {
		least = s.Min // it is at zero already, and stays there until somebody comes
	}
	return min(max(want, least), s.Max)
}

// idle tells that nobody came for long enough, as far as we can tell.
func (h *history) idle(now time.Time, s activation.Settings, tuning Tuning) bool {
	enough := tuning.Idle
	if s.IdleSeconds > 0 {
		enough = time.Duration(s.IdleSeconds) * time.Second
	}
	return now.Sub(h.lastBusy) >= max(enough, tuning.Panic) && now.Sub(h.since) >= tuning.Window
}

// delayed is the most that was wanted during the delay.
func (h *history) delayed(now time.Time, want int32, delay time.Duration) int32 {
	if delay <= 0 {
		return want
	}
	h.wishes = append(h.wishes, wish{now, want})
	for len(h.wishes) > 1 && now.Sub(h.wishes[0].at) > delay {
		h.wishes = h.wishes[1:]
	}
	for _, w := range h.wishes {
		want = max(want, w.pods)
	}
	return want
}

// podsFor is how many pods an amount takes.
func podsFor(amount float64, target int32) int32 {
	const most = 1 << 20
	return int32(min(math.Ceil(amount/float64(target)), most))
}
