// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/internal/modelmesh/model"
)

// watch follows the records of all meshes in etcd. It goes on where it stopped, and reads everything anew where that is no
// longer kept.
type watch struct {
	// changed is told of objects whose records have changed; lost of those that the mesh has forgotten.
	changed, lost func(who)

	mu      sync.Mutex
	etcd    *Etcd
	renewed chan struct{} // closed when etcd is another one
	live    bool
	known   *records
}

func newWatch(changed func(who)) *watch {
	return &watch{changed: changed, lost: func(who) {}, renewed: make(chan struct{}), known: newRecords()}
}

func (w *watch) view(source model.Source, of types.NamespacedName) View {
	return w.records().view(source, of)
}

func (w *watch) records() *records {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

func (w *watch) told(namespace string) bool {
	w.mu.Lock()
	live, known := w.live, w.known
	w.mu.Unlock()
	known.mu.Lock()
	defer known.mu.Unlock()
	return live && known.telling[namespace]
}

// follow says where the records are. What was known of another etcd stays until this one has answered.
func (w *watch) follow(e *Etcd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.etcd != nil && *w.etcd == *e {
		return
	}
	w.etcd = e
	close(w.renewed)
	w.renewed = make(chan struct{})
}

func (w *watch) present() (*Etcd, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.etcd, w.renewed
}

func (w *watch) alive(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = yes
}

// run follows until ctx ends, with growing pauses while etcd does not answer.
func (w *watch) run(ctx context.Context) error {
	const shortest, longest = 500 * time.Millisecond, 30 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		etcd, renewed := w.present()
		if etcd == nil {
			select {
			case <-renewed:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := w.mirror(ctx, etcd, renewed)
		w.alive(false)
		if time.Since(began) > longest {
			pause = shortest
		}
		if errors.Is(err, errRenewed) || ctx.Err() != nil {
			pause = shortest
			continue
		}
		log.FromContext(ctx).Info("The records of the mesh cannot be followed; trying again", "error", err.Error(), "after", pause.String())
		select {
		case <-time.After(pause):
		case <-renewed:
		case <-ctx.Done():
		}
		pause = min(2*pause, longest)
	}
	return ctx.Err()
}

var errRenewed = errors.New("etcd is another one")

// mirror reads all records of one etcd, and then what changes.
func (w *watch) mirror(ctx context.Context, etcd *Etcd, renewed <-chan struct{}) error {
	kv, err := etcd.connect()
	if err != nil {
		return err
	}
	defer kv.Close() //nolint:errcheck // nothing can be done
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		from, err := w.readAll(ctx, kv, etcd)
		if err != nil {
			return err
		}
		w.alive(true)
		if err := w.readChanges(ctx, kv, etcd, from, renewed); !errors.Is(err, errCompacted) {
			return err
		}
	}
}

var errCompacted = errors.New("what has changed is no longer kept")

// Bounds of what is asked of etcd at once.
const (
	page     = 1000
	readTime = 30 * time.Second
)

// readAll takes over the records as they are at one moment, and tells which that was.
func (w *watch) readAll(ctx context.Context, kv *clientv3.Client, etcd *Etcd) (int64, error) {
	next, revision := newRecords(), int64(0)
	for _, prefix := range etcd.prefixes() {
		end := clientv3.GetPrefixRangeEnd(prefix)
		for from := prefix; from != ""; {
			answer, err := readPage(ctx, kv, from, end, revision)
			if err != nil {
				return 0, err
			}
			if revision == 0 {
				revision = answer.Header.Revision
			}
			from = ""
			for _, record := range answer.Kvs {
				next.take(etcd, record)
				if answer.More {
					from = string(record.Key) + "\x00"
				}
			}
		}
	}
	w.replace(next)
	return revision, nil
}

func readPage(ctx context.Context, kv *clientv3.Client, from, end string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	answer, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
	if err != nil {
		return nil, fmt.Errorf("etcd does not give the records: %w", err)
	}
	return answer, nil
}

func (r *records) take(etcd *Etcd, record *mvccpb.KeyValue) []who {
	namespace, table, id, ok := etcd.place(string(record.Key))
	if !ok {
		return nil
	}
	return r.put(namespace, table, id, record.Value, record.ModRevision)
}

// replace takes over all records, and tells everybody for whom they are other ones.
func (w *watch) replace(next *records) {
	before := w.records()
	w.mu.Lock()
	w.known = next
	w.mu.Unlock()
	lost, changed := before.compare(next)
	for _, of := range lost {
		w.lost(of)
		w.changed(of)
	}
	for _, of := range changed {
		w.changed(of)
	}
}

// compare finds names that are gone, and those of which something else is said.
func (r *records) compare(next *records) (lost, changed []who) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, before := range r.names {
		next.mu.Lock()
		now, there := next.names[key]
		next.mu.Unlock()
		if !there || now.Owner != before.Owner {
			lost = append(lost, concerned(key, model.FromPredictor, model.FromService)...)
		}
	}
	next.mu.Lock()
	defer next.mu.Unlock()
	for key, now := range next.names {
		other := r.names[key].revision != now.revision
		for _, id := range []string{now.Active, now.Target} {
			at := types.NamespacedName{Namespace: key.Namespace, Name: id}
			other = other || r.models[at].Copies != next.models[at].Copies
		}
		if other {
			changed = append(changed, concerned(key, now.Owner)...)
		}
	}
	return lost, changed
}

// readChanges follows what happens after a revision.
func (w *watch) readChanges(ctx context.Context, kv *clientv3.Client, etcd *Etcd, from int64, renewed <-chan struct{}) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	prefixes := etcd.prefixes()
	own := kv.Watch(ctx, prefixes[0], clientv3.WithPrefix(), clientv3.WithRev(from+1))
	others := kv.Watch(ctx, prefixes[1], clientv3.WithPrefix(), clientv3.WithRev(from+1))
	for {
		var heard clientv3.WatchResponse
		var open bool
		select {
		case heard, open = <-own:
		case heard, open = <-others:
		case <-renewed:
			return errRenewed
		}
		switch {
		case heard.CompactRevision > 0:
			return errCompacted
		case heard.Err() != nil:
			return fmt.Errorf("etcd no longer tells what changes: %w", heard.Err())
		case !open:
			return errors.New("etcd no longer tells what changes")
		}
		for _, event := range heard.Events {
			w.happened(etcd, event)
		}
	}
}

func (w *watch) happened(etcd *Etcd, event *clientv3.Event) {
	if event.Type != clientv3.EventTypeDelete {
		for _, of := range w.records().take(etcd, event.Kv) {
			w.changed(of)
		}
		return
	}
	namespace, table, id, ok := etcd.place(string(event.Kv.Key))
	if !ok {
		return
	}
	for _, of := range w.records().remove(namespace, table, id) {
		w.lost(of)
		w.changed(of)
	}
}
