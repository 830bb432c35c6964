// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/modelplane/modelplane/internal/maas/enforce/recall"
)

// ClusterTokens shows tokens to the Kubernetes API server. What it says is believed for a moment: a token that was withdrawn
// is accepted so much longer.
type ClusterTokens struct {
	client    kubernetes.Interface
	audiences []string
	memo      *recall.Memory[Identity]
}

const (
	believeToken = 30 * time.Second
	believeNone  = 2 * time.Second
)

// NewClusterTokens accepts tokens for one of some audiences; for that of the API server itself if there are none.
func NewClusterTokens(client kubernetes.Interface, audiences []string) *ClusterTokens {
	return &ClusterTokens{client: client, audiences: audiences, memo: recall.New[Identity]()}
}

// Review is of Tokens.
func (c *ClusterTokens) Review(ctx context.Context, token string) (Identity, error) {
	return c.memo.Get(ctx, token, func(ctx context.Context) recall.Answer[Identity] {
		review, err := c.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: c.audiences},
		}, metav1.CreateOptions{})
		if err != nil {
			return recall.Answer[Identity]{Err: fmt.Errorf("ask the API server whose token it is: %w", err)}
		}
		user := review.Status.User
		if !review.Status.Authenticated || user.Username == "" || !c.isFor(review.Status.Audiences) {
			return recall.Answer[Identity]{Err: ErrUnknown, For: believeNone}
		}
		return recall.Answer[Identity]{Value: Identity{Username: user.Username, Groups: authenticated(user.Groups)}, Good: true, For: believeToken}
	})
}

// isFor tells whether a token is for us. An API server that knows nothing of audiences names none, and then has not checked.
func (c *ClusterTokens) isFor(audiences []string) bool {
	return len(c.audiences) == 0 || slices.ContainsFunc(audiences, func(a string) bool { return slices.Contains(c.audiences, a) })
}

const everybody = "system:authenticated"

// authenticated adds the group of all whom the cluster knows.
func authenticated(groups []string) []string {
	if slices.Contains(groups, everybody) {
		return groups
	}
	return append(slices.Clone(groups), everybody)
}
