// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"bytes"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/certs"
)

// TestKeysAreMadeOnce: looks that come before the cluster has the Secret take the same pair; one that has it lets go of
// it; one that is due gets another, which vouches for the earlier.
func TestKeysAreMadeOnce(t *testing.T) {
	k, now, names := &keys{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), hosts("models")
	first, at, err := k.take("uid", now, names, certs.Pair{})
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := k.take("uid", now.Add(time.Second), names, certs.Pair{})
	if err != nil || !bytes.Equal(again.Key, first.Key) {
		t.Fatalf("a second key was made: %v", err)
	}
	if _, _, err := k.take("uid", now.Add(time.Minute), names, first); err != nil || len(k.made) != 0 {
		t.Errorf("a pair that the cluster has is still remembered: %v", err)
	}
	deleted, _, err := k.take("uid", now.Add(time.Hour), names, certs.Pair{})
	if err != nil || bytes.Equal(deleted.Key, first.Key) {
		t.Errorf("a Secret that was deleted comes back with the same key: %v", err)
	}
	k = &keys{}
	next, _, err := k.take("uid", at.Add(time.Second), names, first)
	if err != nil || bytes.Equal(next.Key, first.Key) {
		t.Fatalf("it is not renewed when it is due: %v", err)
	}
	if !bytes.Contains(next.Roots, first.Roots) {
		t.Error("the earlier certificate is no longer vouched for while the server still has it")
	}
	still, _, err := k.take("uid", at.Add(2*time.Second), names, first)
	if err != nil || !bytes.Equal(still.Key, next.Key) {
		t.Errorf("another look renews it once more: %v", err)
	}
}
