// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/placement"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/track"
)

// Mesh is one instance.
type Mesh struct {
	set   *Settings
	log   *slog.Logger
	level *slog.LevelVar
	// baseLevel is what the log shows unless a setting says otherwise.
	baseLevel slog.Level
	now       func() time.Time
	started   time.Time

	store     *store.Store
	session   *store.Session
	election  *store.Election
	models    *store.Table[store.Model]
	vmodels   *store.Table[store.VModel]
	instances *store.Table[store.Instance]
	settings  *store.Table[string]

	runtime *runtimeClient
	held    atomic.Pointer[cache]
	pool    *pool
	books   *books
	failed  failures
	peers   *peers
	mover   *mover
	times   *track.LoadTimes
	calls   atomic.Int64 // of the runtime beside us, ever
	rpm     atomic.Int64 // of these, lately

	upgrades placement.Upgrades // of the task that measures
	replaced atomic.Pointer[map[string]bool]

	dataplane   atomic.Pointer[dataplane]
	constraints atomic.Pointer[placement.Constraints]

	// These can be changed while the mesh runs.
	logEach, sendDestination atomic.Bool
	scaleUpRPM               atomic.Int64

	metrics  *metrics
	memory   collecting
	ledger   *ledger
	payloads *payloads
	failfast *failfast
	tls      *certificates

	checks   chan struct{} // one for each model that is looked for
	checking atomic.Int32  // those that wait for that, too

	inflight  atomic.Int32 // calls of the runtime beside us
	draining  atomic.Bool
	parted    atomic.Bool // others are told that nothing is here any more
	drained   chan struct{}
	ended     chan struct{} // no call is answered any more
	stopAsked chan struct{}
	stopOnce  sync.Once
	ready     atomic.Bool
	everReady atomic.Bool

	published   atomic.Pointer[store.Instance]
	publishedAt atomic.Int64
	publishWake chan struct{}

	life  context.Context // ends with the process, after the drain
	tasks sync.WaitGroup
	// gate keeps background work from beginning once the process ends.
	gate   sync.Mutex
	closed bool
}

func (m *Mesh) cache() *cache { return m.held.Load() }

// background runs something that nobody waits for, and that ends with the process.
func (m *Mesh) background(work func(context.Context)) {
	m.gate.Lock()
	defer m.gate.Unlock()
	if m.closed {
		return
	}
	m.tasks.Go(func() { work(m.life) })
}

// New prepares an instance; Run starts it.
func New(set Settings, log *slog.Logger, level *slog.LevelVar) (*Mesh, error) {
	m := &Mesh{
		set: &set, log: log, level: level, baseLevel: level.Level(), now: time.Now, pool: newPool(), times: track.NewLoadTimes(0),
		drained: make(chan struct{}), ended: make(chan struct{}), stopAsked: make(chan struct{}), publishWake: make(chan struct{}, 1),
		checks: make(chan struct{}, checksAtOnce),
	}
	m.started = m.now()
	m.ledger = newLedger(messageMemory(set.MessageMemory, containerMemory(), set.MaxMessage))
	m.logEach.Store(set.LogEachInvoke)
	m.sendDestination.Store(set.SendDestination)
	m.scaleUpRPM.Store(set.ScaleUpRPM)
	m.failfast = &failfast{began: m.started, enabled: set.FailFast}
	m.books, m.mover = newBooks(m), newMover(m)
	m.held.Store(newCache(&limits{threads: 1}))
	var err error
	if m.metrics, err = newMetrics(m); err != nil {
		return nil, err
	}
	if m.payloads, err = newPayloads(&set, log, m.metrics.payloadDropped); err != nil {
		return nil, err
	}
	if m.tls, err = loadCertificates(set.TLS, log); err != nil {
		return nil, err
	}
	if m.runtime, err = newRuntimeClient(m.set, log, m.ledger); err != nil {
		return nil, err
	}
	if err := m.readFiles(); err != nil {
		return nil, err
	}
	m.peers = newPeers(set.Instance, m.tls.peerClient(), set.MaxMessage, m.ledger)
	if m.store, err = store.Open(set.Store, store.Options{Prefix: set.StorePrefix, Service: set.Service, ReadOnly: set.ReadOnly, Log: log}); err != nil {
		return nil, err
	}
	m.tables()
	return m, nil
}

func (m *Mesh) tables() {
	m.models = store.NewTable(m.store, store.Registry, store.ModelCodec, m.modelChanged)
	m.vmodels = store.NewTable(m.store, store.VModels, store.VModelCodec, m.vmodelChanged)
	m.instances = store.NewTable(m.store, store.Instances, store.InstanceCodec, m.instanceChanged)
	m.settings = store.NewTable(m.store, store.Settings, store.TextCodec, m.settingChanged)
	m.session = store.NewSession(m.store, m.set.Periods.Lease)
	m.election = store.NewElection(m.store, m.session, m.set.Instance, m.mover.all)
}

// modelChanged follows the registry: a model that nobody wants any more goes, and names that wait for one look again.
func (m *Mesh) modelChanged(id string, before, after *store.Model) {
	m.failedHereChanged(id, before, after)
	if after == nil {
		m.metrics.forget("modelId", id)
		if e := m.cache().get(id); e != nil {
			m.background(func(context.Context) { m.leave(e, false) })
		}
		return
	}
	m.mover.modelChanged(id)
}

func (m *Mesh) instanceChanged(id string, before, after *store.Instance) {
	if id == m.set.Instance {
		if after == nil && m.published.Load() != nil && !m.draining.Load() {
			m.session.Renew(store.Instances, id) // somebody took us for dead
		}
		return
	}
	m.peers.changed(id, after)
	switch {
	case after == nil:
	case before == nil:
		m.mover.all()
	case after.Capacity-after.Used > before.Capacity-before.Used:
		m.mover.room()
	}
}

func (m *Mesh) vmodelChanged(id string, before, after *store.VModel) {
	if after == nil {
		m.metrics.forget("vModelId", id)
	}
	m.mover.vmodelChanged(id, before, after)
}

// settingChanged follows the settings that can be changed while the mesh runs. One that is removed, or that cannot be
// understood, leaves what the environment says.
func (m *Mesh) settingChanged(name string, _, after *string) {
	value := ""
	if after != nil {
		value = *after
	}
	switch name {
	case "logger_level":
		level := m.baseLevel
		if value != "" && level.UnmarshalText([]byte(value)) != nil {
			m.misunderstood(name, value, "debug, info, warn or error")
			level = m.baseLevel
		}
		m.level.Set(level)
	case "log_each_invocation":
		m.logEach.Store(m.settingTruth(name, value, m.set.LogEachInvoke))
	case "send_destination_id":
		m.sendDestination.Store(m.settingTruth(name, value, m.set.SendDestination))
	case "scaleup_rpm_threshold":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < leastRPM {
			n = m.set.ScaleUpRPM
			if value != "" {
				m.misunderstood(name, value, fmt.Sprintf("a number of at least %d", leastRPM))
			}
		}
		m.scaleUpRPM.Store(n)
	case "disable": // looked at by those who start
	default:
		if after != nil {
			m.log.Warn("A setting in etcd is unknown and has no effect", "setting", name)
		}
	}
}

func (m *Mesh) settingTruth(name, value string, otherwise bool) bool {
	switch value {
	case "true", "false":
		return value == "true"
	case "":
	default:
		m.misunderstood(name, value, "true or false")
	}
	return otherwise
}

func (m *Mesh) misunderstood(name, value, want string) {
	m.log.Warn("A setting in etcd cannot be understood; what the environment says counts", "setting", name, "value", value, "want", want)
}

const (
	storeTimeout  = 20 * time.Second
	tableTimeout  = 5 * time.Minute
	configTimeout = time.Minute
)

// start brings the instance to where it can answer.
func (m *Mesh) start(ctx context.Context) error {
	if err := m.checkStore(ctx); err != nil {
		return err
	}
	for _, run := range []func(context.Context){m.settings.Run, m.models.Run, m.vmodels.Run, m.instances.Run, m.session.Run} {
		m.background(run)
	}
	if err := await(ctx, m.settings.Synced(), configTimeout, "the settings in etcd"); err != nil {
		return err
	}
	if row, ok := m.settings.Get("disable"); ok && *row.Value == "true" {
		return errors.New("the setting disable in etcd keeps instances of this service from starting; remove it first")
	}
	awaited, cancel := context.WithTimeout(ctx, m.set.Periods.StartTimeout)
	err := m.runtime.await(awaited)
	cancel()
	if err != nil {
		return err
	}
	m.held.Store(newCache(m.runtime.said.Load()))
	m.times = track.NewLoadTimes(m.runtime.said.Load().loadTimeout)
	for what, synced := range map[string]<-chan struct{}{"models": m.models.Synced(), "virtual models": m.vmodels.Synced(), "instances": m.instances.Synced()} {
		if err := await(ctx, synced, tableTimeout, "the table of "+what+" in etcd"); err != nil {
			return err
		}
	}
	return m.checkAlone(ctx)
}

// checkStore waits a little for etcd, which often starts at the same time.
func (m *Mesh) checkStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		asked, done := context.WithTimeout(ctx, 5*time.Second)
		err := m.store.Check(asked)
		done()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("etcd at %v does not answer; see the Secret of its connection: %w", m.set.Store.Endpoints, err)
		case <-timer.C:
		}
	}
}

func await(ctx context.Context, done <-chan struct{}, most time.Duration, what string) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s could not be read within %s", what, most)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkAlone refuses to start when another process has the same id and answers.
func (m *Mesh) checkAlone(ctx context.Context) error {
	row, exists := m.instances.Get(m.set.Instance)
	if !exists || row.Value.Address == "" || row.Value.Address == m.address() {
		return nil
	}
	other := newPeers("", m.tls.peerClient(), m.set.MaxMessage, m.ledger)
	defer other.close()
	other.changed(m.set.Instance, row.Value)
	asked, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var answer pingAnswer
	if p := other.get(m.set.Instance); p != nil && ask(asked, p.conn, peerPing, struct{}{}, &answer) == nil && answer.Instance == m.set.Instance {
		return fmt.Errorf("another process with the id %s answers at %s; names of pods must differ in their last %d characters", m.set.Instance, row.Value.Address, idLength)
	}
	return nil
}

func (m *Mesh) address() string { return fmt.Sprintf("%s:%d", m.set.Host, m.set.PeerPort) }

// work begins whatever runs until the end.
func (m *Mesh) work() {
	for range m.runtime.said.Load().threads {
		m.background(m.loads)
	}
	for _, run := range []func(context.Context){
		m.books.run, m.measure, m.runtime.watch, m.guardRuntime, m.election.Run, m.publishing, m.mover.run, m.watchFiles, m.rates, m.janitor, m.reaper,
	} {
		m.background(run)
	}
}

// guardRuntime notices when the runtime goes away: nothing is loaded any more then, and others are told so at once. When it
// is back, it is as empty as a new one.
func (m *Mesh) guardRuntime(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-m.runtime.whenLost():
		}
		if m.draining.Load() {
			return
		}
		m.log.Warn("The runtime went away; its models are loaded again elsewhere or when it is back", "at", m.runtime.manage.Target())
		for _, e := range m.cache().all() {
			m.giveUpLost(e)
		}
		m.publishSoon()
		if err := m.runtime.await(ctx); err != nil {
			if ctx.Err() == nil {
				m.log.Error("The runtime is back and cannot be used", "err", err.Error())
				wait(ctx, m.set.Periods.Runtime)
			}
			continue
		}
		m.log.Info("The runtime is back")
		m.publishSoon()
	}
}

// giveUpLost ends an entry whose runtime has gone, whatever its state. Whoever loads it ends it himself, because he writes down
// first what the runtime did when it went.
func (m *Mesh) giveUpLost(e *entry) {
	if e.interrupt() {
		return
	}
	m.cache().take(e)
	before := e.end(removed, because(outcomeRuntime, codes.Unavailable, "the runtime of this instance went away"))
	m.books.touch(e.id)
	switch before {
	case queued:
		m.pool.remove(e)
	case active:
		m.freed(e, false)
	case waiting, loading, sizing, failed, removed: // whoever has it sees
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// record is how others see this instance.
func (m *Mesh) record() *store.Instance {
	c := m.cache()
	said := m.runtime.said.Load()
	r := &store.Instance{
		Count: c.models.Len(), Capacity: c.models.Capacity(), Used: c.models.Used(), Loading: m.pool.pending(), RPM: m.rpm.Load(),
		Shutdown: m.draining.Load(), Started: m.started.UnixMilli(), Version: versionNumber(m.set.Version), Location: m.set.Location, Zone: m.set.Zone,
		Labels: m.set.Labels, Address: m.address(),
	}
	if r.Count > 0 { // otherwise it would be another time whenever somebody looks, and worth telling
		r.LRU = c.oldest(m.now().UnixMilli())
	}
	if said != nil {
		r.LoadThreads = said.threads
	}
	return r
}

// publishSoon has the record looked at again, because something has changed that others may want to know.
func (m *Mesh) publishSoon() {
	select {
	case m.publishWake <- struct{}{}:
	default:
	}
}

const minPublishGap = 2 * time.Second

// publishing keeps the record in etcd current enough.
func (m *Mesh) publishing(ctx context.Context) {
	ticker := time.NewTicker(m.set.Periods.Publish)
	defer ticker.Stop()
	gap := min(minPublishGap, m.set.Periods.Publish)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-m.publishWake:
			wait(ctx, gap)
		}
		m.peers.wake()
		m.publish(false)
	}
}

// publish writes the record when it says something new.
func (m *Mesh) publish(always bool) {
	now, before := m.record(), m.published.Load()
	if !m.runtime.ready.Load() && before != nil { // full, so that nobody loads here
		now.Used, now.Count, now.LRU = now.Capacity, before.Count, m.now().UnixMilli()
	}
	if !always && before != nil {
		view := placement.View{Now: m.now().UnixMilli(), MinSpace: m.cache().minSpace}
		if !track.Publish(placeable(m.set.Instance, before), placeable(m.set.Instance, now), m.publishedAt.Load(), view) {
			return
		}
	}
	raw, err := store.InstanceCodec.Encode(now)
	if err != nil {
		return
	}
	m.published.Store(now)
	m.publishedAt.Store(m.now().UnixMilli())
	m.session.Keep(store.Instances, m.set.Instance, raw)
}
