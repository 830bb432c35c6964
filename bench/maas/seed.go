// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/store"
)

const (
	tenant = "bench"
	models = 20 // that subscriptions are for
	// everybody is a group that owns all subscriptions, and staff the one to which the models are open.
	everybody, staff = "everybody", "staff"
)

// keyOf is the key of a number: of the usual length, and the same in each run.
func keyOf(n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "key %d of a bench", n))
	text := hex.EncodeToString(sum[:])
	return keys.Prefix + text[:16] + "_" + text[16:59]
}

// idOf is how that key is called.
func idOf(n int) string { return uuid.NewSHA1(uuid.Nil, fmt.Append(nil, n)).String() }

func subscriptionOf(n int) string { return fmt.Sprintf("sub-%05d", n) }

func teamOf(n int) string { return fmt.Sprintf("team-%05d", n) }

func modelOf(n int) string { return fmt.Sprintf("model-%02d", n%models) }

// owners is how many people have the keys.
const owners = 100_000

// columns that are filled; the others are as the store leaves them for a key that was never used.
var columns = []string{"id", "tenant", "username", "name", "user_groups", "subscription", "labels", "ephemeral", "status", "created_at", "expires_at", "key_hash"}

// seedKeys makes the tables by the store's own code, and fills them with keys for a number of subscriptions.
func seedKeys(ctx context.Context, url string, n, subscriptions int) error {
	made, err := store.Open(ctx, store.Config{URL: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := made.Close(); err != nil {
		return err
	}
	digester, err := keys.NewDigester(nil)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	now := time.Now()
	rows := pgx.CopyFromSlice(n, func(i int) ([]any, error) {
		key, err := keys.Parse(keyOf(i))
		if err != nil {
			return nil, err
		}
		var labels any
		if i%10 == 0 {
			labels = map[string]string{"team": teamOf(i % 1000)}
		}
		mine := i % subscriptions
		return []any{
			idOf(i), tenant, fmt.Sprintf("user-%06d", i%owners), fmt.Sprintf("key %d", i), []string{teamOf(mine), staff}, subscriptionOf(mine), labels,
			false, string(keys.Active), now.Add(-time.Duration(i) * time.Second), now.Add(30 * 24 * time.Hour), digester.Digest(key),
		}, nil
	})
	copied, err := conn.CopyFrom(ctx, pgx.Identifier{"api_keys"}, columns, rows)
	if err == nil && copied != int64(n) {
		err = fmt.Errorf("%d of %d keys are stored", copied, n)
	}
	if err == nil {
		_, err = conn.Exec(ctx, "VACUUM (ANALYZE) api_keys") // as the server does by itself in quiet hours
	}
	return err
}

// subscription of a number, as its controller leaves it.
func subscription(namespace string, n int) *v1alpha1.MaaSSubscription {
	s := &v1alpha1.MaaSSubscription{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: subscriptionOf(n), Annotations: map[string]string{
		"openshift.io/display-name": fmt.Sprintf("Subscription %d", n), "openshift.io/description": "of a team that pays for what it uses",
	}}}
	s.Spec.Priority = int32(n) //nolint:gosec // of some thousands
	s.Spec.Owner.Groups = []v1alpha1.GroupRef{{Name: teamOf(n)}, {Name: everybody}}
	s.Spec.TokenMetadata = &v1alpha1.BillingMetadata{OrganizationID: fmt.Sprintf("organization-%d", n%100), CostCenter: fmt.Sprint(n % 1000)}
	for _, m := range modelsOf(n) {
		s.Spec.ModelRefs = append(s.Spec.ModelRefs, v1alpha1.SubscribedModel{
			ModelRef: v1alpha1.ModelRef{Namespace: modelSpace, Name: m}, TokenRateLimits: []v1alpha1.TokenRateLimit{{Limit: 1_000_000_000, Window: "24h"}},
		})
	}
	return s
}

// modelsOf a subscription.
func modelsOf(n int) []string { return []string{modelOf(n), modelOf(n + 7), modelOf(n + 13)} }

// seedSubscriptions makes so many in a namespace, and a policy that opens the models.
func seedSubscriptions(ctx context.Context, c client.Client, namespace string, n int) error {
	policy := &v1alpha1.MaaSAuthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: staff}}
	policy.Spec.Subjects.Groups = []v1alpha1.GroupRef{{Name: staff}}
	for m := range models {
		policy.Spec.ModelRefs = append(policy.Spec.ModelRefs, v1alpha1.ModelRef{Namespace: modelSpace, Name: modelOf(m)})
	}
	if err := c.Create(ctx, policy); err != nil {
		return err
	}
	const workers = 8
	errs := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w; errs[w] == nil && i < n; i += workers {
				s := subscription(namespace, i)
				if errs[w] = c.Create(ctx, s); errs[w] != nil {
					return
				}
				s.Status.Phase = v1alpha1.PhaseActive
				errs[w] = c.Status().Update(ctx, s)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
