// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRenew: only what has to is made anew.
func TestRenew(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts := []string{"etcd", "127.0.0.1"}
	stored, err := Renew(nil, now, hosts)
	if err != nil {
		t.Fatal(err)
	}
	members := []string{"peer.crt", "peer.key", "server.crt", "server.key"}
	for _, c := range []struct {
		name  string
		later time.Duration
		hosts []string
		alter func(map[string][]byte)
		want  []string
	}{
		{"the next day", 24 * time.Hour, hosts, nil, nil},
		{"near the end", 250 * 24 * time.Hour, hosts, nil, members},
		{"another host", 0, append(hosts, "etcd-3"), nil, members},
		{"a key is lost", 0, hosts, func(s map[string][]byte) { delete(s, "client.key") }, []string{"client.crt", "client.key"}},
		{"the key of another", 0, hosts, func(s map[string][]byte) { s["client.key"] = s["peer.key"] }, []string{"client.crt", "client.key"}},
		{"everything is lost", 0, hosts, func(s map[string][]byte) { clear(s) }, append([]string{"ca.crt", "ca.key", "client.crt", "client.key"}, members...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			have := maps.Clone(stored)
			if c.alter != nil {
				c.alter(have)
			}
			changes, err := Renew(have, now.Add(c.later), c.hosts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(changes))); diff != "" {
				t.Error(diff)
			}
		})
	}
	broken := maps.Clone(stored)
	broken["ca.key"] = []byte("x")
	if _, err := Renew(broken, now, hosts); err == nil {
		t.Error("another authority was made behind the back of those who trust the first")
	}
}
