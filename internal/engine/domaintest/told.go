// SPDX-License-Identifier: Apache-2.0

package domaintest

import (
	"context"
	"errors"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

// Told waits for an event of a reason on an object, and returns what it says.
func (b *Bench) Told(t testing.TB, obj client.Object, reason string) string {
	t.Helper()
	note := ""
	testkit.Eventually(t, Patience, "an event "+reason, func() error {
		list := &eventsv1.EventList{}
		if err := b.C.List(context.Background(), list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == obj.GetUID() && e.Reason == reason {
				note = e.Note
				return nil
			}
		}
		return errors.New("nothing was said")
	})
	return note
}
