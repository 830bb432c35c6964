// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Select finds the subscription that pays for a request. Its errors are of type *Error.
func (x *Index) Select(r Request) (Choice, error) {
	who := owners([]string{r.Username}, r.Groups)
	if len(who) == 0 {
		return Choice{}, &Error{BadRequest, "neither a username nor groups are given; one of them is needed to find a subscription"}
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	models := x.resolve(r.Model)
	if r.Subscription != "" {
		return x.explicit(r, who, models)
	}
	return x.best(r, who, models)
}

// resolve is what a name of a model can mean: nothing, one model, or several of one bare name.
func (x *Index) resolve(name string) []Model {
	if name == "" {
		return nil
	}
	if namespace, base, ok := strings.Cut(name, "/"); ok {
		m := Model{namespace, base}
		if x.names[base][m] > 0 {
			return []Model{m}
		}
	}
	if refs := x.aliases[name]; len(refs) > 0 {
		return []Model{refs[0].Model}
	}
	return slices.SortedFunc(maps.Keys(x.names[name]), func(a, b Model) int { return cmp.Compare(a.Namespace, b.Namespace) })
}

// explicit is the subscription that the caller asks for, if it is theirs and fits.
func (x *Index) explicit(r Request, who []string, models []Model) (Choice, error) {
	s, mine := x.find(r.Subscription, who)
	switch {
	case s == nil:
		return Choice{}, &Error{NotFound, fmt.Sprintf("there is no subscription %q; list yours at /v1/subscriptions", r.Subscription)}
	case !mine:
		return Choice{}, &Error{AccessDenied, fmt.Sprintf("subscription %q is not yours; list yours at /v1/subscriptions", r.Subscription)}
	case r.Model == "":
		return Choice{Subscription: s, Allowed: true}, nil
	}
	m, err := s.theOne(r.Model, models)
	if err != nil {
		return Choice{}, err
	}
	return x.choose(s, m, who)
}

// find is a subscription by its full or bare name. Of several with a bare name, one that the caller owns is meant.
func (x *Index) find(name string, who []string) (s *Subscription, mine bool) {
	if s := x.subscriptions[name]; s != nil {
		mine = s.isOwned(who)
		return s, mine
	}
	list := x.named[name]
	for _, s := range list {
		if s.isOwned(who) {
			return s, true
		}
	}
	if len(list) == 0 {
		return nil, false
	}
	return list[0], false
}

func (s *Subscription) isOwned(who []string) bool {
	for _, o := range who {
		name := o[len(userMark):]
		if strings.HasPrefix(o, userMark) && slices.Contains(s.Users, name) ||
			strings.HasPrefix(o, groupMark) && slices.ContainsFunc(s.Groups, func(g string) bool { return strings.TrimSpace(g) == name }) {
			return true
		}
	}
	return false
}

// theOne is the model that is meant in this subscription.
func (s *Subscription) theOne(name string, models []Model) (Model, error) {
	var found []Model
	for _, m := range models {
		if slices.ContainsFunc(s.Models, func(o SubscribedModel) bool { return o.Model == m }) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Model{}, &Error{ModelNotIncluded, fmt.Sprintf("subscription %q does not have model %q", s.Name, name)}
	}
	return Model{}, &Error{BadRequest, fmt.Sprintf("subscription %q has %d models with the name %q; ask for %s or another one with its namespace", s.Name, len(found), name, found[0])}
}

func (x *Index) choose(s *Subscription, m Model, who []string) (Choice, error) {
	if !s.WorksFor(m) {
		return Choice{}, &Error{ModelUnhealthy, fmt.Sprintf("subscription %q cannot serve model %q now: its phase is %s, or the limits of the model are not in force; ask its administrator to look at its status", s.Name, m, cmp.Or(s.Phase, "unknown"))}
	}
	return Choice{s, m, x.allowed(m, who)}, nil
}

func (x *Index) allowed(m Model, who []string) bool {
	return slices.ContainsFunc(who, func(o string) bool { return x.opened[owned{m, o}] > 0 })
}

// candidate is a subscription with the model that is meant in it.
type candidate struct {
	*Subscription
	model Model
}

// best is the first in order of all that the caller owns and that have the model. Every list is in order, so that only the
// heads are looked at; the second of each can share the priority of the first.
func (x *Index) best(r Request, who []string, models []Model) (Choice, error) {
	if r.Model == "" {
		models = []Model{{}}
	}
	var heads []candidate
	for _, m := range models {
		for _, o := range who {
			list := x.owned[owned{m, o}]
			for _, s := range list[:min(2, len(list))] {
				heads = append(heads, candidate{s, m})
			}
		}
	}
	if len(heads) == 0 {
		return Choice{}, none(r)
	}
	slices.SortFunc(heads, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(worksAs(b.Subscription, b.model), worksAs(a.Subscription, a.model)), compare(Model{}, a.Subscription, b.Subscription),
			cmp.Compare(a.model.Namespace, b.model.Namespace))
	})
	first := heads[0]
	if err := rivals(r, heads); err != nil {
		return Choice{}, err
	}
	if r.Model == "" {
		return Choice{Subscription: first.Subscription, Allowed: true}, nil
	}
	return x.choose(first.Subscription, first.model, who)
}

func none(r Request) error {
	if r.Model == "" {
		return &Error{NotFound, "no subscription is yours; ask an administrator for one"}
	}
	return &Error{NotFound, fmt.Sprintf("no subscription of yours has model %q; list yours at /v1/subscriptions", r.Model)}
}

// rivals tells of others that fit as well as the first: then nobody has said who pays, or which model is meant.
func rivals(r Request, heads []candidate) error {
	first := heads[0]
	if worksAs(first.Subscription, first.model) == 0 {
		return nil // none of them works, which is told instead
	}
	for _, c := range heads[1:] {
		switch {
		case c == first || worksAs(c.Subscription, c.model) == 0 || c.EffectivePriority() != first.EffectivePriority():
		case c.Subscription == first.Subscription:
			return &Error{BadRequest, fmt.Sprintf("subscription %q has several models with the name %q; ask for %s or another one with its namespace", c.Name, r.Model, first.model)}
		default:
			return &Error{MultipleSubscriptions, fmt.Sprintf("several of your subscriptions fit, among them %q and %q; name one in the header X-MaaS-Subscription", first.Name, c.Name)}
		}
	}
	return nil
}
