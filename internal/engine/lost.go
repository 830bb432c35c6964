// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// unseenPause is when a write is looked for in the cache again, should its event
// not come; overdue is when it is looked for in the cluster.
const (
	unseenPause = 10 * time.Second
	overdue     = time.Minute
)

// Pace is how often the engine does what no event asks for.
type Pace struct {
	// LookAgain is about how often every object is looked at again, from the
	// caches. It costs no request when nothing changed.
	LookAgain time.Duration
	// Contest is how repairs that others undo are spaced.
	Contest Contest
}

var steady = Pace{
	LookAgain: time.Hour,
	Contest:   Contest{Repairs: 3, Within: 10 * time.Minute, Pause: time.Minute, Longest: 30 * time.Minute},
}

// Option changes how an Engine works.
type Option func(*Engine)

// WithPace is for tests, which cannot wait for an hour.
func WithPace(p Pace) Option { return func(e *Engine) { e.pace = p } }

// next is the time until the next look, spread out so that many objects do not come
// at once.
func (p Pace) next() time.Duration {
	return p.LookAgain*3/4 + time.Duration(rand.Int64N(int64(p.LookAgain/2)+1))
}

// noteReached notes how far the cache has come. What is looked for in the cache
// after that is not of an earlier time.
func (w *writer) noteReached(intents []*intent) {
	for _, in := range intents {
		if kind, ok := w.kindOf(in.key); ok {
			in.reached = w.caches.reached(kind.form)
		}
	}
}

// passed tells whether the cache knows what happened to the child since our write:
// if it does not have the child then, the child is gone, whether or not an
// event said so.
func (in *intent) passed(version string) bool {
	return !older(in.reached, version) && older(noVersion, in.reached) && older(noVersion, version) // else they cannot be compared
}

// lookForLost asks the API server, once in a while, for a child whose last write
// does not arrive in the cache.
func (w *writer) lookForLost(ctx context.Context, in *intent, live client.Object) {
	last, known := w.ledger.get(in.holder, in.key)
	now := w.clock.Now()
	if !known || last.deleted || last.gone || last.at == 0 || now.Sub(time.Unix(last.at, 0)) < overdue ||
		live != nil && !older(live.GetResourceVersion(), last.version) {
		return
	}
	head, err := w.look(ctx, in.key)
	if err != nil && !apierrors.IsNotFound(err) {
		return // no news
	}
	log.FromContext(ctx).Info("A write did not arrive in the cache", "child", in.key.String(), "exists", err == nil)
	if err != nil || head.GetUID() != last.uid || head.GetLabels()[LabelOwner] != string(in.holder) {
		w.ledger.put(in.holder, in.key, entry{gone: true})
		return
	}
	last.at, last.version = now.Unix(), head.GetResourceVersion() // which is lower after a restore of the cluster
	w.ledger.put(in.holder, in.key, last)
}

func (w *writer) waiter(who types.NamespacedName) waiter {
	return waiter{controller: w.waker, who: who}
}
