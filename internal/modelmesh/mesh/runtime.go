// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/splice"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

const (
	predictTimeout = 500 * time.Millisecond
	sizeTimeout    = 30 * time.Second
	unloadTimeout  = 2 * time.Minute
	unloadAttempts = 90
)

// limits is what the runtime said of itself when it became ready.
type limits struct {
	capacity, defaultSize int64 // in units
	threads               int
	loadTimeout           time.Duration
	methods               map[string][]int32 // where to put the id, by method; nil: every method
	anyMethod             bool
	limitConcurrency      bool
	version               string
}

// runtimeClient speaks to the runtime beside us: to the one address where models are managed and to the one where they
// answer, which may be the same.
type runtimeClient struct {
	manage, serve *grpc.ClientConn
	api           wire.ModelRuntimeClient
	log           *slog.Logger
	set           *Settings

	said  atomic.Pointer[limits]
	ready atomic.Bool

	mu   sync.Mutex
	lost chan struct{} // closed when the runtime went away, until it is back
}

func newRuntimeClient(set *Settings, log *slog.Logger, l *ledger) (*runtimeClient, error) {
	dial := func(target string) (*grpc.ClientConn, error) {
		conn, err := grpc.NewClient(target,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newRawCodec()), grpc.MaxCallRecvMsgSize(set.MaxMessage), grpc.MaxCallSendMsgSize(2*set.MaxMessage)),
			grpc.WithIdleTimeout(0), grpc.WithConnectParams(quickly), grpc.WithNoProxy(), experimental.WithBufferPool(l))
		if err != nil {
			return nil, fmt.Errorf("connect to the runtime at %s: %w", target, err)
		}
		return conn, nil
	}
	r := &runtimeClient{log: log, set: set, lost: make(chan struct{})}
	var err error
	if r.manage, err = dial(set.RuntimeTarget); err != nil {
		return nil, err
	}
	if r.serve = r.manage; set.ServingTarget != set.RuntimeTarget {
		if r.serve, err = dial(set.ServingTarget); err != nil {
			return nil, err
		}
	}
	r.api = wire.NewModelRuntimeClient(r.manage)
	return r, nil
}

func (r *runtimeClient) close() {
	_ = r.manage.Close()
	if r.serve != r.manage {
		_ = r.serve.Close()
	}
}

// await asks until the runtime is ready, which also means that it has no model.
func (r *runtimeClient) await(ctx context.Context) error {
	var last string
	for {
		answer, err := r.status(ctx)
		if err == nil && answer.Status == wire.RuntimeStatusResponse_READY {
			r.serve.Connect()
			return r.take(answer)
		}
		reason := "it is starting"
		if err != nil {
			reason = err.Error()
		} else if answer.Status == wire.RuntimeStatusResponse_FAILING {
			reason = "it says that it is failing"
		}
		if reason != last {
			r.log.Info("Waiting for the runtime", "at", r.manage.Target(), "because", reason)
			last = reason
		}
		timer := time.NewTimer(r.set.Periods.Runtime)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("the runtime at %s is not ready: %s; see the log of its container", r.manage.Target(), reason)
		case <-timer.C:
		}
	}
}

func (r *runtimeClient) status(ctx context.Context) (*wire.RuntimeStatusResponse, error) {
	asked, cancel := context.WithTimeout(ctx, max(5*time.Second, r.set.Periods.Runtime))
	defer cancel()
	answer, err := r.api.RuntimeStatus(asked, &wire.RuntimeStatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for the runtime's status: %w", err)
	}
	return answer, nil
}

// take understands what the runtime says, or says why it cannot be used.
func (r *runtimeClient) take(answer *wire.RuntimeStatusResponse) error {
	l := &limits{
		capacity: int64(answer.CapacityInBytes / unit), defaultSize: units(answer.DefaultModelSizeInBytes),
		threads: max(int(answer.MaxLoadingConcurrency), 1), loadTimeout: time.Duration(answer.ModelLoadingTimeoutMs) * time.Millisecond,
		anyMethod: answer.AllowAnyMethod, limitConcurrency: answer.LimitModelConcurrency, version: answer.RuntimeVersion,
	}
	if l.defaultSize == 0 {
		l.defaultSize = units(1 << 20)
	}
	if l.loadTimeout <= 0 {
		l.loadTimeout = 90 * time.Second
	}
	if least := max(2*l.defaultSize, min(512<<20/unit, 10*l.defaultSize)); l.capacity < least {
		return fmt.Errorf("the runtime has %d MiB for models, and needs at least %d MiB by the size of a usual one; give its container more memory or lower the default model size",
			l.capacity*unit>>20, least*unit>>20)
	}
	if len(answer.MethodInfos) > 0 {
		l.methods = map[string][]int32{}
		for name, info := range answer.MethodInfos {
			path := make([]int32, len(info.GetIdInjectionPath()))
			for i, n := range info.GetIdInjectionPath() {
				path[i] = int32(n) //nolint:gosec // the next line refuses what is too large
			}
			if len(path) > 0 {
				if err := splice.Check(path); err != nil {
					return fmt.Errorf("the runtime's method %s: %w", name, err)
				}
			}
			l.methods["/"+strings.TrimPrefix(name, "/")] = path
		}
	}
	r.said.Store(l)
	r.mu.Lock()
	r.lost = make(chan struct{})
	r.mu.Unlock()
	r.ready.Store(true)
	return nil
}

func units(bytes uint64) int64 { return int64((bytes + unit - 1) / unit) } //nolint:gosec // a model of exabytes is refused later

// method tells where a runtime wants the id, and whether it knows the method at all.
func (r *runtimeClient) method(name string) (path []int32, ok bool) {
	if strings.HasPrefix(name, "/mmesh.ModelRuntime/") {
		return nil, false
	}
	l := r.said.Load()
	if l == nil || l.methods == nil {
		return nil, true
	}
	path, known := l.methods[name]
	return path, known || l.anyMethod
}

// isLost marks the runtime as gone; watch finds out when it is back.
func (r *runtimeClient) isLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready.CompareAndSwap(true, false) {
		close(r.lost)
	}
}

func (r *runtimeClient) whenLost() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// watch notices connections that cannot be made again, which is how a runtime looks that has ended.
func (r *runtimeClient) watch(ctx context.Context) {
	var both sync.WaitGroup
	for _, conn := range []*grpc.ClientConn{r.manage, r.serve} {
		both.Go(func() {
			for ctx.Err() == nil {
				state := conn.GetState()
				switch state {
				case connectivity.TransientFailure:
					r.isLost()
				case connectivity.Idle:
					conn.Connect()
				case connectivity.Connecting, connectivity.Ready, connectivity.Shutdown:
				}
				conn.WaitForStateChange(ctx, state)
			}
		})
	}
	both.Wait()
}

// suspect is told of a call that failed as if nobody listened.
func (r *runtimeClient) suspect() {
	if r.serve.GetState() != connectivity.Ready || r.manage.GetState() != connectivity.Ready {
		r.isLost()
	}
}

// endedWith tells whether a load failed because the runtime went away. Whoever stands before it may have noticed that sooner than
// our own connection.
func (r *runtimeClient) endedWith(code codes.Code, lost <-chan struct{}) bool {
	const notice = 300 * time.Millisecond
	if code == codes.FailedPrecondition || code == codes.InvalidArgument || code == codes.NotFound {
		return closed(lost)
	}
	if r.suspect(); code != codes.Unavailable && code != codes.Internal && code != codes.Unknown {
		return closed(lost)
	}
	timer := time.NewTimer(notice)
	defer timer.Stop()
	select {
	case <-lost:
		return true
	case <-timer.C:
		return false
	}
}

func (r *runtimeClient) predict(ctx context.Context, id, typ, path, key string) int64 {
	asked, cancel := context.WithTimeout(ctx, predictTimeout)
	defer cancel()
	answer, err := r.api.PredictModelSize(asked, &wire.PredictModelSizeRequest{ModelId: id, ModelType: typ, ModelPath: path, ModelKey: key})
	if err != nil {
		return 0
	}
	return units(answer.SizeInBytes)
}

// load answers with the size in units, 0 when the runtime did not tell.
func (r *runtimeClient) load(ctx context.Context, id, typ, path, key string) (size int64, concurrency int, err error) {
	answer, err := r.api.LoadModel(ctx, &wire.LoadModelRequest{ModelId: id, ModelType: typ, ModelPath: path, ModelKey: key})
	if err != nil {
		return 0, 0, err //nolint:wrapcheck // its code decides what follows
	}
	return units(answer.SizeInBytes), int(answer.MaxConcurrency), nil
}

func (r *runtimeClient) size(ctx context.Context, id string) int64 {
	asked, cancel := context.WithTimeout(ctx, sizeTimeout)
	defer cancel()
	answer, err := r.api.ModelSize(asked, &wire.ModelSizeRequest{ModelId: id})
	if err != nil {
		return 0
	}
	return units(answer.SizeInBytes)
}

var errRuntimeLost = errors.New("the runtime went away")

// unload tries until the runtime has let go of a model, went away or has refused too often.
func (r *runtimeClient) unload(ctx context.Context, id string, failed func(error)) error {
	lost := r.whenLost()
	for attempt := 1; ; attempt++ {
		asked, cancel := context.WithTimeout(ctx, unloadTimeout)
		_, err := r.api.UnloadModel(asked, &wire.UnloadModelRequest{ModelId: id})
		cancel()
		if err == nil || status.Code(err) == codes.NotFound {
			return nil
		}
		failed(err)
		if attempt == unloadAttempts {
			return fmt.Errorf("unload %s: %w", id, err)
		}
		timer := time.NewTimer(r.set.Periods.UnloadRetry)
		select {
		case <-lost:
			timer.Stop()
			return errRuntimeLost
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// lostModel tells whether an answer of the runtime means that it does not have the model, in the words of several.
func lostModel(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch s.Code() { //nolint:exhaustive // others are errors of the call
	case codes.NotFound:
		return true
	case codes.Unavailable:
		return strings.HasPrefix(s.Message(), "Request for unknown model")
	case codes.InvalidArgument:
		return strings.HasPrefix(s.Message(), "Model ") && strings.Contains(s.Message(), "not found")
	}
	return false
}
