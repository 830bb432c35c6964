// SPDX-License-Identifier: Apache-2.0

// Package meshtest is a mesh for tests of the control plane: it speaks the mesh's API over real connections and keeps its
// records in a real etcd, but loads nothing. What becomes of a model is said by its path. It is no measure of what a mesh
// can do.
package meshtest

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// What paths say of their models.
const (
	// Missing models do not load.
	Missing = "missing"
	// Held models load when they are released.
	Held = "held"
)

// Mesh is one of a namespace.
type Mesh struct {
	wire.UnimplementedModelMeshServer
	// Silent is set for a mesh that does not say when a load has ended, and does not tell loaded copies from others.
	Silent bool
	// Homeless gives the words of the mesh for a type of models that no pod may load; empty if one may.
	Homeless func(typ string) string

	kv     *clientv3.Client
	prefix string
	server *grpc.Server
	addr   string

	mu       sync.Mutex
	calls    map[string]int
	spoil    func(method string) error
	names    map[string]*name
	models   map[string]*held
	released chan struct{}
	loads    sync.WaitGroup
}

type name struct {
	Owner  string `json:"o,omitempty"`
	Active string `json:"amid,omitempty"`
	Target string `json:"tmid,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

type held struct {
	Type    string           `json:"type,omitempty"`
	Key     string           `json:"encKey,omitempty"`
	Path    string           `json:"mPath,omitempty"`
	In      map[string]int64 `json:"instanceIds,omitempty"`
	Loaded  map[string]int64 `json:"loadedIn,omitempty"`
	Failed  map[string]int64 `json:"failedIn,omitempty"`
	Fails   map[string]fail  `json:"fails,omitempty"`
	Refs    int              `json:"refs,omitempty"`
	AutoDel bool             `json:"autoDel,omitempty"`

	state   wire.ModelStatusInfo_ModelStatus
	message string
}

type fail struct {
	Message string `json:"msg,omitempty"`
}

// Pod is where all its models are.
const Pod = "pod-abcde-12"

// Start runs a mesh whose records are below a prefix, such as /root/mm/modelmesh-serving.
func Start(t testing.TB, kv *clientv3.Client, prefix string, options ...grpc.ServerOption) *Mesh {
	t.Helper()
	m := &Mesh{
		kv: kv, prefix: prefix, calls: map[string]int{}, names: map[string]*name{}, models: map[string]*held{}, released: make(chan struct{}),
		Homeless: func(string) string { return "" },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = l.Addr().String()
	m.server = grpc.NewServer(append(options, grpc.UnaryInterceptor(m.count))...)
	wire.RegisterModelMeshServer(m.server, m)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.server.Serve(l)
	}()
	t.Cleanup(func() {
		m.server.Stop()
		<-ended
		m.Release()
		m.loads.Wait()
	})
	return m
}

// Address is where it answers.
func (m *Mesh) Address() string { return m.addr }

// Calls are those that were made, by method.
func (m *Mesh) Calls() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.calls)
}

// Total are all of them.
func (m *Mesh) Total() int {
	n := 0
	for _, c := range m.Calls() {
		n += c
	}
	return n
}

// Spoil makes calls fail before they do anything; nil ends it.
func (m *Mesh) Spoil(with func(method string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spoil = with
}

// Release lets held models load.
func (m *Mesh) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.released:
	default:
		close(m.released)
	}
}

// Names are those that it knows.
func (m *Mesh) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.names))
}

// Models are the ids of those that it knows.
func (m *Mesh) Models() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.models))
}

// Evict unloads a model everywhere.
func (m *Mesh) Evict(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.models[id]; h != nil {
		h.In, h.Loaded, h.state = nil, nil, wire.ModelStatusInfo_NOT_LOADED
		m.keepModel(id)
	}
}

// Forget loses everything that was known, as a mesh whose etcd was emptied.
func (m *Mesh) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.names)
	clear(m.models)
	_, _ = m.kv.Delete(context.Background(), m.prefix+"/", clientv3.WithPrefix())
}

func (m *Mesh) count(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	m.mu.Lock()
	m.calls[method]++
	spoil := m.spoil
	m.mu.Unlock()
	if spoil != nil {
		if err := spoil(method); err != nil {
			return nil, err
		}
	}
	return next(ctx, req)
}

// SetVModel implements the API.
func (m *Mesh) SetVModel(_ context.Context, r *wire.SetVModelRequest) (*wire.VModelStatusInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[r.GetVModelId()]
	if n != nil && n.Owner != r.GetOwner() {
		return nil, status.Error(codes.AlreadyExists, "the name is another's")
	}
	id, info := r.GetTargetModelId(), r.GetModelInfo()
	h := m.models[id]
	if h != nil && (h.Type != info.GetType() || h.Path != info.GetPath() || h.Key != info.GetKey()) {
		return nil, status.Error(codes.AlreadyExists, "the model is another one")
	}
	if h == nil {
		h = &held{Type: info.GetType(), Key: info.GetKey(), Path: info.GetPath(), AutoDel: r.GetAutoDeleteTargetModel(), state: wire.ModelStatusInfo_NOT_LOADED}
		m.models[id] = h
	}
	m.point(r.GetVModelId(), r.GetOwner(), id)
	n = m.names[r.GetVModelId()]
	if (r.GetLoadNow() || n.Active != n.Target) && h.state != wire.ModelStatusInfo_LOADED && h.state != wire.ModelStatusInfo_LOADING {
		m.load(r.GetVModelId(), id, h)
	}
	m.keepModel(id)
	return m.statusOf(r.GetVModelId()), nil
}

// point makes a name lead to a model, at once where nothing is loaded that it led to before.
func (m *Mesh) point(vmodel, owner, id string) {
	n := m.names[vmodel]
	if n == nil {
		n = &name{Owner: owner, Active: id, Target: id}
		m.names[vmodel] = n
		m.models[id].Refs++
		m.keepName(vmodel)
		return
	}
	if n.Target == id {
		return
	}
	if n.Target != n.Active {
		m.letGo(n.Target)
	}
	n.Target, n.Failed = id, false
	if n.Active != id {
		m.models[id].Refs++
	}
	if active := m.models[n.Active]; active == nil || active.state != wire.ModelStatusInfo_LOADED {
		before := n.Active
		if n.Active = id; before != id {
			m.letGo(before)
		}
	}
	m.keepName(vmodel)
}

func (m *Mesh) letGo(id string) {
	h := m.models[id]
	if h == nil {
		return
	}
	if h.Refs--; h.Refs <= 0 && h.AutoDel {
		delete(m.models, id)
		_, _ = m.kv.Delete(context.Background(), m.prefix+"/registry/"+id)
		return
	}
	m.keepModel(id)
}

// load begins a load, or says why there is none.
func (m *Mesh) load(vmodel, id string, h *held) {
	if h.message = m.Homeless(h.Type); h.message != "" {
		h.state = wire.ModelStatusInfo_LOADING_FAILED
		return
	}
	h.state, h.message, h.Failed, h.Fails = wire.ModelStatusInfo_LOADING, "", nil, nil
	released := m.released
	m.loads.Go(func() {
		if strings.Contains(h.Path, Held) {
			<-released
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.models[id] != h {
			return
		}
		h.In = map[string]int64{Pod: time.Now().UnixMilli()}
		m.keepModel(id)
		m.loaded(vmodel, id, h)
	})
}

// loaded ends a load.
func (m *Mesh) loaded(vmodel, id string, h *held) {
	n := m.names[vmodel]
	if strings.Contains(h.Path, Missing) {
		h.state, h.message, h.In = wire.ModelStatusInfo_LOADING_FAILED, "there is nothing at "+h.Path, nil
		h.Failed, h.Fails = map[string]int64{Pod: time.Now().UnixMilli()}, map[string]fail{Pod: {h.message}}
		if n != nil && n.Target == id && n.Active != id {
			n.Failed = true
			m.keepName(vmodel)
		}
		m.keepModel(id)
		return
	}
	if h.state = wire.ModelStatusInfo_LOADED; !m.Silent {
		h.Loaded = map[string]int64{Pod: time.Now().UnixMilli()}
	}
	if m.Silent && n != nil && n.Active == id {
		return // no record tells
	}
	m.keepModel(id)
	if n != nil && n.Target == id && n.Active != id {
		before := n.Active
		n.Active, n.Failed = id, false
		m.keepName(vmodel)
		m.letGo(before)
	}
}

// DeleteVModel implements the API.
func (m *Mesh) DeleteVModel(_ context.Context, r *wire.DeleteVModelRequest) (*wire.DeleteVModelResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[r.GetVModelId()]
	if n == nil || n.Owner != r.GetOwner() {
		return &wire.DeleteVModelResponse{}, nil
	}
	delete(m.names, r.GetVModelId())
	_, _ = m.kv.Delete(context.Background(), m.prefix+"/vmodels/"+r.GetVModelId())
	m.letGo(n.Active)
	if n.Target != n.Active {
		m.letGo(n.Target)
	}
	return &wire.DeleteVModelResponse{}, nil
}

// GetVModelStatus implements the API.
func (m *Mesh) GetVModelStatus(_ context.Context, r *wire.GetVModelStatusRequest) (*wire.VModelStatusInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.names[r.GetVModelId()]; n == nil || n.Owner != r.GetOwner() {
		return &wire.VModelStatusInfo{}, nil
	}
	return m.statusOf(r.GetVModelId()), nil
}

func (m *Mesh) statusOf(vmodel string) *wire.VModelStatusInfo {
	n := m.names[vmodel]
	out := &wire.VModelStatusInfo{
		Status: wire.VModelStatusInfo_DEFINED, ActiveModelId: n.Active, TargetModelId: n.Target, Owner: n.Owner,
		ActiveModelStatus: m.modelStatus(n.Active),
	}
	if n.Active != n.Target {
		out.Status, out.TargetModelStatus = wire.VModelStatusInfo_TRANSITIONING, m.modelStatus(n.Target)
		if n.Failed {
			out.Status = wire.VModelStatusInfo_TRANSITION_FAILED
		}
	}
	return proto.CloneOf(out)
}

func (m *Mesh) modelStatus(id string) *wire.ModelStatusInfo {
	h := m.models[id]
	if h == nil {
		return &wire.ModelStatusInfo{Status: wire.ModelStatusInfo_NOT_FOUND}
	}
	out := &wire.ModelStatusInfo{Status: h.state}
	if h.message != "" {
		out.Errors = []string{h.message}
	}
	for pod, at := range h.In {
		c := wire.ModelStatusInfo_LOADING
		if h.Loaded[pod] != 0 {
			c = wire.ModelStatusInfo_LOADED
		}
		if m.Silent {
			c = wire.ModelStatusInfo_UNKNOWN
		}
		out.ModelCopyInfos = append(out.ModelCopyInfos, &wire.ModelStatusInfo_ModelCopyInfo{Location: pod, CopyStatus: c, Time: uint64(at)}) //nolint:gosec // a time
	}
	for pod, at := range h.Failed {
		out.ModelCopyInfos = append(out.ModelCopyInfos, &wire.ModelStatusInfo_ModelCopyInfo{
			Location: pod, CopyStatus: wire.ModelStatusInfo_LOADING_FAILED, Time: uint64(at), //nolint:gosec // a time
		})
	}
	return out
}

func (m *Mesh) keepName(id string)  { m.keep("vmodels", id, m.names[id]) }
func (m *Mesh) keepModel(id string) { m.keep("registry", id, m.models[id]) }

func (m *Mesh) keep(table, id string, record any) {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	raw, err := json.Marshal(record)
	if err == nil {
		_, err = m.kv.Put(ctx, m.prefix+"/"+table+"/"+id, string(raw))
	}
	_ = err // etcd may be away: that is what some tests are about
}
