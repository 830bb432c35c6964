// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/modelplane/modelplane/internal/kube"
)

// Every kind has these without asking for them.
var (
	reconciles = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modelplane_reconciles_total",
		Help: "Reconciles by kind, controller and outcome: ready, progressing, invalid, waiting, failed, deleted.",
	}, []string{"kind", "controller", "outcome"})
	childActions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modelplane_children_total",
		Help: "What was done about children: apply, skip, prune, repair, replace, adopt, inherit.",
	}, []string{"kind", "child", "action"})
	contestedRepairs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modelplane_contested_repairs_total",
		Help: "Repairs of what the same manager undoes again and again, by child (or Status) and manager.",
	}, []string{"kind", "child", "manager"})
	readyAfter = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "modelplane_ready_seconds",
		Help:    "Time from a change of an object to its being ready.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800},
	}, []string{"kind"})
	conditionCounts = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "modelplane_conditions",
		Help: "How many objects of a kind have a condition in a status.",
	}, []string{"kind", "condition", "status"})
)

func init() {
	metrics.Registry.MustRegister(reconciles, childActions, contestedRepairs, readyAfter, conditionCounts)
}

type childMetrics struct{ kind string }

func (m *childMetrics) count(child schema.GroupVersionKind, action string) {
	childActions.WithLabelValues(m.kind, child.Kind, action).Inc()
}

var rivalNames = managerNames{known: map[string]bool{}}

func countContested(kind, child, manager string) {
	contestedRepairs.WithLabelValues(kind, child, rivalNames.bounded(manager)).Inc()
}

// objectMetrics follows the conditions and the readiness of a kind's objects.
type objectMetrics struct {
	kind string

	mu   sync.Mutex
	seen map[types.NamespacedName]*objectState
}

type objectState struct {
	conditions map[[2]string]struct{} // type and status
	generation int64
	since      time.Time // of the change that is not ready yet; zero when ready
}

func newObjectMetrics(kind string) *objectMetrics {
	return &objectMetrics{kind: kind, seen: map[types.NamespacedName]*objectState{}}
}

// changed notes that an object asks for something new. An object met for the
// first time counts from its creation, unless it was ready already.
func (m *objectMetrics) changed(who types.NamespacedName, generation int64, created, now time.Time, ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.seen[who]
	switch {
	case !known:
		s = &objectState{generation: generation, conditions: map[[2]string]struct{}{}}
		if !ready {
			s.since = created
		}
		m.seen[who] = s
	case s.generation != generation:
		s.generation, s.since = generation, now
	}
}

func (m *objectMetrics) observe(who types.NamespacedName, conditions kube.Conditions, ready bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[who]
	if s == nil {
		return
	}
	next := make(map[[2]string]struct{}, len(conditions))
	for _, c := range conditions {
		next[[2]string{c.Type, string(c.Status)}] = struct{}{}
	}
	m.move(s.conditions, next)
	s.conditions = next
	if ready && !s.since.IsZero() {
		readyAfter.WithLabelValues(m.kind).Observe(now.Sub(s.since).Seconds())
		s.since = time.Time{}
	}
}

func (m *objectMetrics) forget(who types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen[who]; s != nil {
		m.move(s.conditions, nil)
		delete(m.seen, who)
	}
}

func (m *objectMetrics) move(before, after map[[2]string]struct{}) {
	for c := range before {
		if _, still := after[c]; !still {
			conditionCounts.WithLabelValues(m.kind, c[0], c[1]).Dec()
		}
	}
	for c := range after {
		if _, already := before[c]; !already {
			conditionCounts.WithLabelValues(m.kind, c[0], c[1]).Inc()
		}
	}
}
