// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// What peers tell each other beside the call itself. Clients cannot: whatever begins with mm- is taken off their calls.
const (
	headerModel    = "mm-peer-model-bin"
	headerVModel   = "mm-peer-vmodel-bin"
	headerMode     = "mm-peer-mode"
	headerExcluded = "mm-peer-excluded"
	// headerDestination is whom a call is meant for: its address may be another's by now.
	headerDestination = "mm-peer-destination-bin"
	trailerOutcome    = "mm-peer-outcome"
	modeHit           = "hit"  // answer only when the model is here
	modeLoad          = "load" // load it first

	peerLoad = "/modelplane.mesh.Peer/Load"
	peerPing = "/modelplane.mesh.Peer/Ping"
)

// quickly is how a connection that was lost is made again: what is beside us or in the same cluster comes back soon.
var quickly = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 2 * time.Second,
}

// peer is another instance.
type peer struct {
	id, address string
	conn        *grpc.ClientConn
	inflight    atomic.Int32
	picked      atomic.Int64
	missing     atomic.Int64 // since when etcd does not know it, in milliseconds; 0 when it does
}

// reachable tells whether a call makes sense. Nobody is believed dead because etcd says so while he answers.
func (p *peer) reachable() bool {
	switch p.conn.GetState() {
	case connectivity.Ready:
		return true
	case connectivity.Idle, connectivity.Connecting:
		return p.missing.Load() == 0
	case connectivity.TransientFailure, connectivity.Shutdown:
	}
	return false
}

type peers struct {
	self        string
	credentials credentials.TransportCredentials
	maxMessage  int
	ledger      *ledger

	mu  sync.RWMutex
	all map[string]*peer
}

func newPeers(self string, c credentials.TransportCredentials, maxMessage int, l *ledger) *peers {
	return &peers{self: self, credentials: c, maxMessage: maxMessage, ledger: l, all: map[string]*peer{}}
}

func (p *peers) get(id string) *peer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[id]
}

// changed follows the table of instances.
func (p *peers) changed(id string, now *store.Instance) {
	if id == p.self {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.all[id]
	switch {
	case now == nil || now.Address == "":
		if known != nil {
			known.missing.CompareAndSwap(0, time.Now().UnixMilli())
		}
		return
	case known != nil && known.address == now.Address:
		known.missing.Store(0)
		return
	case known != nil:
		_ = known.conn.Close()
	}
	conn, err := grpc.NewClient("passthrough:///"+now.Address, grpc.WithTransportCredentials(p.credentials),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newRawCodec()), grpc.MaxCallRecvMsgSize(p.maxMessage), grpc.MaxCallSendMsgSize(p.maxMessage)),
		grpc.WithIdleTimeout(0), grpc.WithConnectParams(quickly), grpc.WithNoProxy(), experimental.WithBufferPool(p.ledger),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}))
	if err != nil {
		delete(p.all, id)
		return
	}
	conn.Connect()
	p.all[id] = &peer{id: id, address: now.Address, conn: conn}
}

// prune lets go of peers that are missing and do not answer.
func (p *peers) prune(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, one := range p.all {
		since := one.missing.Load()
		if since != 0 && since < before.UnixMilli() && one.conn.GetState() != connectivity.Ready {
			_ = one.conn.Close()
			delete(p.all, id)
		}
	}
}

// wake keeps connections from idling, so that they tell who is there.
func (p *peers) wake() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, one := range p.all {
		if one.conn.GetState() == connectivity.Idle {
			one.conn.Connect()
		}
	}
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		_ = one.conn.Close()
	}
}

// loadRequest asks a peer to load a model; loadAnswer says how far it has come.
type loadRequest struct {
	Model    string `json:"model"`
	LastUsed int64  `json:"lastUsed,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Extra    bool   `json:"extra,omitempty"`
	Awaited  bool   `json:"awaited,omitempty"`
	Wait     bool   `json:"wait,omitempty"`  // answer when the load has ended
	Check    bool   `json:"check,omitempty"` // look whether the model is there when there is no room for it
	To       string `json:"to,omitempty"`    // whom this is meant for; empty: whoever gets it

	avoid []string // instances that are not asked
}

// pingAnswer is who answers at an address.
type pingAnswer struct {
	Instance string `json:"instance"`
	Started  int64  `json:"started"`
}

// ask is a question to a peer and its answer, in JSON.
func ask(ctx context.Context, conn grpc.ClientConnInterface, method string, question, answer any) error {
	raw, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode a question to a peer: %w", err)
	}
	var got frame
	defer got.free()
	var trailer metadata.MD
	if err := conn.Invoke(ctx, method, newFrame(raw), &got, grpc.Trailer(&trailer)); err != nil {
		return understand(trailer, err)
	}
	if answer == nil {
		return nil
	}
	message, free := got.bytes()
	defer free()
	if err := json.Unmarshal(message, answer); err != nil {
		return fmt.Errorf("decode the answer of a peer: %w", err)
	}
	return nil
}

// understand tells errors of the mesh on the other side from those of the call itself.
func understand(trailer metadata.MD, err error) error {
	if kind := trailer.Get(trailerOutcome); len(kind) > 0 {
		return &outcome{kind[0], err}
	}
	return err
}

// handlePeer answers what other instances ask.
func (m *Mesh) handlePeer(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	err := m.answerPeer(stream, method)
	if o, ok := asOutcome(err); ok {
		stream.SetTrailer(metadata.Pairs(trailerOutcome, o.kind))
		return o.err
	}
	return err
}

func (m *Mesh) answerPeer(stream grpc.ServerStream, method string) error {
	ctx := stream.Context()
	switch method {
	case peerPing:
		return reply(stream, func([]byte) (any, error) {
			return pingAnswer{m.set.Instance, m.started.UnixMilli()}, nil
		})
	case peerLoad:
		return reply(stream, func(raw []byte) (any, error) {
			var asked loadRequest
			if err := json.Unmarshal(raw, &asked); err != nil {
				return nil, status.Error(codes.InvalidArgument, "a peer asked for a load in words that are not understood")
			}
			if err := m.meant(asked.To); err != nil {
				return nil, err
			}
			return struct{}{}, m.loadForPeer(ctx, asked)
		})
	}
	header, _ := metadata.FromIncomingContext(ctx)
	id, mode := header.Get(headerModel), header.Get(headerMode)
	if len(id) != 1 || len(mode) != 1 {
		return status.Error(codes.Unimplemented, "this address is for other instances of the mesh; call the Service's port "+fmt.Sprint(m.set.Port))
	}
	if err := m.meant(first(header, headerDestination)); err != nil {
		return err
	}
	m.memory.use()
	x := newExchange(stream, method, passedOn(header), m.ledger)
	defer x.close()
	call := call{x: x, id: id[0], excluded: header.Get(headerExcluded)}
	if vmodel := header.Get(headerVModel); len(vmodel) == 1 {
		call.vmodel = vmodel[0]
	}
	err := m.answerHere(x.ctx, &call, mode[0] == modeLoad)
	if err != nil && wasTurnedAway(x.ctx) {
		return errFull
	}
	return err
}

// meant refuses what is for another instance. Addresses are given to others when pods go.
func (m *Mesh) meant(destination string) error {
	if destination == "" || destination == m.set.Instance {
		return nil
	}
	return because(outcomeAbsent, codes.Unavailable, "this is the instance "+m.set.Instance+" and not "+destination)
}

// reply is one question and one answer.
func reply(stream grpc.ServerStream, answer func([]byte) (any, error)) error {
	var f frame
	if err := stream.RecvMsg(&f); err != nil {
		return err //nolint:wrapcheck // the transport's
	}
	defer f.free()
	message, free := f.bytes()
	defer free()
	out, err := answer(message)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode an answer to a peer: %w", err)
	}
	return stream.SendMsg(newFrame(raw)) //nolint:wrapcheck // the transport's
}

// loadForPeer begins to load a model because another instance chose this one.
func (m *Mesh) loadForPeer(ctx context.Context, asked loadRequest) error {
	record, err := m.model(ctx, asked.Model)
	if err != nil {
		return err
	}
	e, err := m.loadHere(ctx, asked.Model, record, wish{lastUsed: asked.LastUsed, awaited: asked.Awaited, extra: asked.Extra, size: asked.Size})
	if asked.Check && noRoom(err) {
		m.check(asked.Model, record)
	}
	if err != nil || !asked.Wait {
		return err
	}
	err = awaitLoad(ctx, e)
	if ctx.Err() == nil {
		m.books.settle(ctx, asked.Model)
	}
	return err
}

// awaitLoad waits until an entry is loaded or is not going to be.
func awaitLoad(ctx context.Context, e *entry) error {
	select {
	case <-e.done:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == active {
		return nil
	}
	return e.err
}
