// SPDX-License-Identifier: Apache-2.0

package activation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	good := Settings{Metric: RPS, Target: 10, Limit: 4, Min: 0, Max: 3, IdleSeconds: 60, Hosts: []string{"iris-team.example.com"}}
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"as it was written":    {good.Encode(), true},
		"no JSON":              {"{", false},
		"another metric":       {`{"metric":"cpu","target":1,"max":1}`, false},
		"nothing to aim for":   {`{"metric":"rps","max":1}`, false},
		"no pod ever":          {`{"metric":"rps","target":1}`, false},
		"more least than most": {`{"metric":"rps","target":1,"min":2,"max":1}`, false},
		"a limit below none":   {`{"metric":"rps","target":1,"max":1,"limit":-1}`, false},
		"idle for ever":        {`{"metric":"rps","target":1,"max":1,"idleSeconds":99999999}`, false},
		"an empty host":        {`{"metric":"rps","target":1,"max":1,"hosts":[""]}`, false},
	} {
		if _, err := Decode(c.text); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := Decode(good.Encode()); err != nil || !cmp.Equal(good, got) {
		t.Errorf("%v: %s", err, cmp.Diff(good, got))
	}
}

// TestFit: what fits is understood, and what does not is counted.
func TestFit(t *testing.T) {
	for _, c := range []struct{ hosts, length, left int }{{0, 0, 0}, {99, 60, 0}, {100, 60, 0}, {MostHosts, 150, 0}, {MostHosts + 3, 20, 3}, {MostHosts, 253, 366}} {
		var hosts []string
		for range c.hosts {
			hosts = append(hosts, strings.Repeat("a", c.length))
		}
		s := Settings{Metric: RPS, Target: 10, Max: 3, Key: KeyOf("uid", "iris-predictor")}
		if left := s.Fit(hosts, ""); left != c.left || len(s.Hosts) != c.hosts-left {
			t.Errorf("%d hosts of %d: %d are left out, %d taken", c.hosts, c.length, left, len(s.Hosts))
		}
		if got, err := Decode(s.Encode()); err != nil || !cmp.Equal(s, got) {
			t.Errorf("%d hosts of %d: %v", c.hosts, c.length, err)
		}
		s.Fit(hosts, "10.96.0.9")
		if got, err := Decode(s.Encode()); err != nil || !cmp.Equal(s, got) || got.Hosts[len(got.Hosts)-1] != "10.96.0.9" {
			t.Errorf("%d hosts of %d and an address: %v", c.hosts, c.length, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"metric":"rps","target":1,"max":1}`)
	f.Add(`{"metric":"concurrency","target":1,"min":0,"max":2,"limit":1,"idleSeconds":3,"hosts":["a.b"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Decode(text)
		if err != nil {
			return
		}
		if again, err := Decode(s.Encode()); err != nil || !cmp.Equal(s, again) {
			t.Errorf("what was read cannot be read again: %v\n%s", err, cmp.Diff(s, again))
		}
	})
}
