// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// placing is what an instance is looked for with.
type placing struct {
	exclude  []string
	lastUsed int64 // of the model, in milliseconds
	balanced bool
	extra    bool // for a copy more, because there is much to do
}

// candidates are the instances that could take a model now: those that are there, answer and stay.
func (m *Mesh) candidates(exclude []string) map[string]*store.Instance {
	out := map[string]*store.Instance{}
	m.instances.Each(func(id string, row store.Row[store.Instance]) bool {
		if id == m.set.Instance || slices.Contains(exclude, id) || row.Value.Shutdown {
			return true
		}
		if p := m.peers.get(id); p != nil && p.reachable() {
			out[id] = row.Value
		}
		return true
	})
	if !slices.Contains(exclude, m.set.Instance) && !m.draining.Load() && m.runtime.ready.Load() {
		out[m.set.Instance] = m.record()
	}
	return out
}

// constraints say which labels an instance must have, and which it should, for models of a type.
type constraints struct{ types map[string]constraint }

type constraint struct {
	Required  []string `json:"required"`
	Preferred []string `json:"preferred"`
}

const defaultType = "_default"

func parseConstraints(raw []byte) (*constraints, error) {
	out := &constraints{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return out, nil
	}
	if err := json.Unmarshal(raw, &out.types); err != nil {
		return nil, fmt.Errorf("the type constraints are no JSON as expected: %w", err)
	}
	return out, nil
}

// of finds the constraint of a type and the name that it stands under.
func (c *constraints) of(typ string) (string, constraint) {
	if found, ok := c.types[typ]; ok {
		return typ, found
	}
	if found, ok := c.types[defaultType]; ok {
		return defaultType, found
	}
	return typ, constraint{}
}

func (c constraint) allows(labels []string) bool { return hasAll(labels, c.Required) }

func hasAll(labels, wanted []string) bool {
	for _, label := range wanted {
		if !slices.Contains(labels, label) {
			return false
		}
	}
	return true
}

// noInstances is in words that controllers look for; not a letter of it may change.
func noInstances(name string, required []string) error {
	return status.Error(codes.FailedPrecondition, "There are no running instances that meet the label requirements of type "+name+": ["+strings.Join(required, ", ")+"]")
}

// nobodyFor says that no instance may have models of a type; nil when one may.
func (m *Mesh) nobodyFor(typ string) error {
	name, rule := m.constraints.Load().of(typ)
	if rule.allows(m.set.Labels) {
		return nil
	}
	found := false
	m.instances.Each(func(_ string, row store.Row[store.Instance]) bool {
		found = rule.allows(row.Value.Labels)
		return !found
	})
	if found {
		return nil
	}
	return noInstances(name, rule.Required)
}

// place chooses the instance that shall load a model.
func (m *Mesh) place(record *store.Model, how placing) (string, error) {
	if err := m.nobodyFor(record.Type()); err != nil {
		return "", err
	}
	_, rule := m.constraints.Load().of(record.Type())
	failures := m.failures(record)
	options := m.candidates(how.exclude)
	for id, instance := range options {
		failed := slices.ContainsFunc(failures, func(f store.Failure) bool { return f.Instance == id })
		if failed || !rule.allows(instance.Labels) {
			delete(options, id)
		}
	}
	if len(options) == 0 {
		if len(failures) > 0 {
			return "", status.Error(codes.Internal, "the model failed to load wherever it may be: "+failures[0].Message)
		}
		return "", status.Error(codes.Unavailable, "no instance can load the model now; those that may have it are starting, ending or do not answer")
	}
	if own, ok := options[m.set.Instance]; ok && how.balanced && !full(own) {
		return m.set.Instance, nil
	}
	return pick(options, rule), nil
}

func full(i *store.Instance) bool { return i.Capacity-i.Used < i.Capacity/20 }

// pick orders what is left and chooses among those that are about as good as the best, so that not everybody who asks at
// the same time chooses the same.
func pick(options map[string]*store.Instance, rule constraint) string {
	ids := slices.Sorted(maps.Keys(options))
	prefers := func(i *store.Instance) int {
		if len(rule.Preferred) > 0 && hasAll(i.Labels, rule.Preferred) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ids, func(a, b string) int {
		x, y := options[a], options[b]
		order := cmp.Or(cmp.Compare(truth(full(x)), truth(full(y))), cmp.Compare(prefers(x), prefers(y)))
		if order == 0 && full(x) {
			order = cmp.Compare(x.LRU, y.LRU)
		}
		return cmp.Or(order, cmp.Compare(x.Loading, y.Loading), cmp.Compare(y.Capacity-y.Used, x.Capacity-x.Used), cmp.Compare(x.Count, y.Count), cmp.Compare(x.RPM, y.RPM))
	})
	best, short := options[ids[0]], 1
	for _, id := range ids[1:] {
		if other := options[id]; full(other) == full(best) && prefers(other) == prefers(best) && other.Loading <= best.Loading &&
			(full(best) || 2*(other.Capacity-other.Used) >= best.Capacity-best.Used) && (!full(best) || other.LRU-best.LRU < 45_000) {
			short++
			continue
		}
		break
	}
	return ids[rand.IntN(short)] //nolint:gosec // nothing depends on it being hard to guess
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
