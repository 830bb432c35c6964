// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"

	"github.com/modelplane/modelplane/internal/maas/enforce"
)

// ofCluster lets the cluster review the tokens that are not of an identity provider.
type ofCluster struct{ review Reviewer }

func (c ofCluster) Review(ctx context.Context, token string) (enforce.Identity, error) {
	who, err := c.review(ctx, token)
	switch {
	case err != nil:
		return enforce.Identity{}, err
	case who == nil:
		return enforce.Identity{}, enforce.ErrUnknown
	}
	return enforce.Identity{Username: who.Username, Groups: who.Groups}, nil
}

// reviewerOf knows the people of the cluster, and those of the identity provider if there is one. The internal routes and the list
// of tenants know only those of the cluster.
func reviewerOf(o enforce.OIDCOptions, cluster Reviewer) (Reviewer, error) {
	if o.Issuer == "" {
		return cluster, nil
	}
	tokens, err := o.Tokens(ofCluster{cluster})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, token string) (*Caller, error) {
		who, err := tokens.Review(ctx, token)
		if errors.Is(err, enforce.ErrUnknown) {
			return nil, nil //nolint:nilnil // nobody's
		}
		if err != nil {
			return nil, err
		}
		return &Caller{Username: who.Username, Groups: who.Groups}, nil
	}, nil
}
