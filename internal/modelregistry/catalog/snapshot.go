// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog/sources"
)

// snapshot is everything that is shown, as it was at one moment. It is never changed: whoever has it may read it as long as
// he likes, and the next one takes its place at once.
type snapshot struct {
	sources []sourceState
	labels  []sources.Label
	assets  map[*entry.Kind]*assets
}

// sourceState is a source and what became of it.
type sourceState struct {
	sources.Source
	Status string
	// Problem is empty if all is well.
	Problem string
}

// States of a source.
const (
	available = "available"
	partially = "partially-available"
	failing   = "error"
	disabled  = "disabled"
)

// assets are the entries of one kind, in the order of their names.
type assets struct {
	kind    *entry.Kind
	entries []*entry.Entry
	byID    map[int64]*entry.Entry
	byName  map[[2]string]*entry.Entry
	// options and queries cost a walk through all entries, and are asked for seldom.
	options func() map[string]entry.Option
	queries map[string]sources.Query
}

func newSnapshot(states []sourceState, entries map[*entry.Kind][]*entry.Entry, merged sources.Merged) *snapshot {
	slices.SortFunc(states, func(a, b sourceState) int { return strings.Compare(a.ID, b.ID) })
	out := &snapshot{sources: states, labels: merged.Labels, assets: map[*entry.Kind]*assets{}}
	for _, kind := range entry.Kinds {
		out.assets[kind] = newAssets(kind, entries[kind], merged.Queries)
	}
	return out
}

func newAssets(kind *entry.Kind, entries []*entry.Entry, queries map[string]sources.Query) *assets {
	slices.SortFunc(entries, func(a, b *entry.Entry) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	out := &assets{
		kind: kind, entries: entries, byID: make(map[int64]*entry.Entry, len(entries)), byName: make(map[[2]string]*entry.Entry, len(entries)),
		options: sync.OnceValue(func() map[string]entry.Option { return entry.Options(entries) }),
		queries: map[string]sources.Query{},
	}
	for _, e := range entries {
		out.byID[e.ID], out.byName[[2]string{e.Source, e.Name}] = e, e
	}
	for name, q := range queries {
		if q.Asset == kind.Asset {
			out.queries[name] = q
		}
	}
	return out
}

// labelled are the sources of a kind with one of the labels; the word null stands for sources without any.
func (s *snapshot) labelled(kind *entry.Kind, labels []string) map[string]bool {
	out := map[string]bool{}
	for _, state := range s.sources {
		if state.Kind != kind {
			continue
		}
		if len(state.Labels) == 0 && slices.Contains(labels, "null") ||
			slices.ContainsFunc(state.Labels, func(l string) bool { return slices.Contains(labels, l) }) {
			out[state.ID] = true
		}
	}
	return out
}
