// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"testing"
	"time"
)

// TestKeysAreMadeOnce: looks that come before the cluster has the Secret take the same pair; one that has it lets go of
// it; one that is due gets another, which vouches for the earlier.
func TestKeysAreMadeOnce(t *testing.T) {
	k, now, names := &Pairs{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), []string{"server.models.svc"}
	first, at, err := k.Take("uid", "server", now, names, Pair{})
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := k.Take("uid", "server", now.Add(time.Second), names, Pair{})
	if err != nil || !bytes.Equal(again.Key, first.Key) {
		t.Fatalf("a second key was made: %v", err)
	}
	if _, _, err := k.Take("uid", "server", now.Add(time.Minute), names, first); err != nil || len(k.made) != 0 {
		t.Errorf("a pair that the cluster has is still remembered: %v", err)
	}
	deleted, _, err := k.Take("uid", "server", now.Add(time.Hour), names, Pair{})
	if err != nil || bytes.Equal(deleted.Key, first.Key) {
		t.Errorf("a Secret that was deleted comes back with the same key: %v", err)
	}
	k = &Pairs{}
	next, _, err := k.Take("uid", "server", at.Add(time.Second), names, first)
	if err != nil || bytes.Equal(next.Key, first.Key) {
		t.Fatalf("it is not renewed when it is due: %v", err)
	}
	if !bytes.Contains(next.Roots, first.Roots) {
		t.Error("the earlier certificate is no longer vouched for while the server still has it")
	}
	still, _, err := k.Take("uid", "server", at.Add(2*time.Second), names, first)
	if err != nil || !bytes.Equal(still.Key, next.Key) {
		t.Errorf("another look renews it once more: %v", err)
	}
}
