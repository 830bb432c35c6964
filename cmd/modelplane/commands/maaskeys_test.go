// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/store"
)

// TestMaaSKeys: the keys of one tenant are revoked, and those of another are not.
func TestMaaSKeys(t *testing.T) {
	url := "sqlite://" + filepath.Join(t.TempDir(), "keys.db")
	s, err := store.Open(t.Context(), store.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, r := range []*keys.Record{
		{ID: "a", Tenant: "red", Username: "me", Name: "a", Digest: "1", Stored: keys.Active, Groups: []string{}, Subscription: "s", Created: now},
		{ID: "b", Tenant: "blue", Username: "me", Name: "b", Digest: "2", Stored: keys.Active, Groups: []string{}, Subscription: "s", Created: now},
	} {
		if err := s.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(keysDatabase, url)
	for _, test := range []struct{ verb, tenant, said string }{{"revoke", "red", "1 keys\n"}, {"revoke", "red", "0 keys\n"}, {"clean-up", "blue", "0 keys\n"}} {
		c := newMaaSKeysCommand()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&out)
		c.SetArgs([]string{test.verb, "--tenant", test.tenant})
		if err := c.ExecuteContext(t.Context()); err != nil || out.String() != test.said {
			t.Errorf("%s %s: %v, %q", test.verb, test.tenant, err, out.String())
		}
	}
	if s, err = store.Open(t.Context(), store.Config{URL: url}); err != nil {
		t.Fatal(err)
	}
	other, err := s.CountActive(t.Context(), store.Scope{Tenant: "blue"}, now)
	if err != nil || other != 1 {
		t.Errorf("%d active keys of the other tenant, %v", other, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestMaaSKeysNeedATenant(t *testing.T) {
	c := newMaaSKeysCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"revoke"})
	if err := c.ExecuteContext(t.Context()); err == nil {
		t.Error("the keys of nobody in particular are revoked")
	}
}
