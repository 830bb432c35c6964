// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// page is how many records are read at once when a mirror begins.
const page = 2000

// Row is a record and the revision at which it was written. Value must not be changed by whoever got it.
type Row[T any] struct {
	Value    *T
	Revision int64
}

// Codec is how the records of a table look in etcd.
type Codec[T any] struct {
	Decode func([]byte) (*T, error)
	Encode func(*T) ([]byte, error)
}

// Table mirrors all records of one kind in memory.
type Table[T any] struct {
	store *Store
	name  string
	codec Codec[T]

	// changed is called after each change, with nil for what is not there, one change at a time for each record.
	changed func(id string, before, after *T)

	mu     sync.RWMutex
	rows   map[string]Row[T]
	graves map[string]int64 // what was removed here and may still come from the watch as alive
	doubts map[string]int64 // the revision over which something was written, without an answer whether it is there
	synced chan struct{}
	once   sync.Once
}

// NewTable prepares a mirror that Run fills. changed may be nil.
func NewTable[T any](s *Store, name string, codec Codec[T], changed func(id string, before, after *T)) *Table[T] {
	if changed == nil {
		changed = func(string, *T, *T) {}
	}
	return &Table[T]{
		store: s, name: name, codec: codec, changed: changed,
		rows: map[string]Row[T]{}, graves: map[string]int64{}, doubts: map[string]int64{}, synced: make(chan struct{}),
	}
}

// Synced ends when the table has been read once.
func (t *Table[T]) Synced() <-chan struct{} { return t.synced }

// Run mirrors until the context ends. Whatever goes wrong with etcd is waited for.
func (t *Table[T]) Run(ctx context.Context) {
	const least, most = 100 * time.Millisecond, 5 * time.Second
	for pause := least; ctx.Err() == nil; {
		revision, err := t.list(ctx)
		if err == nil {
			pause = least
			t.once.Do(func() { close(t.synced) })
			err = t.watch(ctx, revision+1)
		}
		if ctx.Err() != nil {
			return
		}
		t.store.log.Warn("The mirror of a table in etcd begins anew", "table", t.name, "err", err.Error())
		wait(ctx, pause)
		pause = min(2*pause, most)
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

// list reads everything at one revision, page by page, and forgets what is no longer there.
func (t *Table[T]) list(ctx context.Context) (int64, error) {
	prefix := t.store.Key(t.name, "")
	end := clientv3.GetPrefixRangeEnd(prefix)
	seen := map[string]struct{}{}
	var revision int64
	for key := prefix; ; {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(page)}
		if revision != 0 {
			options = append(options, clientv3.WithRev(revision))
		}
		asked, cancel := context.WithTimeout(ctx, time.Minute)
		answer, err := t.store.client.Get(asked, key, options...)
		cancel()
		if err != nil {
			return 0, fmt.Errorf("read the table %s: %w", t.name, err)
		}
		if revision == 0 {
			revision = answer.Header.Revision
		}
		for _, kv := range answer.Kvs {
			id := strings.TrimPrefix(string(kv.Key), prefix)
			seen[id] = struct{}{}
			t.put(id, kv.Value, kv.ModRevision)
		}
		if !answer.More || len(answer.Kvs) == 0 {
			break
		}
		key = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
	t.forget(seen, revision)
	return revision, nil
}

// forget removes what a whole reading at a revision did not show.
func (t *Table[T]) forget(seen map[string]struct{}, revision int64) {
	t.mu.RLock()
	var gone []string
	for id, row := range t.rows {
		if _, ok := seen[id]; !ok && row.Revision <= revision {
			gone = append(gone, id)
		}
	}
	t.mu.RUnlock()
	for _, id := range gone {
		t.drop(id, revision)
	}
}

func (t *Table[T]) watch(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := t.store.Key(t.name, "")
	for answer := range t.store.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision)) {
		if err := answer.Err(); err != nil {
			if errors.Is(err, rpctypes.ErrCompacted) {
				return errors.New("etcd has compacted what happened since")
			}
			return fmt.Errorf("watch the table %s: %w", t.name, err)
		}
		for _, event := range answer.Events {
			id := strings.TrimPrefix(string(event.Kv.Key), prefix)
			if event.Type == mvccpb.Event_DELETE {
				t.drop(id, event.Kv.ModRevision)
			} else {
				t.put(id, event.Kv.Value, event.Kv.ModRevision)
			}
		}
		t.unearth(answer.Header.Revision)
	}
	return errors.New("the watch has ended")
}

// put takes over a record unless a newer one is known. One that cannot be read is left out: it is somebody else's mistake,
// and the log says whose.
func (t *Table[T]) put(id string, raw []byte, revision int64) {
	value, err := t.codec.Decode(raw)
	if err != nil {
		t.store.log.Warn("A record in etcd cannot be read and is left out", "table", t.name, "id", id)
		t.drop(id, revision)
		return
	}
	t.set(id, value, revision)
}

func (t *Table[T]) set(id string, value *T, revision int64) {
	t.mu.Lock()
	before, known := t.rows[id]
	if (known && before.Revision >= revision) || t.graves[id] >= revision {
		t.mu.Unlock()
		return
	}
	delete(t.graves, id)
	t.rows[id] = Row[T]{value, revision}
	t.mu.Unlock()
	t.changed(id, before.Value, value)
}

func (t *Table[T]) drop(id string, revision int64) {
	t.mu.Lock()
	before, known := t.rows[id]
	if !known || before.Revision > revision {
		t.mu.Unlock()
		return
	}
	delete(t.rows, id)
	t.mu.Unlock()
	t.changed(id, before.Value, nil)
}

// bury remembers a removal of our own until the watch has come so far.
func (t *Table[T]) bury(id string, revision int64) {
	t.mu.Lock()
	t.graves[id] = revision
	t.mu.Unlock()
	t.drop(id, revision)
}

func (t *Table[T]) unearth(revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, removed := range t.graves {
		if removed <= revision {
			delete(t.graves, id)
		}
	}
}

// Get is what the mirror knows.
func (t *Table[T]) Get(id string) (Row[T], bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	row, ok := t.rows[id]
	return row, ok
}

// Len is how many records there are.
func (t *Table[T]) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.rows)
}

// Each visits the records in no order, as they were at some time during the visit; visit returns false to end it. Nothing
// is locked while visit runs.
func (t *Table[T]) Each(visit func(id string, row Row[T]) bool) {
	t.mu.RLock()
	ids := make([]string, 0, len(t.rows))
	for id := range t.rows {
		ids = append(ids, id)
	}
	t.mu.RUnlock()
	for _, id := range ids {
		if row, ok := t.Get(id); ok && !visit(id, row) {
			return
		}
	}
}

// Refresh reads a record from etcd itself and brings the mirror up to it.
func (t *Table[T]) Refresh(ctx context.Context, id string) (Row[T], bool, error) {
	raw, revision, err := t.store.Read(ctx, t.name, id)
	if err != nil {
		return Row[T]{}, false, err
	}
	if revision != 0 {
		t.put(id, raw, revision)
	} else if row, known := t.Get(id); known {
		t.drop(id, row.Revision)
	}
	row, ok := t.Get(id)
	return row, ok, nil
}

// Step is a write that belongs to a table, to be committed with others.
type Step struct {
	Write
	done func(revision int64)
}

// Put prepares a write of a record that has the revision now.
func (t *Table[T]) Put(id string, revision int64, value *T) (Step, error) {
	raw, err := t.codec.Encode(value)
	if err != nil {
		return Step{}, fmt.Errorf("encode a record of %s: %w", t.name, err)
	}
	return Step{Write{Table: t.name, ID: id, Revision: revision, Value: raw}, func(now int64) { t.set(id, value, now) }}, nil
}

// Delete prepares a removal.
func (t *Table[T]) Delete(id string, revision int64) Step {
	return Step{Write{Table: t.name, ID: id, Revision: revision}, func(now int64) { t.bury(id, now) }}
}

// Together commits steps of several tables, all or none. The mirrors show them at once.
func (s *Store) Together(ctx context.Context, steps ...Step) error {
	writes := make([]Write, len(steps))
	for i, step := range steps {
		writes[i] = step.Write
	}
	revision, err := s.Commit(ctx, writes...)
	if err != nil {
		return err
	}
	for _, step := range steps {
		step.done(revision)
	}
	return nil
}

// Update changes a record by compare-and-swap until nobody is faster. change gets a nil record when there is none, and
// returns the record that should be: nil to remove it, and false when nothing is to be written. It must not keep or change
// what it got.
func (t *Table[T]) Update(ctx context.Context, id string, change func(now *T) (next *T, write bool, err error)) (*T, error) {
	row, _ := t.Get(id)
	if _, doubtful := t.doubt(id); doubtful { // the mirror may lag behind ourselves
		var err error
		if row, _, err = t.Refresh(ctx, id); err != nil {
			return nil, err
		}
	}
	for {
		next, write, err := change(row.Value)
		if err != nil {
			return row.Value, err
		}
		if !write {
			over, doubtful := t.doubt(id)
			if !doubtful {
				return row.Value, nil
			}
			if over != row.Revision || row.Value == nil {
				t.settle(id)
				return row.Value, nil
			}
			// Written as it is, so that what may still be on its way finds another revision.
			next = row.Value
		}
		err = t.replace(ctx, id, row.Revision, next)
		if err == nil {
			t.settle(id)
			return next, nil
		}
		if !errors.Is(err, ErrConflict) {
			if !errors.Is(err, ErrReadOnly) {
				t.unsettle(id, row.Revision)
			}
			return row.Value, err
		}
		if row, _, err = t.Refresh(ctx, id); err != nil {
			return nil, err
		}
	}
}

func (t *Table[T]) doubt(id string) (over int64, doubtful bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	over, doubtful = t.doubts[id]
	return over, doubtful
}

func (t *Table[T]) unsettle(id string, over int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubts[id] = over
}

func (t *Table[T]) settle(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.doubts, id)
}

func (t *Table[T]) replace(ctx context.Context, id string, revision int64, next *T) error {
	if next == nil {
		if revision == 0 {
			return nil
		}
		return t.store.Together(ctx, t.Delete(id, revision))
	}
	step, err := t.Put(id, revision, next)
	if err != nil {
		return err
	}
	return t.store.Together(ctx, step)
}
