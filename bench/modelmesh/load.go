// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// What is called: any unary method does, and this header names the model to every mesh of the API and to our runtime.
const (
	modelHeader = "mm-model-id"
	method      = "/inference.GRPCInferenceService/ModelInfer"
)

// dial opens a connection to each address.
func dial(addresses ...string) ([]*grpc.ClientConn, error) {
	var list []*grpc.ClientConn
	for _, address := range addresses {
		c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostMessage), grpc.MaxCallSendMsgSize(mostMessage)))
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", address, err)
		}
		list = append(list, c)
	}
	return list, nil
}

// call sends a request to a model and checks that the answer is the echo of it, if it should be.
func call(ctx context.Context, c *grpc.ClientConn, model string, payload []byte, checked bool) error {
	request, answer := raw(payload), raw{}
	ctx = metadata.AppendToOutgoingContext(ctx, modelHeader, model)
	if err := c.Invoke(ctx, method, &request, &answer, grpc.ForceCodecV2(codec{})); err != nil {
		return err
	}
	if checked && !bytes.Equal(request, answer) {
		return fmt.Errorf("model %s answers with %d other bytes", model, len(answer))
	}
	return nil
}

// load is what clients do to a mesh for a while.
type load struct {
	connections []*grpc.ClientConn
	models      []string
	clients     int
	// rate is of all clients together, per second; 0: as fast as they get answers.
	rate     float64
	duration time.Duration
	payload  int
	checked  bool
	patience time.Duration
}

// figures are of requests as clients see them. With a rate, a request that had to wait for its turn is as late as that.
type figures struct {
	Requests  int            `json:"requests"`
	PerSecond float64        `json:"requestsPerSecond"`
	P50       float64        `json:"p50Milliseconds"`
	P99       float64        `json:"p99Milliseconds"`
	Max       float64        `json:"maxMilliseconds"`
	Failed    map[string]int `json:"failed,omitempty"` // by gRPC code
	First     string         `json:"firstFailure,omitempty"`
}

// failures is how many there were of any kind.
func (f figures) failures() (n int) {
	for _, count := range f.Failed {
		n += count
	}
	return n
}

// tally collects what clients see.
type tally struct {
	mu     sync.Mutex
	times  []time.Duration
	failed map[string]int
	first  string
}

func (t *tally) add(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.times = append(t.times, took)
		return
	}
	if t.failed == nil {
		t.failed, t.first = map[string]int{}, err.Error()
	}
	t.failed[status.Code(err).String()]++
}

func (t *tally) figures(took time.Duration) figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := figures{Requests: len(t.times), Failed: t.failed, First: t.first, PerSecond: float64(len(t.times)) / took.Seconds()}
	f.P50, f.P99, f.Max = quantiles(t.times)
	return f
}

// quantiles in milliseconds; the times are sorted by it.
func quantiles(times []time.Duration) (p50, p99, most float64) {
	if len(times) == 0 {
		return 0, 0, 0
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
	}
	return at(0.5), at(0.99), at(1)
}

// run lets the clients work. Each model is asked by any client, through any connection.
func (l load) run(ctx context.Context) figures {
	var t tally
	var turn atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for n := range l.clients {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			payload := make([]byte, l.payload)
			for ctx.Err() == nil {
				due, ok := l.due(ctx, began, turn.Add(1)-1)
				if !ok {
					return
				}
				model := l.models[random.IntN(len(l.models))]
				c := l.connections[random.IntN(len(l.connections))]
				limited, cancel := context.WithTimeout(ctx, l.patience)
				err := call(limited, c, model, payload, l.checked)
				cancel()
				if ctx.Err() == nil {
					t.add(time.Since(due), err)
				}
			}
		})
	}
	group.Wait()
	return t.figures(time.Since(began))
}

// due waits for the turn of a request and tells when it was; false when the time is over.
func (l load) due(ctx context.Context, began time.Time, turn int64) (time.Time, bool) {
	at := time.Now()
	if l.rate > 0 {
		at = began.Add(time.Duration(float64(turn) / l.rate * float64(time.Second)))
	}
	if at.Sub(began) >= l.duration {
		return at, false
	}
	if wait := time.Until(at); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return at, false
		}
	}
	return at, true
}

// pairs measures two ways to the same models in turns, so that whatever else happens on the machine happens to both.
func pairs(ctx context.Context, direct, meshed func(context.Context, string, []byte) error, models []string, clients, payload int, d time.Duration) (figures, figures, error) {
	var one, other tally
	errs := make(chan error, clients)
	began := time.Now()
	for n := range clients {
		go func() {
			random := rand.New(rand.NewPCG(uint64(n), 2))
			content := make([]byte, payload)
			var err error
			for i := n; err == nil && time.Since(began) < d; i++ {
				model := models[random.IntN(len(models))]
				// Who comes first changes, lest one of them always finds the other's traces in the processor's cache.
				first, second := direct, meshed
				if i%2 == 1 {
					first, second = meshed, direct
				}
				var a, b time.Duration
				if a, err = timed(ctx, first, model, content); err != nil {
					break
				}
				if b, err = timed(ctx, second, model, content); err != nil {
					break
				}
				if i%2 == 1 {
					a, b = b, a
				}
				one.add(a, nil)
				other.add(b, nil)
			}
			errs <- err
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			return figures{}, figures{}, err
		}
	}
	took := time.Since(began)
	return one.figures(took), other.figures(took), nil
}

func timed(ctx context.Context, f func(context.Context, string, []byte) error, model string, content []byte) (time.Duration, error) {
	began := time.Now()
	err := f(ctx, model, content)
	return time.Since(began), err
}

// register makes models known to a mesh by its API, by some clients at once.
func register(ctx context.Context, connections []*grpc.ClientConn, models []string, modelType string, clients int) error {
	errs := make(chan error, clients)
	for n := range clients {
		go func() {
			api := wire.NewModelMeshClient(connections[n%len(connections)])
			var err error
			for i := n; err == nil && i < len(models); i += clients {
				_, err = api.RegisterModel(ctx, &wire.RegisterModelRequest{ModelId: models[i],
					ModelInfo: &wire.ModelInfo{Type: modelType, Path: "models/" + models[i]}})
			}
			errs <- err
		}()
	}
	var first error
	for range clients {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// names are so many ids.
func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%06d", prefix, i)
	}
	return list
}
