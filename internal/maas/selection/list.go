// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"fmt"
	"slices"
)

// Default is the subscription of a key for which the client names none: the first in order of those that work.
func (x *Index) Default(username string, groups []string) (*Subscription, error) {
	all := x.Accessible(username, groups)
	switch {
	case len(all) == 0:
		return nil, none(Request{})
	case !all[0].Works():
		return nil, &Error{ModelUnhealthy, fmt.Sprintf("none of your subscriptions works now; the first of them, %q, is in phase %q: ask its administrator to look at its status", all[0].Name, all[0].Phase)}
	}
	return all[0], nil
}

// Accessible are all subscriptions of a caller in order, those last that do not work.
func (x *Index) Accessible(username string, groups []string) []*Subscription {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.accessible(owners([]string{username}, groups), Model{})
}

// accessible are the subscriptions of some owners that have a model, or all.
func (x *Index) accessible(who []string, m Model) []*Subscription {
	var out []*Subscription
	for _, o := range who {
		out = append(out, x.owned[owned{m, o}]...)
	}
	slices.SortFunc(out, func(a, b *Subscription) int { return compare(m, a, b) })
	return slices.Compact(out)
}

// WithModel are those of them that have a model and work for it, with the model that is meant in each.
func (x *Index) WithModel(username string, groups []string, model string) []Choice {
	x.mu.RLock()
	defer x.mu.RUnlock()
	who := owners([]string{username}, groups)
	var out []Choice
	for _, m := range x.resolve(model) {
		for _, s := range x.accessible(who, m) {
			if s.WorksFor(m) {
				out = append(out, Choice{s, m, x.allowed(m, who)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Choice) int { return compare(Model{}, a.Subscription, b.Subscription) })
	return out
}

// Allowed tells whether an auth policy opens a model to a caller.
func (x *Index) Allowed(username string, groups []string, m Model) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.allowed(m, owners([]string{username}, groups))
}

// ModelRef is the published model of a name, nil if there is none.
func (x *Index) ModelRef(m Model) *ModelRef {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.refs[m]
}

// Sizes are for metrics: how many subscriptions, auth policies and model refs there are.
func (x *Index) Sizes() (subscriptions, policies, refs int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.subscriptions), len(x.policies), len(x.refs)
}
