// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// Why a model cannot be called, in words for programs, as they are in the trailer of an answer. The status of gRPC is the
// same for many errors; these are those in which neither the call nor the mesh is at fault.
const (
	reasonLoadFailed = "load-failed"         // the runtime refused the model
	reasonNoInstance = "no-instance"         // no instance may have models of its type
	reasonRuntime    = "runtime-unavailable" // the runtime does not answer anywhere

	trailerReason = "mm-reason"
	trailerRetry  = "mm-retry-after" // seconds until the model is tried again, where that is known
)

// unavailable is an error of a model that nobody can call now.
type unavailable struct {
	reason string
	after  time.Duration // until it is tried again; 0 when nobody knows
	err    error
}

func (u *unavailable) Error() string { return u.err.Error() }
func (u *unavailable) Unwrap() error { return u.err }

// GRPCStatus is for gRPC.
func (u *unavailable) GRPCStatus() *status.Status { return status.Convert(u.err) }

// tell adds to the answer what programs want to know of an error.
func (u *unavailable) tell(stream grpc.ServerStream) {
	words := metadata.Pairs(trailerReason, u.reason)
	if u.after > 0 {
		words.Set(trailerRetry, strconv.Itoa(int(u.after.Seconds())+1))
	}
	stream.SetTrailer(words)
}

// failures remembers which models could not be loaded here. The registry has the same for everybody, a moment later: what is
// decided between a failure and its record would otherwise be another attempt.
type failures struct {
	mu sync.Mutex
	by map[string]failure
}

// failure is that of one registration; another one of the same id is another model.
type failure struct {
	typ, path, key string
	at             time.Time
	err            *outcome
}

// mostFailures bounds what is remembered; the registry has the rest.
const mostFailures = 10_000

func (f *failures) add(e *entry, at time.Time, err *outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]failure{}
	}
	if len(f.by) < mostFailures {
		f.by[e.id] = failure{e.typ, e.path, e.key, at, err}
	}
}

func (f *failures) get(id string, record *store.Model) (failure, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, ok := f.by[id]
	return found, ok && record.Same(found.typ, found.path, found.key)
}

func (f *failures) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.by, id)
}

// expire forgets what is too old to count.
func (f *failures) expire(before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, one := range f.by {
		if one.at.Before(before) {
			delete(f.by, id)
		}
	}
}

// failedHere is why a model is not tried again in this instance for a while; nil when it may be.
func (m *Mesh) failedHere(id string, record *store.Model) error {
	if f, ok := m.failed.get(id, record); ok && m.now().Sub(f.at) < m.expiry(record) {
		return f.err
	}
	if left := m.stoppedFor(record); left > 0 {
		return because(outcomeFailed, codes.Internal, "the model "+id+" failed to load: "+killed(record))
	}
	for _, f := range m.failures(record) {
		if f.Instance == m.set.Instance {
			return because(outcomeFailed, codes.Internal, "the model "+id+" failed to load: "+f.Message)
		}
	}
	return nil
}

// failedHereChanged follows the registry: whoever registers a model anew, or forgets its failure, wants it to be tried.
func (m *Mesh) failedHereChanged(id string, before, after *store.Model) {
	if after == nil || before != nil && before.FailedIn(m.set.Instance) && !after.FailedIn(m.set.Instance) {
		m.failed.forget(id)
	}
}

// inUse is how lately a model must have been asked for to count as one that is in use.
const inUse = 3 * time.Minute

// expiry is how long a failure to load a model counts. That is half as long for one that is in use.
func (m *Mesh) expiry(record *store.Model) time.Duration {
	if m.now().Sub(time.UnixMilli(record.LastUsed)) < inUse {
		return m.set.LoadFailureExpiry / 2
	}
	return m.set.LoadFailureExpiry
}

// wanted keeps it known that a model is in use although it cannot be loaded, so that it is tried again sooner.
func (m *Mesh) wanted(id string, record *store.Model) {
	if now := m.now(); now.Sub(time.UnixMilli(record.LastUsed)) > inUse/2 {
		m.books.used(id, now.UnixMilli())
	}
}

// failures are those that still count, the newest first. For a model that is stopped the last runtime that ended is one.
func (m *Mesh) failures(record *store.Model) []store.Failure {
	out := m.counting(record)
	if m.stoppedFor(record) > 0 {
		out = slices.DeleteFunc(out, func(f store.Failure) bool { return f.Instance == record.KilledIn })
		out = append(out, store.Failure{Instance: record.KilledIn, At: record.KilledAt, Message: killed(record)})
	}
	slices.SortFunc(out, func(a, b store.Failure) int { return int(b.At - a.At) })
	return out
}

// counting are the failures in a record that still count.
func (m *Mesh) counting(record *store.Model) []store.Failure {
	now, expiry := m.now(), m.expiry(record)
	var out []store.Failure
	for _, f := range record.Failures {
		if now.Sub(time.UnixMilli(f.At)) < expiry {
			out = append(out, f)
		}
	}
	return out
}

// A model whose runtime ends while it is loaded takes all models of that runtime with it. It gets one more chance, alone, and is
// stopped then, for longer each time.
const (
	maxKills    = 2
	longestStop = 24 * time.Hour
)

// stoppedFor is how long a model is not loaded any more because of the runtimes that have ended; 0 when it may be. Where the
// instance has gone, something was done about it, or its pod was moved: that is as good as any other failure.
func (m *Mesh) stoppedFor(record *store.Model) time.Duration {
	if record.Kills < maxKills {
		return 0
	}
	stop := m.expiry(record)
	if m.exists(record.KilledIn) {
		stop = m.set.LoadFailureExpiry
		for range min(record.Kills, 16) {
			stop = min(2*stop, max(longestStop, m.set.LoadFailureExpiry))
		}
	}
	return max(time.UnixMilli(record.KilledAt).Add(stop).Sub(m.now()), 0)
}

// killed says it to people.
func killed(record *store.Model) string {
	return fmt.Sprintf("%d runtimes ended while they loaded the model, the last one that of %s; it is not loaded again for a while, so that it takes no other models with it. "+
		"See the log of the runtime's container before its restart: the model may need more memory than the container has, or its files may be broken", record.Kills, record.KilledIn)
}

// refuseFailed is the error of a model of which some failures, the newest first, still count.
func (m *Mesh) refuseFailed(record *store.Model, counting []store.Failure, message string) error {
	oldest := time.UnixMilli(counting[len(counting)-1].At)
	return &unavailable{reasonLoadFailed, oldest.Add(m.expiry(record)).Sub(m.now()), status.Error(codes.Internal, message)}
}

// tooManyFailures says why a model is not tried again for a while.
func (m *Mesh) tooManyFailures(id string, record *store.Model) error {
	counting := m.failures(record)
	if left := m.stoppedFor(record); left > 0 {
		return &unavailable{reasonLoadFailed, left, status.Error(codes.Internal, "the model "+id+" failed to load: "+killed(record))}
	}
	if len(counting) < maxLoadFailures {
		return nil
	}
	return m.refuseFailed(record, counting, fmt.Sprintf("the model %s failed to load in %d instances, the last time: %s", id, len(counting), counting[0].Message))
}

// final is what the client is told in the end.
func (m *Mesh) final(err error) error {
	o, ours := asOutcome(err)
	switch {
	case !ours:
		return err
	case o.kind == outcomeRuntime:
		return &unavailable{reasonRuntime, 0, status.Error(codes.Internal, "ModelRuntime UNAVAILABLE: "+status.Convert(o.err).Message())}
	case o.kind == outcomeFailed:
		return &unavailable{reasonLoadFailed, m.set.LoadFailureExpiry / 2, o.err}
	}
	return o.err
}
