// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/serving/activation"
)

// Why a request gets no pod.
var (
	errFull    = errors.New("too many requests wait already")
	errTooLong = errors.New("no pod became free in time")
	errLeft    = errors.New("nobody brings pods any more")
)

const (
	// gateLasts is how long new requests wait at most for the leader to take the last pods away.
	gateLasts = 10 * time.Second
	// condemned pods get no requests any more. Those that are still listed afterwards were spared.
	condemnedFor = 5 * time.Second
	// shunnedFor is how long a pod that could not be reached is left alone.
	shunnedFor = 300 * time.Millisecond
	// wakeEvery is how often the number of pods is looked at while requests wait and no pod comes.
	wakeEvery = 5 * time.Second
	// leftFor is how long a request waits for a pod of a component that is no longer ours: nobody here brings one.
	leftFor = 5 * time.Second
)

// port is one of a component's Service.
type port struct {
	name   string
	number int32
	http2  bool
}

// pod takes requests.
type pod struct {
	address string
	ports   map[string]int32
	busy    int64
	// Until then it gets none.
	shunned, condemned time.Time
}

// at is where a port of the pod is.
func (p *pod) at(port string) string {
	return net.JoinHostPort(p.address, strconv.Itoa(int(p.ports[port])))
}

// waiter is a request that waits for a pod.
type waiter struct {
	port string
	got  chan *pod // holds one; nil: none will come
}

// bounds are what one replica holds at most.
type bounds struct {
	perService, total int64
	waiting           atomic.Int64
	// strangers are requests for nobody that wait, see table.expect.
	strangers atomic.Int64
}

// target is one component: its pods, what waits for them, and what was counted.
type target struct {
	namespace, name string
	created         time.Time
	bounds          *bounds
	wake            func(*target)

	mu       sync.Mutex
	settings activation.Settings
	ports    []port
	pods     []*pod
	next     int // where the search for a pod begins
	queue    []*waiter
	gate     time.Time // closed until then
	waking   bool
	parting  bool // see table.remove

	inside  int64 // requests that wait or are at a pod
	arrived uint64
	busy    float64 // seconds that requests were inside, added up
	counted time.Time
}

func (t *target) key() string { return t.namespace + "/" + t.name }

// set takes what the Service says.
func (t *target) set(s activation.Settings, ports []port) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settings, t.ports, t.parting = s, ports, false
	t.dispatch()
}

// part is the end of scaling. Whoever waits for a pod that is not known by then is not kept for long.
func (t *target) part() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parting = true
	time.AfterFunc(leftFor, t.dismiss)
}

// dismiss sends away who waits for pods of a component that is not ours.
func (t *target) dismiss() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.parting {
		return // it is ours again
	}
	for _, w := range t.queue {
		w.got <- nil
	}
	t.queue = nil
}

// patience is how long a request may wait for a pod, and what is said then.
func (t *target) patience(hold time.Duration) (time.Duration, error) {
	if t.parts() {
		return min(hold, leftFor), errLeft
	}
	return hold, errTooLong
}

func (t *target) parts() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.parting
}

func (t *target) scaling() activation.Settings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settings
}

// setPods takes the pods that are ready. Those that were known before keep what is known of them.
func (t *target) setPods(ready []*pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, p := range ready {
		if j := slices.IndexFunc(t.pods, func(known *pod) bool { return known.address == p.address }); j >= 0 {
			t.pods[j].ports = p.ports
			ready[i] = t.pods[j]
		}
	}
	t.pods = ready
	t.dispatch()
}

// enter counts a request in, leave out.
func (t *target) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account(time.Now())
	t.inside++
	t.arrived++
}

func (t *target) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account(time.Now())
	t.inside--
}

func (t *target) account(now time.Time) {
	if !t.counted.IsZero() {
		t.busy += float64(t.inside) * now.Sub(t.counted).Seconds()
	}
	t.counted = now
}

// Figures are what one replica has counted of a service. Busy and Arrived only grow, so that whoever asks twice knows what
// happened in between.
type Figures struct {
	Busy    float64 `json:"busy"`
	Arrived uint64  `json:"arrived"`
	Inside  int64   `json:"inside"`
	Waiting int     `json:"waiting"`
	// Ready pods are known to the replica.
	Ready int `json:"ready"`
}

func (t *target) figures() Figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account(time.Now())
	return Figures{Busy: t.busy, Arrived: t.arrived, Inside: t.inside, Waiting: len(t.queue), Ready: len(t.pods)}
}

// acquire gives the request a pod, or lets it wait for one until the context ends.
func (t *target) acquire(ctx context.Context, port string) (*pod, error) {
	w, p, err := t.place(port)
	if w == nil {
		return p, err
	}
	defer t.bounds.waiting.Add(-1)
	select {
	case p := <-w.got:
		if p == nil {
			return nil, errLeft
		}
		return p, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	t.queue = slices.DeleteFunc(t.queue, func(other *waiter) bool { return other == w })
	t.mu.Unlock()
	select {
	case p := <-w.got: // it was given one in the same moment
		if p != nil {
			t.release(p)
		}
	default:
	}
	return nil, context.Cause(ctx)
}

// place finds a pod at once, or a place to wait.
func (t *target) place(port string) (*waiter, *pod, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		if p := t.pick(port, time.Now()); p != nil {
			return nil, p, nil
		}
	}
	if int64(len(t.queue)) >= t.bounds.perService || t.bounds.waiting.Load() >= t.bounds.total {
		return nil, nil, errFull
	}
	t.bounds.waiting.Add(1)
	w := &waiter{port: port, got: make(chan *pod, 1)}
	t.queue = append(t.queue, w)
	t.rouse()
	return w, nil, nil
}

// pick takes the least busy pod that may have one more request.
func (t *target) pick(port string, now time.Time) *pod {
	if now.Before(t.gate) {
		return nil
	}
	var best *pod
	for i := range t.pods {
		p := t.pods[(t.next+i)%len(t.pods)]
		if _, has := p.ports[port]; !has || now.Before(p.shunned) || now.Before(p.condemned) || t.settings.Limit > 0 && p.busy >= t.settings.Limit {
			continue
		}
		if best == nil || p.busy < best.busy {
			best = p
		}
	}
	if best != nil {
		t.next++
		best.busy++
	}
	return best
}

// release takes a request off its pod.
func (t *target) release(p *pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.busy--
	t.dispatch()
}

// shun leaves a pod alone that could not be reached.
func (t *target) shun(p *pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.shunned = time.Now().Add(shunnedFor)
	t.later(shunnedFor)
}

// dispatch gives pods to those who wait, in the order in which they came.
func (t *target) dispatch() {
	now := time.Now()
	t.queue = slices.DeleteFunc(t.queue, func(w *waiter) bool {
		p := t.pick(w.port, now)
		if p == nil {
			return false
		}
		w.got <- p
		return true
	})
	t.rouse()
}

// later looks again when a term has run out.
func (t *target) later(after time.Duration) {
	time.AfterFunc(after+time.Millisecond, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.dispatch()
	})
}

// rouse asks for a pod when requests wait and there is none, and again as long as none comes.
func (t *target) rouse() {
	now := time.Now()
	if t.waking || t.parting || len(t.queue) == 0 || now.Before(t.gate) || slices.ContainsFunc(t.pods, func(p *pod) bool { return !now.Before(p.condemned) }) {
		return
	}
	t.waking = true
	go t.wake(t)
	time.AfterFunc(wakeEvery, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waking = false
		t.rouse()
	})
}

// shut lets new requests wait, for the moment in which the leader takes the last pods away. It is refused when a request is
// inside.
func (t *target) shut() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside > 0 {
		return false
	}
	t.gate = time.Now().Add(gateLasts)
	t.later(gateLasts)
	return true
}

// open ends that moment. If the pods are about to go they get nothing more: whoever came meanwhile waits for new ones.
func (t *target) open(gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gate = time.Time{}
	if gone {
		until := time.Now().Add(condemnedFor)
		for _, p := range t.pods {
			p.condemned = until
		}
		t.later(condemnedFor)
	}
	t.dispatch()
}
