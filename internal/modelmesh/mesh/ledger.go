// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// errFull is for calls that are turned away because messages take as much memory as they may.
var errFull = full{status.New(codes.ResourceExhausted,
	"messages under way take as much memory of this instance as they may (MM_MESSAGE_MEMORY_BYTES, a quarter of the container's memory where that is not set); try again, send smaller messages, or add pods or memory")}

// full is an error that is equal to itself only: gRPC's are equal to all that say the same.
type full struct{ said *status.Status }

func (f full) Error() string { return f.said.Message() }

// GRPCStatus is for gRPC.
func (f full) GRPCStatus() *status.Status { return f.said }

// isFull tells whether a peer has turned a call away.
func isFull(err error) bool {
	return err != nil && status.Code(err) == codes.ResourceExhausted && status.Convert(err).Message() == status.Convert(errFull).Message()
}

// ledger lends gRPC the memory for messages, and so knows how much those take that are under way, also before they have arrived as
// a whole. Where that is too much, no call is let in, and of those that are just being received the latest are turned away.
type ledger struct {
	most  int64
	taken atomic.Int64
	pool  mem.BufferPool
	loans sync.Map // by the address of the buffer, which does not keep it alive

	mu        sync.Mutex
	receiving []*receiver // the latest last
	mark      int64       // what was taken when the last one was turned away; 0 when there is no need
}

// receiver is a call whose question, or the answer to it, is just being received.
type receiver struct {
	answer   bool
	turnAway context.CancelCauseFunc
}

type loan struct {
	ledger  *ledger
	key     uintptr
	bytes   int64
	ended   atomic.Bool
	cleanup runtime.Cleanup
}

func newLedger(most int64) *ledger { return &ledger{most: most, pool: mem.DefaultBufferPool()} }

// Get lends a buffer. gRPC drops some without giving them back, those of calls that were cancelled; the garbage collector tells.
func (l *ledger) Get(length int) *[]byte {
	buffer := l.pool.Get(length)
	one := &loan{ledger: l, key: address(buffer), bytes: int64(cap(*buffer))}
	one.cleanup = runtime.AddCleanup(buffer, (*loan).lost, one)
	l.loans.Store(one.key, one)
	if taken := l.taken.Add(one.bytes); taken > l.most {
		l.relieve(taken)
	}
	return buffer
}

// Put takes a buffer back.
func (l *ledger) Put(buffer *[]byte) {
	if found, known := l.loans.LoadAndDelete(address(buffer)); known {
		one := found.(*loan) //nolint:forcetypeassert // nothing else is put in
		one.cleanup.Stop()
		one.end()
	}
	l.pool.Put(buffer)
}

func address(buffer *[]byte) uintptr { return reflect.ValueOf(buffer).Pointer() }

// lost is called by the garbage collector.
func (o *loan) lost() {
	o.ledger.loans.CompareAndDelete(o.key, o) // the address may be another's by now
	o.end()
}

func (o *loan) end() {
	if !o.ended.Swap(true) {
		o.ledger.taken.Add(-o.bytes)
	}
}

// over tells whether more is taken than may be.
func (l *ledger) over() bool { return l.taken.Load() > l.most }

// relieve turns one away for each step by which there is too much: what he has takes a moment to be free. Answers come last, for
// much was done for them.
func (l *ledger) relieve(taken int64) {
	const step = 256 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := len(l.receiving) - 1
	if latest < 0 || l.mark != 0 && taken < l.mark+step {
		return
	}
	for i, one := range slices.Backward(l.receiving) {
		if !one.answer {
			latest = i
			break
		}
	}
	l.mark = taken
	l.receiving[latest].turnAway(errFull)
	l.receiving = slices.Delete(l.receiving, latest, latest+1)
}

// receive notes that a message is about to be received, until done.
func (l *ledger) receive(answer bool, turnAway context.CancelCauseFunc) (done func()) {
	one := &receiver{answer, turnAway}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over() {
		l.mark = 0
	}
	l.receiving = append(l.receiving, one)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.receiving, one); i >= 0 {
			l.receiving = slices.Delete(l.receiving, i, i+1)
		}
	}
}

// refuses tells whether a further message of a stream must not be kept. Small ones are not what takes the memory.
func (l *ledger) refuses(f *frame) bool {
	const small = 64 << 10
	return f.data.Len() > small && l.over()
}

// admit decides about a call before anything of it is read.
func (l *ledger) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if l.over() {
		return nil, errFull
	}
	return ctx, nil
}

// wasTurnedAway tells whether a call ended because there was no memory for it.
func wasTurnedAway(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errFull) }

// containerMemory is what the container may take, or the machine has; 0 when nobody says it.
func containerMemory() int64 {
	least := int64(0)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
			least = limit
		}
	}
	machine := machineMemory()
	if least == 0 || machine > 0 && machine < least {
		return machine
	}
	return least
}

// machineMemory reads /proc/meminfo.
func machineMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// messageMemory is what messages may take: what was set, else a quarter of the memory, but always two of the largest.
func messageMemory(set, container int64, largest int) int64 {
	if set == 0 {
		const unknown = 512 << 20
		if set = container / 4; set == 0 {
			set = unknown
		}
	}
	return max(set, 2*int64(largest))
}

// keepTo has garbage collected in time before the container's memory ends. GOMEMLIMIT is for whoever knows better.
func keepTo(container int64) {
	if container > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(container / 10 * 9)
	}
}
