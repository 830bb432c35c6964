// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/placement"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// placing is what an instance is looked for with.
type placing struct {
	exclude  []string
	lastUsed int64 // of the model, in milliseconds; in the future for a copy more of one that is busy
	balanced bool
}

// candidates are the instances that could take a model now: those that are there, answer and stay.
func (m *Mesh) candidates(exclude []string) []*placement.Instance {
	var out []*placement.Instance
	m.instances.Each(func(id string, row store.Row[store.Instance]) bool {
		if id == m.set.Instance || slices.Contains(exclude, id) || row.Value.Shutdown {
			return true
		}
		if p := m.peers.get(id); p != nil && p.reachable() {
			out = append(out, placeable(id, row.Value))
		}
		return true
	})
	if !slices.Contains(exclude, m.set.Instance) && !m.draining.Load() && m.runtime.ready.Load() {
		out = append(out, placeable(m.set.Instance, m.record()))
	}
	return out
}

// placeable is a record as placement sees it.
func placeable(id string, i *store.Instance) *placement.Instance {
	return &placement.Instance{
		ID: id, LRUTime: i.LRU, Count: i.Count, Capacity: i.Capacity, Used: i.Used, LoadThreads: i.LoadThreads, LoadsInProgress: i.Loading,
		RPM: i.RPM, Shutdown: i.Shutdown, StartTime: i.Started, Version: i.Version, Location: i.Location, Zone: i.Zone, Labels: i.Labels,
	}
}

// all are the instances that etcd knows, and this one.
func (m *Mesh) all() []*placement.Instance {
	var out []*placement.Instance
	m.instances.Each(func(id string, row store.Row[store.Instance]) bool {
		if id != m.set.Instance {
			out = append(out, placeable(id, row.Value))
		}
		return true
	})
	return append(out, placeable(m.set.Instance, m.record()))
}

func (m *Mesh) view(typ string) placement.View {
	v := placement.View{Now: m.now().UnixMilli(), MinSpace: m.cache().minSpace, ChurnAge: m.minChurn(typ)}
	if replaced := m.replaced.Load(); replaced != nil {
		v.Replaced = *replaced
	}
	return v
}

// nobodyFor says that no instance may have models of a type, in words that controllers look for; nil when one may.
func (m *Mesh) nobodyFor(typ string) error {
	rules := m.constraints.Load()
	if rules.Allows(typ, m.set.Labels) {
		return nil
	}
	found := false
	m.instances.Each(func(_ string, row store.Row[store.Instance]) bool {
		found = rules.Allows(typ, row.Value.Labels)
		return !found
	})
	if found {
		return nil
	}
	return &unavailable{reasonNoInstance, 0, status.Error(codes.FailedPrecondition, rules.NoInstances(typ))}
}

// place chooses the instance that shall load a model.
func (m *Mesh) place(record *store.Model, how placing) (string, error) {
	typ := record.Type()
	if err := m.nobodyFor(typ); err != nil {
		return "", err
	}
	failures := m.failures(record)
	choose := func(exclude []string) (*placement.Instance, bool) {
		return m.view(typ).Choose(m.candidates(exclude), *m.constraints.Load(), placement.Wish{
			Type: typ, LastUsed: how.lastUsed, Self: m.set.Instance, Balanced: how.balanced,
			Excluded: func(id string) bool {
				return slices.ContainsFunc(failures, func(f store.Failure) bool { return f.Instance == id })
			},
		}, rand.IntN)
	}
	var chosen *placement.Instance
	ok := false
	if record.Kills > 0 { // rather not where it has cost others their runtime
		chosen, ok = choose(append(slices.Clip(how.exclude), record.KilledIn))
	}
	if !ok {
		chosen, ok = choose(how.exclude)
	}
	switch {
	case ok:
		return chosen.ID, nil
	case m.draining.Load() && m.runtime.ready.Load() && !m.others(typ) && !slices.Contains(how.exclude, m.set.Instance) && m.constraints.Load().Allows(typ, m.set.Labels):
		return m.set.Instance, nil // whoever still calls has nobody else
	case len(failures) > 0:
		return "", m.refuseFailed(record, failures, "the model failed to load wherever it may be: "+failures[0].Message)
	}
	return "", status.Error(codes.Unavailable, "no instance can load the model now; those that may have it are starting, ending or do not answer")
}

// placeFor is place for a call, which rather waits a little than fails because a runtime or an instance is just coming back.
func (m *Mesh) placeFor(ctx context.Context, c *call, record *store.Model) (string, error) {
	const most, pause = 5 * time.Second, 50 * time.Millisecond
	deadline := m.now().Add(most)
	for {
		target, err := m.place(record, placing{exclude: c.excluded, lastUsed: m.now().UnixMilli(), balanced: c.balanced})
		if status.Code(err) != codes.Unavailable || m.now().After(deadline) {
			return target, err
		}
		o, ours := asOutcome(c.last)
		if ours && (o.kind == outcomeRefused || o.kind == outcomeFailed) {
			return "", err
		}
		wait(ctx, pause)
		if ctx.Err() != nil {
			return "", status.FromContextError(ctx.Err()).Err()
		}
		if ours && o.kind == outcomeRuntime && m.runtime.ready.Load() { // whoever was asked in vain because his runtime was away has it back
			c.excluded = slices.DeleteFunc(c.excluded, func(id string) bool { return id == m.set.Instance })
		}
	}
}

// others tells whether another instance may have models of a type and is there to stay.
func (m *Mesh) others(typ string) bool {
	rules := m.constraints.Load()
	return slices.ContainsFunc(m.candidates([]string{m.set.Instance}), func(i *placement.Instance) bool { return rules.Allows(typ, i.Labels) })
}

// eligible is how many instances may have a model.
func (m *Mesh) eligible(record *store.Model) int {
	return placement.Sum(m.candidates(nil), *m.constraints.Load(), record.Type()).Instances
}

// short tells whether the instances that may have a model have little memory left.
func (m *Mesh) short(typ string) bool {
	const scarce = 0.05
	return placement.Sum(m.all(), *m.constraints.Load(), typ).FreeShare() <= scarce
}

// versionNumber makes a version comparable: 1.2.3 is 1002003. One that is none is 0.
func versionNumber(text string) int64 {
	var major, minor, patch int64
	if _, err := fmt.Sscanf(text, "v%d.%d.%d", &major, &minor, &patch); err != nil {
		return 0
	}
	return major*1_000_000 + minor*1000 + patch
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
