// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelplane/modelplane/internal/maas/quota"
	"github.com/modelplane/modelplane/internal/maas/selection"
)

// ErrNotRead is that subscriptions and policies have not all been seen yet.
var ErrNotRead = errors.New("subscriptions are not read yet")

// ChosenBy lets an index choose, once it has seen everything.
func ChosenBy(x *selection.Index, synced func() bool) Selector { return chosenBy{x, synced} }

type chosenBy struct {
	index  *selection.Index
	synced func() bool
}

func (c chosenBy) Select(_ context.Context, q Question) (Selection, error) {
	if !c.synced() {
		return Selection{}, ErrNotRead
	}
	choice, err := c.index.Select(selection.Request{Username: q.Username, Groups: q.Groups, Subscription: q.Subscription, Model: q.Model})
	if e, ok := errors.AsType[*selection.Error](err); ok && e.Code != selection.InternalError {
		return Selection{}, &Denial{string(e.Code), e.Message}
	}
	if err != nil {
		return Selection{}, err
	}
	s := choice.Subscription
	limits, err := limitsOn(s, choice.Model)
	if err != nil {
		return Selection{}, err
	}
	return Selection{
		Namespace: s.Namespace, Name: s.Name, Model: choice.Model.String(), Limits: limits, Allowed: choice.Allowed,
		OrganizationID: s.OrganizationID, CostCenter: s.CostCenter,
	}, nil
}

// limitsOn are all that a subscription has for a model, also where it names it more than once. One that cannot be read
// refuses: to leave it out would be to lift it.
func limitsOn(s *selection.Subscription, m selection.Model) ([]quota.Limit, error) {
	var out []quota.Limit
	for i := range s.Models {
		if s.Models[i].Model != m {
			continue
		}
		for _, l := range s.Models[i].Limits {
			window, err := quota.ParseWindow(l.Window)
			if err != nil {
				return nil, fmt.Errorf("limit of %s on %s: %w", s.Key(), m, err)
			}
			out = append(out, quota.Limit{Tokens: l.Tokens, Window: window})
		}
	}
	return out, nil
}
