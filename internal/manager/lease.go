// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// usualRenewDeadline holds where the options leave it to us.
const usualRenewDeadline = 10 * time.Second

// lease is what replicas compete for. It can be given up before the process ends: whoever comes next need not wait until
// this one has answered its last webhook.
type lease struct {
	resourcelock.Interface
	patience time.Duration
	log      logr.Logger

	mu            sync.Mutex
	given, untold bool // given up, and others do not know
}

// newLock is the lease, nil without leader election. A change of leader is in the lease and in the log; it is no event as
// well, so that a restart writes nothing.
func newLock(cfg *rest.Config, opts Options) (*lease, error) {
	if !opts.LeaderElection {
		return nil, nil
	}
	me, err := identity(opts.PodUID)
	if err != nil {
		return nil, err
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	// A call that hangs must not cost the lease.
	cfg.Timeout = max(cmp.Or(opts.Lease.RenewDeadline, usualRenewDeadline)/2, time.Second)
	client, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &lease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: opts.Namespace, Name: LeaseName},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: me},
		},
		patience: cfg.Timeout, log: opts.Log,
	}, nil
}

// identity is the same for all containers that a pod has one after the other: a process that is started again after a
// crash goes on with its own lease.
func identity(podUID string) (string, error) {
	host, err := os.Hostname()
	return host + "_" + cmp.Or(podUID, string(uuid.NewUUID())), err
}

// nobody is the holder that a replica sees which has given up: it neither renews nor takes the lease.
const nobody = "(this replica stops)"

// giveUp lets another replica lead. Nothing may run any more that only a leader does.
func (l *lease) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given {
		return
	}
	l.given = true
	ctx, cancel := context.WithTimeout(context.Background(), l.patience)
	defer cancel()
	err := errors.New("not tried")
	for try := 0; err != nil && try < 3; try++ {
		var record *resourcelock.LeaderElectionRecord
		record, _, err = l.Interface.Get(ctx)
		if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != l.Identity() {
			return
		}
		if err == nil {
			now := metav1.Now()
			err = l.Interface.Update(ctx, resourcelock.LeaderElectionRecord{
				LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now})
		}
	}
	if err != nil {
		l.untold = true
		l.log.Info("Could not give the lease up; trying once more at the end", "error", err.Error())
	}
}

// Get is as in resourcelock.Interface.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.given {
		return l.Interface.Get(ctx)
	}
	record := &resourcelock.LeaderElectionRecord{HolderIdentity: nobody}
	raw, err := json.Marshal(record)
	return record, raw, err
}

// Create is as in resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given {
		return errors.New(nobody)
	}
	return l.Interface.Create(ctx, record)
}

// Update is as in resourcelock.Interface. A leader that has given up renews nothing, and does not notice: it would take
// that for the loss of its lease, which is a failure.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given && (record.HolderIdentity != "" || !l.untold) {
		return nil
	}
	return l.Interface.Update(ctx, record)
}
