// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

const (
	vmodelTries    = 50
	vmodelSync     = 4 * time.Minute
	transitionTime = 10 * time.Minute
	transitions    = 16 // at once
)

// SetVModel points a name at a model.
func (a api) SetVModel(ctx context.Context, r *wire.SetVModelRequest) (*wire.VModelStatusInfo, error) {
	if r.VModelId == "" || len(r.VModelId) > mostID {
		return nil, refuse(codes.InvalidArgument, "vModelId is empty or too long")
	}
	if err := checkModel(r.TargetModelId, r.ModelInfo); err != nil {
		return nil, err
	}
	owner := r.Owner
	if owner == "" {
		owner = a.set.DefaultOwner
	}
	if err := a.changeVModel(ctx, r.VModelId, r.TargetModelId, func() ([]store.Step, error) { return a.setSteps(r, owner) }); err != nil {
		return nil, unwritten(err)
	}
	var loaded *wire.ModelStatusInfo
	if r.LoadNow {
		loaded = a.ensure(ctx, r.TargetModelId, a.lastUsed(0, true), r.Sync)
	}
	if r.Sync {
		a.awaitTransition(ctx, r.VModelId, r.TargetModelId)
	}
	return a.vmodelStatus(r.VModelId, loaded), nil
}

// changeVModel commits steps, made anew from what etcd says when somebody was faster. That nothing is to be done, or that it must
// not be done, is only believed when etcd itself has been asked: a mirror shows for a moment what somebody else has removed.
func (m *Mesh) changeVModel(ctx context.Context, id, target string, steps func() ([]store.Step, error)) error {
	confirmed := false
	for range vmodelTries {
		wanted, err := steps()
		if err != nil || len(wanted) == 0 {
			if confirmed {
				return err
			}
			if err := m.refreshVModel(ctx, id, target); err != nil {
				return err
			}
			confirmed = true
			continue
		}
		if err = m.store.Together(ctx, wanted...); !errors.Is(err, store.ErrConflict) {
			return err
		}
		for _, step := range wanted {
			switch step.Table {
			case store.VModels:
				_, _, err = m.vmodels.Refresh(ctx, step.ID)
			case store.Registry:
				_, _, err = m.models.Refresh(ctx, step.ID)
			}
			if !errors.Is(err, store.ErrConflict) && err != nil {
				return err
			}
		}
	}
	return refuse(codes.Aborted, "the virtual model "+id+" is being changed by others; try again")
}

// refreshVModel reads a virtual model, what it leads to and what it shall lead to from etcd itself.
func (m *Mesh) refreshVModel(ctx context.Context, id, target string) error {
	row, exists, err := m.vmodels.Refresh(ctx, id)
	if err != nil {
		return err
	}
	models := map[string]bool{target: target != ""}
	if exists {
		maps.Copy(models, holds(row.Value))
	}
	for model, named := range models {
		if !named {
			continue
		}
		if _, _, err := m.models.Refresh(ctx, model); err != nil {
			return err
		}
	}
	return nil
}

// setSteps is what has to be written for a request, by what the mirrors show; nothing when all is as it should be.
func (m *Mesh) setSteps(r *wire.SetVModelRequest, owner string) ([]store.Step, error) {
	row, exists := m.vmodels.Get(r.VModelId)
	target, known := m.models.Get(r.TargetModelId)
	switch {
	case exists && row.Value.Owner != owner:
		return nil, refuse(codes.AlreadyExists, "the virtual model "+r.VModelId+" belongs to "+row.Value.Owner)
	case !exists && r.UpdateOnly:
		return nil, refuse(codes.NotFound, "the virtual model "+r.VModelId+" does not exist")
	case r.ExpectedTargetModelId != "" && (!exists || row.Value.Target != r.ExpectedTargetModelId):
		return nil, refuse(codes.FailedPrecondition, "the target of "+r.VModelId+" is not "+r.ExpectedTargetModelId)
	case known && r.ModelInfo != nil && !target.Value.Same(r.ModelInfo.Type, r.ModelInfo.Path, r.ModelInfo.Key):
		return nil, refuse(codes.AlreadyExists, "the model "+r.TargetModelId+" is registered with another type, path or key")
	case !known && r.ModelInfo == nil:
		return nil, refuse(codes.NotFound, "the model "+r.TargetModelId+" is not registered, and the request does not say what it is")
	}
	now := &store.VModel{Owner: owner}
	if exists {
		now = row.Value
	}
	next := now.Clone()
	next.Target, next.Failed = r.TargetModelId, now.Failed && now.Target == r.TargetModelId
	if r.Force || m.mayswitch(now, r.TargetModelId) {
		next.Active, next.Failed = next.Target, false
	}
	if exists && *next == *now {
		return nil, nil
	}
	create := func() *store.Model {
		model := store.NewModel(r.ModelInfo.Type, r.ModelInfo.Path, r.ModelInfo.Key)
		model.LastUsed, model.AutoDelete = m.lastUsed(0, r.LoadNow), r.AutoDeleteTargetModel
		return model
	}
	return m.vmodelSteps(r.VModelId, now, next, row.Revision, create)
}

// mayswitch tells whether nobody would notice that the target takes over at once.
func (m *Mesh) mayswitch(now *store.VModel, target string) bool {
	if now.Active == "" || now.Active == target {
		return true
	}
	active := m.status(now.Active)
	copies := 0
	for _, c := range active.ModelCopyInfos {
		if c.CopyStatus == wire.ModelStatusInfo_LOADED {
			copies++
		}
	}
	return active.Status != wire.ModelStatusInfo_LOADED || copies == 1 && m.status(target).Status == wire.ModelStatusInfo_LOADED
}

// holds are the models that a virtual model refers to.
func holds(v *store.VModel) map[string]bool {
	out := map[string]bool{}
	if v != nil {
		for _, id := range []string{v.Active, v.Target} {
			if id != "" {
				out[id] = true
			}
		}
	}
	return out
}

// vmodelSteps writes a virtual model together with the references that its models lose and gain. next nil removes it.
func (m *Mesh) vmodelSteps(id string, now, next *store.VModel, revision int64, create func() *store.Model) ([]store.Step, error) {
	before, after := holds(now), holds(next)
	var steps []store.Step
	add := func(step store.Step, err error) error { steps = append(steps, step); return err }
	if next == nil {
		steps = append(steps, m.vmodels.Delete(id, revision))
	} else if err := add(m.vmodels.Put(id, revision, next)); err != nil {
		return nil, err
	}
	for model := range after {
		row, known := m.models.Get(model)
		if before[model] && known {
			continue
		}
		record := row.Value
		switch {
		case known:
			record = record.Clone()
		case create != nil && model == next.Target:
			record = create()
		default:
			continue
		}
		record.Refs++
		if err := add(m.models.Put(model, row.Revision, record)); err != nil {
			return nil, err
		}
	}
	for model := range before {
		row, known := m.models.Get(model)
		if after[model] || !known {
			continue
		}
		record := row.Value.Clone()
		if record.Refs--; record.Refs <= 0 && record.AutoDelete {
			steps = append(steps, m.models.Delete(model, row.Revision))
			continue
		}
		record.Refs = max(record.Refs, 0)
		if err := add(m.models.Put(model, row.Revision, record)); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// DeleteVModel removes a name and what nobody else refers to.
func (a api) DeleteVModel(ctx context.Context, r *wire.DeleteVModelRequest) (*wire.DeleteVModelResponse, error) {
	if err := a.refreshVModel(ctx, r.VModelId, ""); err != nil {
		return nil, unwritten(err)
	}
	err := a.changeVModel(ctx, r.VModelId, "", func() ([]store.Step, error) {
		row, exists := a.vmodels.Get(r.VModelId)
		if !exists || (r.Owner != "" && row.Value.Owner != r.Owner) {
			return nil, nil
		}
		return a.vmodelSteps(r.VModelId, row.Value, nil, row.Revision, nil)
	})
	if err != nil {
		return nil, unwritten(err)
	}
	return &wire.DeleteVModelResponse{}, nil
}

// GetVModelStatus tells where a name leads; nothing when there is none or it is another owner's.
func (a api) GetVModelStatus(ctx context.Context, r *wire.GetVModelStatusRequest) (*wire.VModelStatusInfo, error) {
	row, exists := a.vmodels.Get(r.VModelId)
	if !exists {
		var err error
		if row, exists, err = a.vmodels.Refresh(ctx, r.VModelId); err != nil {
			return nil, unwritten(err)
		}
	}
	if !exists || (r.Owner != "" && row.Value.Owner != r.Owner) {
		return &wire.VModelStatusInfo{}, nil
	}
	return a.vmodelStatus(r.VModelId, nil), nil
}

// vmodelStatus is what the records mean. loaded, where it is not nil, is what an attempt to load the target has just shown.
func (m *Mesh) vmodelStatus(id string, loaded *wire.ModelStatusInfo) *wire.VModelStatusInfo {
	row, exists := m.vmodels.Get(id)
	if !exists {
		return &wire.VModelStatusInfo{}
	}
	v := row.Value
	of := func(model string) *wire.ModelStatusInfo {
		now := m.status(model)
		if loaded != nil && model == v.Target && now.Status == wire.ModelStatusInfo_NOT_LOADED {
			return loaded
		}
		return now
	}
	out := &wire.VModelStatusInfo{
		Status: wire.VModelStatusInfo_DEFINED, ActiveModelId: v.Active, TargetModelId: v.Target, Owner: v.Owner, ActiveModelStatus: of(v.Active),
	}
	if v.Moving() {
		out.TargetModelStatus = of(v.Target)
		out.Status = wire.VModelStatusInfo_TRANSITIONING
		if v.Failed {
			out.Status = wire.VModelStatusInfo_TRANSITION_FAILED
		}
	}
	return out
}

// awaitTransition waits until a target has taken over, has failed or is no longer the target.
func (m *Mesh) awaitTransition(ctx context.Context, id, target string) {
	ctx, cancel := context.WithTimeout(ctx, vmodelSync)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		row, exists := m.vmodels.Get(id)
		if !exists || row.Value.Target != target || row.Value.Active == target || row.Value.Failed {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// mover lets targets take over, in the process that leads.
type mover struct {
	mesh *Mesh

	mu      sync.Mutex
	targets map[string]map[string]bool // names under way, by the model that they wait for
	queue   map[string]bool
	busy    map[string]bool
	tokens  chan struct{}
	waits   map[string]roomless // names whose target had no room
}

// roomless is how long a name waits at most until its target is tried again, and what wakes it then.
type roomless struct {
	pause time.Duration
	timer *time.Timer
}

func newMover(m *Mesh) *mover {
	return &mover{mesh: m, targets: map[string]map[string]bool{}, queue: map[string]bool{}, busy: map[string]bool{}, tokens: make(chan struct{}, 1), waits: map[string]roomless{}}
}

// vmodelChanged follows the table of virtual models.
func (v *mover) vmodelChanged(id string, before, after *store.VModel) {
	v.mu.Lock()
	if before != nil && before.Moving() {
		delete(v.targets[before.Target], id)
		if len(v.targets[before.Target]) == 0 {
			delete(v.targets, before.Target)
		}
	}
	moving := after != nil && after.Moving()
	if moving {
		if v.targets[after.Target] == nil {
			v.targets[after.Target] = map[string]bool{}
		}
		v.targets[after.Target][id] = true
	} else {
		v.forget(id)
	}
	v.mu.Unlock()
	if moving && (before == nil || before.Target != after.Target || !after.Failed) {
		v.add(id)
	}
}

// modelChanged looks again at names that wait for a model.
func (v *mover) modelChanged(id string) {
	v.mu.Lock()
	var names []string
	for name := range v.targets[id] {
		names = append(names, name)
	}
	v.mu.Unlock()
	for _, name := range names {
		v.add(name)
	}
}

// all looks again at every name under way: somebody new leads, or an instance has come.
func (v *mover) all() {
	v.mu.Lock()
	var models []string
	for id := range v.targets {
		models = append(models, id)
	}
	v.mu.Unlock()
	for _, id := range models {
		v.modelChanged(id)
	}
}

// The longest that a target without room waits until it is tried again although nobody told of room: what is in use ages, and
// can be pushed out then.
const (
	shortWait = 2 * time.Second
	longWait  = time.Minute
)

// await keeps a name until there may be room for its target.
func (v *mover) await(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.waits[name]
	if before.timer != nil {
		before.timer.Stop()
	}
	pause := min(max(2*before.pause, shortWait), longWait)
	v.waits[name] = roomless{pause, time.AfterFunc(pause, func() { v.add(name) })}
}

// settled is for a name that waits for no room any more.
func (v *mover) settled(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forget(name)
}

func (v *mover) forget(name string) {
	if w, waits := v.waits[name]; waits {
		w.timer.Stop()
		delete(v.waits, name)
	}
}

// room tries some of those again that had none, because some instance has more now.
func (v *mover) room() {
	v.mu.Lock()
	defer v.mu.Unlock()
	some := 0
	for name := range v.waits {
		if some++; some > transitions {
			break
		}
		v.queue[name] = true
		v.poke()
	}
}

func (v *mover) add(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue[name] = true
	v.poke()
}

func (v *mover) poke() {
	select {
	case v.tokens <- struct{}{}:
	default:
	}
}

func (v *mover) take() (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.queue {
		if !v.busy[name] {
			delete(v.queue, name)
			v.busy[name] = true
			return name, true
		}
	}
	return "", false
}

func (v *mover) done(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.busy, name)
	v.poke()
}

func (v *mover) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range transitions {
		workers.Go(func() {
			for {
				name, ok := v.take()
				if !ok {
					select {
					case <-v.tokens:
						continue
					case <-ctx.Done():
						return
					}
				}
				v.poke()
				if v.mesh.election.Leads() {
					v.mesh.transition(ctx, name)
				} else {
					v.settled(name)
				}
				v.done(name)
			}
		})
	}
	workers.Wait()
}

// transition loads the target in as many instances as have the active model, and lets it take over.
func (m *Mesh) transition(ctx context.Context, name string) {
	row, exists := m.vmodels.Get(name)
	if !exists || !row.Value.Moving() {
		m.mover.settled(name)
		return
	}
	v := row.Value
	asked, cancel := context.WithTimeout(ctx, transitionTime)
	defer cancel()
	copies := 0
	if active, ok, err := m.models.Refresh(asked, v.Active); err == nil && ok { // the mirror may lag behind whoever set the target
		for _, c := range active.Value.Copies {
			if m.exists(c.Instance) {
				copies++
			}
		}
	}
	copies = max(copies, 1)
	err := m.ensureCopies(asked, v.Target, copies, loadRequest{LastUsed: m.now().UnixMilli(), Wait: true})
	if ctx.Err() != nil {
		return
	}
	if noRoom(err) { // nothing is wrong with the target, and what is active goes on
		m.log.Info("The target of a virtual model waits for room", "vmodel", name, "model", v.Target, "because", status.Convert(m.final(err)).Message())
		m.mover.await(name)
		if !v.Failed {
			return
		}
	} else {
		m.mover.settled(name)
	}
	err = errors.Join(m.changeVModel(ctx, name, v.Target, func() ([]store.Step, error) {
		row, exists := m.vmodels.Get(name)
		if !exists || row.Value.Target != v.Target || !row.Value.Moving() {
			return nil, nil
		}
		next := row.Value.Clone()
		if next.Failed = err != nil && !noRoom(err); err == nil {
			next.Active = next.Target
		}
		if *next == *row.Value {
			return nil, nil
		}
		return m.vmodelSteps(name, row.Value, next, row.Revision, nil)
	}))
	if err != nil {
		m.log.Warn("A virtual model could not be moved; it is tried again", "vmodel", name, "err", err.Error())
		time.AfterFunc(time.Second, func() { m.mover.add(name) })
	}
}
