// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// look is how often the leader asks its peers what they have counted.
	look = time.Second
	// mismatch is how long the number of pods may differ from what was asked for before the latter is read again; from then
	// on in growing distances.
	mismatch, longestMismatch = 10 * time.Second, 5 * time.Minute
)

// leader decides how many pods services have. It lives as long as the process leads.
type leader struct {
	table   *table
	peers   *peers
	scales  *scales
	tuning  Tuning
	metrics *metrics
	log     *slog.Logger

	services map[string]*led
	// before are the last reports, by replica.
	before map[string]heard
}

// led is what the leader knows of one service.
type led struct {
	history history
	// current is how many pods it was last known to be asked for; -1: not known.
	current int32
	// checkAt and patience say when to read it again.
	checkAt  time.Time
	patience time.Duration
}

// heard is a report and when it was heard.
type heard struct {
	Report
	at time.Time
}

// lead decides until the context ends.
func (l *leader) lead(ctx context.Context) {
	l.services, l.before = map[string]*led{}, map[string]heard{}
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.round(ctx, now)
		}
	}
}

// round listens to all and decides about each.
func (l *leader) round(ctx context.Context, now time.Time) {
	reports, complete := l.listen(ctx)
	known := map[string]bool{}
	for _, t := range l.table.all() {
		known[t.key()] = true
		l.decide(ctx, t, now, reports, complete)
	}
	for key := range l.services {
		if !known[key] {
			delete(l.services, key)
		}
	}
	l.before = reports
}

// listen asks every replica. complete says that all have answered.
func (l *leader) listen(ctx context.Context) (reports map[string]heard, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, look)
	defer cancel()
	reports, complete = map[string]heard{}, true
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, p := range l.peers.all() {
		all.Go(func() {
			report, err := p.figures(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				complete = false
				l.log.Debug("A replica does not answer", "replica", p.id(), "err", err.Error())
				return
			}
			reports[p.id()] = heard{report, time.Now()}
		})
	}
	all.Wait()
	return reports, complete
}

// sum adds up what happened since the last look.
func (l *leader) sum(key string, reports map[string]heard) (s sample, inside int64, waiting int, ready int32) {
	for id, now := range reports {
		f := now.Services[key]
		inside, waiting, ready = inside+f.Inside, waiting+f.Waiting, max(ready, int32(min(f.Ready, 1<<20)))
		before, known := l.before[id]
		if !known || before.Instance != now.Instance {
			s.concurrency += float64(f.Inside)
			continue
		}
		past, seconds := before.Services[key], now.at.Sub(before.at).Seconds()
		if seconds <= 0 || f.Busy < past.Busy || f.Arrived < past.Arrived { // it was forgotten in between
			s.concurrency += float64(f.Inside)
			continue
		}
		s.concurrency += (f.Busy - past.Busy) / seconds
		s.rps += float64(f.Arrived-past.Arrived) / seconds
	}
	return s, inside, waiting, ready
}

// decide looks at one service.
func (l *leader) decide(ctx context.Context, t *target, now time.Time, reports map[string]heard, complete bool) {
	key := t.key()
	s := l.services[key]
	if s == nil {
		s = &led{current: -1, patience: mismatch}
		l.services[key] = s
	}
	sample, inside, waiting, ready := l.sum(key, reports)
	sample.at = now
	busy := inside > 0 || sample.rps > 0 || sample.concurrency > 0
	s.history.add(sample, busy || !complete, l.tuning)
	l.refresh(ctx, t, s, now, ready)
	if s.current < 0 {
		return
	}
	wanted := s.history.desired(now, t.scaling(), l.tuning, s.current, ready)
	if waiting > 0 {
		wanted = max(wanted, 1)
	}
	l.metrics.wanted.WithLabelValues(t.namespace, t.name).Set(float64(wanted))
	switch {
	case wanted == s.current:
	case wanted == 0 && !complete:
	case wanted == 0:
		l.toZero(ctx, t, s)
	default:
		l.set(ctx, t, s, wanted, "of its traffic")
	}
}

// refresh reads how many pods were asked for when that is not known, and when the pods that there are tell another story:
// somebody else may have changed it.
func (l *leader) refresh(ctx context.Context, t *target, s *led, now time.Time, ready int32) {
	switch {
	case s.current < 0:
	case s.current == ready:
		s.checkAt, s.patience = time.Time{}, mismatch
		return
	case s.checkAt.IsZero():
		s.checkAt = now.Add(s.patience)
		return
	case now.Before(s.checkAt):
		return
	default:
		s.patience = min(2*s.patience, longestMismatch)
		s.checkAt = now.Add(s.patience)
	}
	if seen, err := l.scales.read(ctx, t); err == nil {
		s.current = seen.Spec.Replicas
	} else if !apierrors.IsNotFound(err) && ctx.Err() == nil {
		l.log.Error("The number of pods cannot be read", "service", t.key(), "err", err.Error())
	}
}

// set writes another number than zero.
func (l *leader) set(ctx context.Context, t *target, s *led, pods int32, why string) {
	seen, err := l.scales.read(ctx, t)
	if err == nil {
		s.current = seen.Spec.Replicas
		err = l.scales.write(ctx, t, seen, pods, why)
	}
	switch {
	case err == nil:
		s.current = pods
	case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil:
		l.log.Error("A service cannot be scaled; it is tried again", "service", t.key(), "err", err.Error())
	}
}

// toZero takes the last pods away, in a moment in which no replica has a request and none sends one: first all let new
// requests wait, and only if every one of them could do so the number is written. A request that comes meanwhile waits for a
// new pod, or goes on to the old one if something was in the way.
func (l *leader) toZero(ctx context.Context, t *target, s *led) {
	seen, err := l.scales.read(ctx, t)
	if err != nil {
		return // the next look tells
	}
	if s.current = seen.Spec.Replicas; s.current == 0 {
		return
	}
	last := gateOpen
	if l.gates(ctx, t, gateShut) {
		last = l.writeZero(ctx, t, s, seen)
	}
	l.gates(context.WithoutCancel(ctx), t, last)
}

// writeZero writes while the gates are shut, and says how they are to be opened. Where nobody knows what became of the write,
// the pods may be about to go.
func (l *leader) writeZero(ctx context.Context, t *target, s *led, seen *autoscalingv1.Scale) string {
	ctx, cancel := context.WithTimeout(ctx, gateLasts/2)
	defer cancel()
	err := l.scales.write(ctx, t, seen, 0, "nobody asks for it")
	switch {
	case err == nil:
		s.current = 0
	case apierrors.IsConflict(err):
		return gateOpen
	default:
		s.current = -1
		l.log.Error("A service cannot be scaled to zero; it is tried again", "service", t.key(), "err", err.Error())
	}
	return gateGone
}

// gates asks every replica for the same, and tells whether all have done it.
func (l *leader) gates(ctx context.Context, t *target, do string) bool {
	ctx, cancel := context.WithTimeout(ctx, look)
	defer cancel()
	done := true
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, p := range l.peers.all() {
		all.Go(func() {
			ok, err := p.gate(ctx, gateQuestion{Service: t.key(), Do: do})
			mu.Lock()
			defer mu.Unlock()
			done = done && ok && err == nil
		})
	}
	all.Wait()
	return done
}
