// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// usualRenewDeadline holds where the options leave it to us.
const usualRenewDeadline = 10 * time.Second

// newLock is the lease that replicas compete for. A change of leader is in the
// lease and in the log; it is no event as well, so that a restart writes nothing.
func newLock(cfg *rest.Config, opts Options) (resourcelock.Interface, error) {
	if !opts.LeaderElection {
		return nil, nil
	}
	host, err := os.Hostname()
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
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: opts.Namespace, Name: LeaseName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, nil
}
