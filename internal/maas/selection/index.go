// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Index of all subscriptions, auth policies and model refs. Its methods may be called at the same time.
type Index struct {
	mu sync.RWMutex

	subscriptions map[string]*Subscription   // by namespace/name
	named         map[string][]*Subscription // by bare name, in order
	owned         map[owned][]*Subscription  // in order

	policies map[string]*AuthPolicy // by namespace/name
	opened   map[owned]int          // how many policies open a model to somebody

	refs    map[Model]*ModelRef
	aliases map[string][]*ModelRef // the oldest first
	// names are the models that have a bare name, and how many refs and subscriptions speak of each.
	names map[string]map[Model]int
}

// owned is what belongs to one user or group: all subscriptions (no model), or those that have a model.
type owned struct {
	model Model
	owner string // user or group with its mark
}

const userMark, groupMark = "u:", "g:"

// NewIndex is empty.
func NewIndex() *Index {
	return &Index{
		subscriptions: map[string]*Subscription{}, named: map[string][]*Subscription{}, owned: map[owned][]*Subscription{},
		policies: map[string]*AuthPolicy{}, opened: map[owned]int{},
		refs: map[Model]*ModelRef{}, aliases: map[string][]*ModelRef{}, names: map[string]map[Model]int{},
	}
}

// owners are marked, each once.
func owners(users, groups []string) []string {
	out := make([]string, 0, len(users)+len(groups))
	for _, u := range users {
		if u != "" {
			out = append(out, userMark+u)
		}
	}
	for _, g := range groups {
		if g = strings.TrimSpace(g); g != "" {
			out = append(out, groupMark+g)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// models are those of a subscription, each once, and the one without a name that stands for all.
func (s *Subscription) models() []Model {
	out := make([]Model, 1, len(s.Models)+1)
	for _, m := range s.Models {
		if !slices.Contains(out, m.Model) {
			out = append(out, m.Model)
		}
	}
	return out
}

// PutSubscription adds one or replaces the one of the same name. The index keeps it: change a copy.
func (x *Index) PutSubscription(s *Subscription) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropSubscription(s.Key())
	x.subscriptions[s.Key()] = s
	x.named[s.Name] = inOrder(x.named[s.Name], s, byNamespace)
	for _, m := range s.models() {
		for _, o := range owners(s.Users, s.Groups) {
			at := owned{m, o}
			x.owned[at] = inOrder(x.owned[at], s, func(a, b *Subscription) int { return compare(m, a, b) })
		}
		if m != (Model{}) {
			x.name(m, 1)
		}
	}
}

// DeleteSubscription forgets one.
func (x *Index) DeleteSubscription(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropSubscription(namespace + "/" + name)
}

func (x *Index) dropSubscription(key string) {
	s, ok := x.subscriptions[key]
	if !ok {
		return
	}
	delete(x.subscriptions, key)
	drop(x.named, s.Name, s)
	for _, m := range s.models() {
		for _, o := range owners(s.Users, s.Groups) {
			drop(x.owned, owned{m, o}, s)
		}
		if m != (Model{}) {
			x.name(m, -1)
		}
	}
}

// compare orders subscriptions for a model: what works first, then by priority, limit and name. Without a model it is the
// subscription as a whole that works or not.
func compare(m Model, a, b *Subscription) int {
	return cmp.Or(
		cmp.Compare(worksAs(b, m), worksAs(a, m)),
		cmp.Compare(b.EffectivePriority(), a.EffectivePriority()),
		cmp.Compare(b.largestLimit(), a.largestLimit()),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Namespace, b.Namespace),
	)
}

func worksAs(s *Subscription, m Model) int {
	if m == (Model{}) && s.Works() || m != (Model{}) && s.WorksFor(m) {
		return 1
	}
	return 0
}

func byNamespace(a, b *Subscription) int { return cmp.Compare(a.Namespace, b.Namespace) }

func inOrder[T any](list []*T, v *T, compare func(a, b *T) int) []*T {
	i, _ := slices.BinarySearchFunc(list, v, compare)
	return slices.Insert(list, i, v)
}

// drop takes a value out of a list, and the list out of the map when nothing is left.
func drop[K comparable, T any](lists map[K][]*T, key K, v *T) {
	list := lists[key]
	if i := slices.Index(list, v); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = list
}

// name counts who speaks of a model by its name.
func (x *Index) name(m Model, n int) {
	at := x.names[m.Name]
	if at == nil {
		at = map[Model]int{}
		x.names[m.Name] = at
	}
	if at[m] += n; at[m] <= 0 {
		delete(at, m)
	}
	if len(at) == 0 {
		delete(x.names, m.Name)
	}
}

// PutAuthPolicy adds one or replaces the one of the same name.
func (x *Index) PutAuthPolicy(p *AuthPolicy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := p.Namespace + "/" + p.Name
	x.dropPolicy(key)
	x.policies[key] = p
	x.open(p, 1)
}

// DeleteAuthPolicy forgets one.
func (x *Index) DeleteAuthPolicy(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropPolicy(namespace + "/" + name)
}

func (x *Index) dropPolicy(key string) {
	if p, ok := x.policies[key]; ok {
		delete(x.policies, key)
		x.open(p, -1)
	}
}

func (x *Index) open(p *AuthPolicy, n int) {
	if !p.Deleted.IsZero() {
		return
	}
	for _, m := range p.Models {
		for _, o := range owners(p.Users, p.Groups) {
			at := owned{m, o}
			if x.opened[at] += n; x.opened[at] == 0 {
				delete(x.opened, at)
			}
		}
	}
}

// PutModelRef adds one or replaces the one of the same name.
func (x *Index) PutModelRef(r *ModelRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropRef(r.Model)
	x.refs[r.Model] = r
	x.name(r.Model, 1)
	if r.Alias != "" {
		x.aliases[r.Alias] = inOrder(x.aliases[r.Alias], r, older)
	}
}

// DeleteModelRef forgets one.
func (x *Index) DeleteModelRef(m Model) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropRef(m)
}

func (x *Index) dropRef(m Model) {
	r, ok := x.refs[m]
	if !ok {
		return
	}
	delete(x.refs, m)
	x.name(m, -1)
	drop(x.aliases, r.Alias, r)
}

func older(a, b *ModelRef) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
