// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// Models that are registered count as used a while ago, so that they do not push out what is in use.
const (
	agoLoadNow    = time.Hour
	agoRegistered = 6 * time.Hour
	mostID        = 4096
)

// api is mmesh.ModelMesh.
type api struct {
	wire.UnimplementedModelMeshServer
	*Mesh
}

func refuse(code codes.Code, message string) error { return status.Error(code, message) }

// unwritten makes an error of the store one for clients.
func unwritten(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	if o, ok := asOutcome(err); ok {
		return o.err
	}
	if errors.Is(err, store.ErrReadOnly) {
		return refuse(codes.Unavailable, "nothing can be changed now: "+store.ErrReadOnly.Error())
	}
	return refuse(codes.Unavailable, "etcd did not take the change: "+err.Error())
}

func checkModel(id string, info *wire.ModelInfo) error {
	switch {
	case id == "":
		return refuse(codes.InvalidArgument, "modelId is empty")
	case len(id) > mostID:
		return refuse(codes.InvalidArgument, "modelId is too long")
	case info != nil && info.Type == "":
		return refuse(codes.InvalidArgument, "modelInfo has no type")
	}
	return nil
}

// RegisterModel makes a model known, and has it loaded where that is asked for.
func (a api) RegisterModel(ctx context.Context, r *wire.RegisterModelRequest) (*wire.ModelStatusInfo, error) {
	info := r.ModelInfo
	if info == nil {
		info = &wire.ModelInfo{}
	}
	if err := checkModel(r.ModelId, info); err != nil {
		return nil, err
	}
	lastUsed := a.lastUsed(r.LastUsedTime, r.LoadNow)
	if _, known := a.models.Get(r.ModelId); known { // somebody else may have removed it a moment ago
		if _, _, err := a.models.Refresh(ctx, r.ModelId); err != nil {
			return nil, unwritten(err)
		}
	}
	_, err := a.models.Update(ctx, r.ModelId, func(now *store.Model) (*store.Model, bool, error) {
		if now == nil {
			next := store.NewModel(info.Type, info.Path, info.Key)
			next.LastUsed = lastUsed
			return next, true, nil
		}
		if !now.Same(info.Type, info.Path, info.Key) {
			return now, false, refuse(codes.AlreadyExists, "the model "+r.ModelId+" is registered with another type, path or key")
		}
		return now, false, nil
	})
	if err != nil {
		return nil, unwritten(err)
	}
	if r.LoadNow {
		return a.ensure(ctx, r.ModelId, lastUsed, r.Sync), nil
	}
	return a.status(r.ModelId), nil
}

func (m *Mesh) lastUsed(explicit uint64, loadNow bool) int64 {
	now := m.now()
	switch {
	case explicit > 0:
		return min(int64(explicit), now.UnixMilli()) //nolint:gosec // a time after the year 292 million is now
	case loadNow:
		return now.Add(-agoLoadNow).UnixMilli()
	}
	return now.Add(-agoRegistered).UnixMilli()
}

// UnregisterModel forgets a model. Instances that have it unload it when they see that.
func (a api) UnregisterModel(ctx context.Context, r *wire.UnregisterModelRequest) (*wire.UnregisterModelResponse, error) {
	if err := checkModel(r.ModelId, nil); err != nil {
		return nil, err
	}
	_, err := a.models.Update(ctx, r.ModelId, func(now *store.Model) (*store.Model, bool, error) {
		if now != nil && now.Refs > 0 {
			return now, false, refuse(codes.FailedPrecondition, "the model "+r.ModelId+" is used by virtual models; delete these first")
		}
		return nil, now != nil, nil
	})
	if err != nil {
		return nil, unwritten(err)
	}
	return &wire.UnregisterModelResponse{}, nil
}

// GetModelStatus tells how a model is.
func (a api) GetModelStatus(ctx context.Context, r *wire.GetStatusRequest) (*wire.ModelStatusInfo, error) {
	if err := checkModel(r.ModelId, nil); err != nil {
		return nil, err
	}
	if _, err := a.model(ctx, r.ModelId); err != nil && status.Code(err) != codes.NotFound {
		return nil, err
	}
	return a.status(r.ModelId), nil
}

// EnsureLoaded has a model loaded somewhere.
func (a api) EnsureLoaded(ctx context.Context, r *wire.EnsureLoadedRequest) (*wire.ModelStatusInfo, error) {
	if err := checkModel(r.ModelId, nil); err != nil {
		return nil, err
	}
	if _, err := a.model(ctx, r.ModelId); status.Code(err) == codes.NotFound {
		return &wire.ModelStatusInfo{Status: wire.ModelStatusInfo_NOT_FOUND}, nil
	}
	lastUsed := a.now().UnixMilli()
	if r.LastUsedTime > 0 {
		lastUsed = a.lastUsed(r.LastUsedTime, true)
	}
	return a.ensure(ctx, r.ModelId, lastUsed, r.Sync), nil
}

// ensure loads and tells how the model is then. Why it could not be loaded is a part of that.
func (m *Mesh) ensure(ctx context.Context, id string, lastUsed int64, sync bool) *wire.ModelStatusInfo {
	err := m.ensureCopies(ctx, id, 1, loadRequest{LastUsed: lastUsed, Awaited: sync, Wait: sync, Check: true})
	if sync { // whoever waited sees what has become of it, not what the mirror has
		asked, cancel := context.WithTimeout(ctx, claimTimeout)
		_, _, _ = m.models.Refresh(asked, id)
		cancel()
	}
	info := m.status(id)
	if err == nil || info.Status == wire.ModelStatusInfo_LOADED || info.Status == wire.ModelStatusInfo_LOADING || info.Status == wire.ModelStatusInfo_NOT_FOUND {
		return info
	}
	if noRoom(err) && info.Status == wire.ModelStatusInfo_NOT_LOADED { // nothing is wrong with the model, and whoever looks next sees the same
		info.Errors = []string{status.Convert(m.final(err)).Message()}
		return info
	}
	if len(info.Errors) == 0 {
		info.Errors = []string{status.Convert(m.final(err)).Message()}
	}
	info.Status = wire.ModelStatusInfo_LOADING_FAILED
	return info
}

// status is what the record of a model means, and what stands in the way of loading it.
func (m *Mesh) status(id string) *wire.ModelStatusInfo {
	row, ok := m.models.Get(id)
	if !ok {
		return &wire.ModelStatusInfo{Status: wire.ModelStatusInfo_NOT_FOUND}
	}
	record := row.Value
	info := &wire.ModelStatusInfo{Status: wire.ModelStatusInfo_NOT_LOADED}
	for _, c := range record.Copies {
		if !m.exists(c.Instance) {
			continue
		}
		one := &wire.ModelStatusInfo_ModelCopyInfo{Location: c.Instance, CopyStatus: wire.ModelStatusInfo_LOADING, Time: uint64(c.Began)} //nolint:gosec // times are positive
		if c.Loaded != 0 {
			one.CopyStatus, one.Time = wire.ModelStatusInfo_LOADED, uint64(c.Loaded) //nolint:gosec // times are positive
			info.Status = wire.ModelStatusInfo_LOADED
		} else if info.Status == wire.ModelStatusInfo_NOT_LOADED {
			info.Status = wire.ModelStatusInfo_LOADING
		}
		info.ModelCopyInfos = append(info.ModelCopyInfos, one)
	}
	failures := m.failures(record)
	for _, f := range failures {
		info.ModelCopyInfos = append(info.ModelCopyInfos, &wire.ModelStatusInfo_ModelCopyInfo{
			Location: f.Instance, CopyStatus: wire.ModelStatusInfo_LOADING_FAILED, Time: uint64(f.At), //nolint:gosec // times are positive
		})
		info.Errors = append(info.Errors, f.Message)
	}
	slices.SortStableFunc(info.ModelCopyInfos, func(a, b *wire.ModelStatusInfo_ModelCopyInfo) int { return int(int64(b.Time) - int64(a.Time)) }) //nolint:gosec // times
	if info.Status != wire.ModelStatusInfo_NOT_LOADED {
		return info
	}
	if len(failures) > 0 {
		info.Status = wire.ModelStatusInfo_LOADING_FAILED
	} else if err := m.nobodyFor(record.Type()); err != nil {
		info.Status, info.Errors = wire.ModelStatusInfo_LOADING_FAILED, []string{status.Convert(err).Message()}
	}
	return info
}

// exists tells whether an instance is there, as far as anybody knows.
func (m *Mesh) exists(instance string) bool {
	if instance == m.set.Instance {
		return true
	}
	if _, ok := m.instances.Get(instance); ok {
		return true
	}
	p := m.peers.get(instance)
	return p != nil && p.reachable()
}

// ensureCopies has a model loaded in so many instances. With Wait it returns when they have it.
func (m *Mesh) ensureCopies(ctx context.Context, id string, copies int, how loadRequest) error {
	how.Model = id
	var excluded, begun []string
	var last error
	for range maxIterations + copies {
		record, err := m.model(ctx, id)
		if err != nil {
			return err
		}
		present := m.present(id, record, excluded)
		for _, instance := range begun { // the mirror may not have it yet
			if !slices.Contains(present, instance) {
				present = append(present, instance)
			}
		}
		if len(present) >= copies {
			return m.awaitCopies(ctx, present, how)
		}
		if err := m.tooManyFailures(id, record); err != nil {
			return err
		}
		exclude := slices.Concat(excluded, present, how.avoid)
		target, err := m.place(record, placing{exclude: exclude, lastUsed: how.LastUsed})
		if err != nil {
			if len(present) > 0 { // fewer than wanted is what there is room for
				return m.awaitCopies(ctx, present, how)
			}
			if last != nil {
				return last
			}
			return err
		}
		how.Extra, how.Size = len(present) > 0, record.Size
		if err := m.loadIn(ctx, target, how); err != nil {
			if ctx.Err() != nil {
				return status.FromContextError(ctx.Err()).Err()
			}
			last = err
			how.Check = how.Check && !noRoom(err)                                         // one is enough to look
			if o, ours := asOutcome(err); ours && o.kind == outcomeAbsent && !how.Extra { // somebody else began meanwhile
				if _, _, failed := m.models.Refresh(ctx, id); failed == nil {
					continue
				}
			}
			excluded = append(excluded, target)
			continue
		}
		begun = append(begun, target)
	}
	return last
}

// present are the instances that have a model or are about to.
func (m *Mesh) present(id string, record *store.Model, excluded []string) []string {
	var out []string
	for _, c := range m.reachable(record, excluded) {
		out = append(out, c.Instance)
	}
	if e := m.cache().get(id); e != nil && e.live() && !slices.Contains(excluded, m.set.Instance) {
		out = append(out, m.set.Instance)
	}
	return out
}

// awaitCopies waits for the loads that are under way, where somebody wants to; one that succeeds is enough to go on.
func (m *Mesh) awaitCopies(ctx context.Context, instances []string, how loadRequest) error {
	if !how.Wait {
		return nil
	}
	var last error
	loaded := false
	for _, instance := range instances {
		how.Extra = true
		if err := m.loadIn(ctx, instance, how); err != nil {
			last = err
		} else {
			loaded = true
		}
	}
	if loaded {
		return nil
	}
	return last
}

// loadIn asks one instance, which may be this one.
func (m *Mesh) loadIn(ctx context.Context, instance string, how loadRequest) error {
	if instance == m.set.Instance {
		return m.loadForPeer(ctx, how)
	}
	p := m.peers.get(instance)
	if p == nil {
		return because(outcomeAbsent, codes.Unavailable, "the instance "+instance+" is not known")
	}
	timeout := 10 * time.Second
	if how.Wait {
		timeout = 10 * time.Minute
	}
	if m.sendDestination.Load() {
		how.To = instance
	}
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ask(asked, p.conn, peerLoad, how, nil)
}
