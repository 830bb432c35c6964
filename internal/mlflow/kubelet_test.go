// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/mlflow/migrate"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
)

// ending is how a pod of a Job ends.
type ending struct {
	code    int32
	message string
}

var (
	needed       = ending{0, "To be migrated: the backend store is at revision a and must come to b."}
	nothing      = ending{0, "Nothing to migrate: the database is at revision b."}
	migrated     = ending{0, "The database is at revision b."}
	unreachable  = ending{15, "Connection refused. The database was not changed."}
	wrongVersion = ending{10, "The image has MLflow 3.13.0, but version 3.14.0 is needed. The database was not changed."}
)

// kubelet plays the part of all nodes: pods of the server become ready, pods of
// Jobs end as the test says.
type kubelet struct {
	t *testing.T
	c client.Client

	mu                     sync.Mutex
	ns                     string
	preflights, migrations []ending // the last one stands for all that follow
	hold                   bool     // leaves the pods of migrations pending
	endless                bool     // lets the pods of migrations run for ever
	seen                   map[types.UID]bool
	checks, runs           int // pods of preflights and of migrations that ended
}

// newKubelet works until the test ends.
func newKubelet(t *testing.T, b *mlflowtest.Bench) *kubelet {
	k := &kubelet{t: t, c: b.C}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				k.work(ctx)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

// begin forgets what was, and says how Jobs end from now on.
func (k *kubelet) begin(ns string, preflights, migrations []ending) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ns, k.preflights, k.migrations, k.hold, k.endless = ns, preflights, migrations, false, false
	k.seen, k.checks, k.runs = map[types.UID]bool{}, 0, 0
}

func (k *kubelet) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func (k *kubelet) counts() (checks, runs int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.checks, k.runs
}

func (k *kubelet) work(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pods := &corev1.PodList{}
	if k.ns == "" || k.c.List(ctx, pods, client.InNamespace(k.ns)) != nil {
		return
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodPending {
			continue
		}
		migrates := p.Labels[migrate.JobLabel] != ""
		switch {
		case p.Labels[migrate.ComponentLabel] != migrate.Component, migrates && k.endless:
			k.serve(ctx, p)
		case !migrates || !k.hold:
			k.end(ctx, p, pods.Items)
		}
	}
}

func (k *kubelet) serve(ctx context.Context, p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	_ = k.c.Status().Update(ctx, p) // or with the next look
}

func (k *kubelet) end(ctx context.Context, p *corev1.Pod, all []corev1.Pod) {
	endings, count := &k.migrations, &k.runs
	if p.Labels[migrate.PreflightLabel] != "" {
		endings, count = &k.preflights, &k.checks
	} else if slices.ContainsFunc(all, func(o corev1.Pod) bool { return o.Labels["app"] == "mlflow" && o.DeletionTimestamp == nil }) && !k.seen[p.UID] {
		k.t.Errorf("%s migrates while the server runs", p.Name)
	}
	e := (*endings)[0]
	p.Status.Phase = corev1.PodSucceeded
	if e.code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "db-migrate", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: e.code, Message: e.message, FinishedAt: metav1.Now()}}}}
	if k.c.Status().Update(ctx, p) != nil || k.seen[p.UID] {
		return
	}
	k.seen[p.UID] = true
	*count++
	if len(*endings) > 1 {
		*endings = (*endings)[1:]
	}
}
