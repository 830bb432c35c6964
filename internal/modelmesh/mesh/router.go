// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/splice"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

const (
	maxIterations   = 8
	maxLoadFailures = 3
	maxExhausted    = 2
	// missAfter is how long a call waits for a load before it counts as a miss.
	missAfter = 10 * time.Millisecond
)

// call is one inference, from a client or from a peer.
type call struct {
	x          *exchange
	id, vmodel string
	named      string // what to call it in the log, where that is not its id
	balanced   bool   // the client spreads its calls over instances itself

	excluded  []string // instances that have failed this call
	exhausted int
	last      error
	lost      bool // a runtime had lost the model once
}

func (c *call) exclude(instance string, err error) {
	c.excluded = append(c.excluded, instance)
	c.last = err
}

func asOutcome(err error) (*outcome, bool) { return errors.AsType[*outcome](err) }

// model finds a record, in etcd itself where the mirror has none: a model may be called the moment it is registered.
func (m *Mesh) model(ctx context.Context, id string) (*store.Model, error) {
	if row, ok := m.models.Get(id); ok {
		return row.Value, nil
	}
	asked, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	row, ok, err := m.models.Refresh(asked, id)
	switch {
	case err != nil:
		return nil, status.Error(codes.Unavailable, "the model "+id+" is not known here and etcd does not answer; try again")
	case !ok:
		return nil, status.Error(codes.NotFound, "the model "+id+" is not registered")
	}
	return row.Value, nil
}

// route answers a call of a client, wherever that is possible.
func (m *Mesh) route(ctx context.Context, c *call) error {
	for range maxIterations {
		record, err := m.model(ctx, c.id)
		if err != nil {
			return err
		}
		if instance := m.pickCopy(record, c); instance != "" {
			err = m.answerFrom(ctx, c, instance, modeHit)
		} else {
			err = m.answerAfterLoad(ctx, c, record)
		}
		if err == nil || !m.again(ctx, c, err) {
			return m.final(err)
		}
	}
	return m.final(c.last)
}

// again tells whether another instance may do better.
func (m *Mesh) again(ctx context.Context, c *call, err error) bool {
	if ctx.Err() != nil || !c.x.movable() {
		return false
	}
	o, ours := asOutcome(err)
	if ours && o.kind == outcomeBusy {
		c.exhausted++
		return c.exhausted <= maxExhausted
	}
	return ours
}

// pickCopy chooses among the instances that have a model: loaded ones before those that load it, and of these the one with
// the fewest calls of ours. This instance wins a tie, because nothing is nearer. Empty: nobody has it.
func (m *Mesh) pickCopy(record *store.Model, c *call) string {
	self, here := m.copyHere(c)
	if here && self.Loaded != 0 && (c.balanced || len(record.Copies) <= 1) {
		return self.Instance
	}
	candidates := m.reachable(record, c.excluded)
	if here {
		candidates = append(candidates, self)
	}
	if len(candidates) == 0 {
		return ""
	}
	best := candidates[0]
	for _, other := range candidates[1:] {
		if m.better(other, best) {
			best = other
		}
	}
	return best.Instance
}

// better compares two copies for a call.
func (m *Mesh) better(a, b store.Copy) bool {
	aLoaded, bLoaded := m.isLoaded(a), m.isLoaded(b)
	if aLoaded != bLoaded {
		return aLoaded
	}
	if !aLoaded { // the one that began first will have it first
		return a.Began < b.Began
	}
	aCalls, aPicked := m.busyness(a.Instance)
	bCalls, bPicked := m.busyness(b.Instance)
	if aCalls != bCalls {
		return aCalls < bCalls
	}
	return a.Instance == m.set.Instance || (b.Instance != m.set.Instance && aPicked < bPicked)
}

// copyHere is what this instance has, whatever the record says.
func (m *Mesh) copyHere(c *call) (store.Copy, bool) {
	e := m.cache().get(c.id)
	if e == nil || slices.Contains(c.excluded, m.set.Instance) {
		return store.Copy{}, false
	}
	state, loaded := e.is()
	return store.Copy{Instance: m.set.Instance, Began: e.began, Loaded: loaded}, state < failed
}

// reachable are the copies in other instances that can be asked.
func (m *Mesh) reachable(record *store.Model, excluded []string) []store.Copy {
	out := make([]store.Copy, 0, len(record.Copies)+1)
	for _, c := range record.Copies {
		if c.Instance == m.set.Instance || slices.Contains(excluded, c.Instance) {
			continue
		}
		if p := m.peers.get(c.Instance); p != nil && p.reachable() {
			out = append(out, c)
		}
	}
	return out
}

// isLoaded believes an instance that has not told for longer than any load takes: it may have lost sight of etcd.
func (m *Mesh) isLoaded(c store.Copy) bool {
	return c.Loaded != 0 || m.now().UnixMilli()-c.Began > m.runtime.said.Load().loadTimeout.Milliseconds()
}

// busyness is how many calls this instance has sent to another that are not answered yet, and when it sent the last.
func (m *Mesh) busyness(instance string) (calls int32, picked int64) {
	if instance == m.set.Instance {
		return m.inflight.Load(), 0
	}
	if p := m.peers.get(instance); p != nil {
		return p.inflight.Load(), p.picked.Load()
	}
	return 0, 0
}

// answerAfterLoad has an instance load the model first.
func (m *Mesh) answerAfterLoad(ctx context.Context, c *call, record *store.Model) error {
	if c.exhausted > 0 { // there are copies, and they are busy; that is no reason for another call to wait for a load
		return m.final(c.last)
	}
	if err := m.tooManyFailures(c.id, record); err != nil {
		m.wanted(c.id, record)
		return err
	}
	target, err := m.placeFor(ctx, c, record)
	if err != nil {
		if len(record.Failures) > 0 {
			m.wanted(c.id, record)
		}
		if c.last != nil { // what was tried says more than that nothing is left to try
			return m.final(c.last)
		}
		return err
	}
	return m.answerFrom(ctx, c, target, modeLoad)
}

// answerFrom lets one instance answer. What it could not do is remembered, so that another one is asked next.
func (m *Mesh) answerFrom(ctx context.Context, c *call, instance, mode string) error {
	var err error
	if instance == m.set.Instance {
		err = m.answerHere(ctx, c, mode == modeLoad)
	} else {
		err = m.forward(ctx, c, instance, mode)
	}
	o, ours := asOutcome(err)
	switch {
	case !ours:
		return err
	case o.kind == outcomeLost && c.lost: // reloading has not helped
		return o.err
	case o.kind == outcomeLost:
		c.lost, c.last = true, err
	default:
		c.exclude(instance, err)
	}
	return err
}

// forward sends a call to a peer.
func (m *Mesh) forward(ctx context.Context, c *call, instance, mode string) error {
	p := m.peers.get(instance)
	if p == nil {
		return because(outcomeAbsent, codes.Unavailable, "the instance "+instance+" is not known")
	}
	header := c.x.header.Copy()
	header[headerModel], header[headerMode] = []string{c.id}, []string{mode}
	if c.vmodel != "" {
		header[headerVModel] = []string{c.vmodel}
	}
	excluded := c.excluded
	if mode == modeLoad { // whoever has another one load a model has none itself, whatever its record still says
		excluded = append(slices.Clip(excluded), m.set.Instance)
	}
	if len(excluded) > 0 {
		header[headerExcluded] = excluded
	}
	if m.sendDestination.Load() {
		header[headerDestination] = []string{instance}
	}
	p.inflight.Add(1)
	p.picked.Store(m.now().UnixNano())
	defer p.inflight.Add(-1)
	trailer, err := c.x.attempt(ctx, outbound{conn: p.conn, header: header})
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err := understand(trailer, err); err != nil {
		if o, ours := asOutcome(err); ours {
			return o
		}
	}
	if isFull(err) && !errors.Is(err, errFull) { // it has no memory for messages; another one may
		return &outcome{outcomeBusy, err}
	}
	if status.Code(err) == codes.Unavailable { // nobody else says so: the connection broke
		return &outcome{outcomeAbsent, err}
	}
	c.x.in.SetTrailer(passedOn(trailer))
	return err
}

// answerHere has the runtime beside us answer.
func (m *Mesh) answerHere(ctx context.Context, c *call, load bool) error {
	now := m.now()
	e := m.cache().use(c.id, now.UnixMilli())
	if e == nil && !load {
		return because(outcomeAbsent, codes.Unavailable, "the model "+c.id+" is not loaded in this instance")
	}
	if e == nil {
		record, err := m.model(ctx, c.id)
		if err != nil {
			return err
		}
		if e, err = m.loadHere(ctx, c.id, record, wish{lastUsed: now.UnixMilli(), awaited: true, size: record.Size, instead: c.excluded}); err != nil {
			return err
		}
		e.used.Store(now.UnixMilli())
	}
	var queued time.Duration // behind other calls, which has nothing to do with loading
	release, err := e.acquire(ctx, func(d time.Duration) { queued = d; m.metrics.requestQueued(d) })
	if waited := m.now().Sub(now) - queued; waited > missAfter {
		m.metrics.missed(waited)
		m.pool.raise(e, now.Add(urgent).UnixMilli())
	}
	if err != nil {
		return err
	}
	defer release()
	m.inflight.Add(1)
	defer m.inflight.Add(-1)
	return m.callRuntime(ctx, c, e)
}

func (m *Mesh) callRuntime(ctx context.Context, c *call, e *entry) error {
	to := outbound{conn: m.runtime.serve, header: c.x.header.Copy()}
	path, known := m.runtime.method(c.x.method)
	if !known {
		return status.Error(codes.Unimplemented, "the runtime does not offer the method "+c.x.method[1:])
	}
	if len(path) > 0 {
		to.change = func(message []byte) ([]byte, error) { return splice.Inject(message, path, c.id) }
	}
	to.header[modelHeader(c.id)] = []string{c.id}
	answered := m.payloads.watch(c, &to)
	began := m.now()
	trailer, err := c.x.attempt(ctx, to)
	took := m.now().Sub(began)
	e.calls.Add(1)
	e.busy.Add(int64(took))
	m.calls.Add(1)
	m.metrics.invoked(c, took, err)
	answered(err)
	if err == nil || ctx.Err() != nil || errors.Is(err, errFull) {
		return err
	}
	switch code := status.Code(err); {
	case lostModel(err):
		m.log.Info("The runtime does not have a model that it loaded; it is loaded again", "model", c.id)
		m.leave(e, false)
		return &outcome{outcomeLost, err}
	case code == codes.Unavailable:
		m.runtime.suspect()
		return &outcome{outcomeRuntime, err}
	case code == codes.ResourceExhausted:
		return &outcome{outcomeBusy, err}
	}
	c.x.in.SetTrailer(passedOn(trailer))
	return err
}

// modelHeader is the name under which a runtime gets an id: one that HTTP cannot carry goes encoded.
func modelHeader(id string) string {
	for _, b := range []byte(id) {
		if b < ' ' || b > '~' {
			return "mm-model-id-bin"
		}
	}
	return "mm-model-id"
}
