// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts = []string{"webhook.system.svc", "127.0.0.1"}
)

// walk takes steps as the keeper does, at one moment, until nothing is due. Trust is taken for confirmed.
func walk(t *testing.T, s state, now time.Time, l Lifetimes) (state, []step, time.Time) {
	t.Helper()
	var taken []step
	for range maxSteps {
		due, at := s.next(now, l, hosts)
		if due == stepNone {
			return s, taken, at
		}
		taken = append(taken, due)
		s = must(t, s, due, now, l)
	}
	t.Fatalf("no end after %v", taken)
	return s, nil, now
}

func must(t *testing.T, s state, due step, now time.Time, l Lifetimes) state {
	t.Helper()
	var err error
	switch due {
	case stepReplace:
		s, err = s.replaceAuthority(now, l)
	case stepTrust:
		s.trusted = now
	case stepIssue:
		s, err = s.issue(now, l, hosts)
	case stepServe:
		s.served = now
	case stepRetire:
		s = s.retire(now, l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// through writes the state and reads it back, as between any two steps of real replicas.
func through(t *testing.T, s state, now time.Time) state {
	t.Helper()
	data, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := decode(data, now)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLifeOfTenYears(t *testing.T) {
	l := Lifetimes{}.withDefaults()
	s, taken, at := walk(t, state{}, begin, l)
	if diff := cmp.Diff([]step{stepReplace, stepTrust, stepIssue}, taken); diff != "" {
		t.Fatalf("the first steps differ (-want +got):\n%s", diff)
	}
	counts := map[step]int{}
	for now := at; now.Before(begin.AddDate(10, 0, 0)); now = at {
		if s = through(t, s, now); s.serving == nil {
			t.Fatalf("at %s nothing usable is being served", now)
		}
		if !now.Before(s.serving.Leaf.NotAfter.Add(-20 * 24 * time.Hour)) {
			t.Fatalf("at %s the serving certificate ends at %s already", now, s.serving.Leaf.NotAfter)
		}
		trusted := s.roots
		s, taken, at = walk(t, s, now, l)
		for _, done := range taken {
			counts[done]++
		}
		if !at.After(now) {
			t.Fatalf("at %s the next look is at %s", now, at)
		}
		// Whatever changed at this moment, the API server still has the roots from before.
		if issuerOf(s.serving.Leaf, trusted, now) == nil {
			t.Fatalf("at %s a certificate is served that was not trusted before", now)
		}
		if len(s.roots) > 2 {
			t.Fatalf("at %s there are %d roots", now, len(s.roots))
		}
	}
	// Ten years of authorities that are replaced every eight months, and of certificates renewed every two.
	for done, least := range map[step]int{stepReplace: 14, stepTrust: 14, stepServe: 14, stepRetire: 14, stepIssue: 60} {
		if counts[done] < least || counts[done] > least+15 {
			t.Errorf("%s happened %d times, want about %d", done, counts[done], least)
		}
	}
}

func TestNext(t *testing.T) {
	l := Lifetimes{}.withDefaults()
	steady, _, _ := walk(t, state{}, begin, l)
	renewal := begin.Add(l.Authority * 2 / 3)
	announced := must(t, steady, stepReplace, renewal, l)
	confirmed := must(t, announced, stepTrust, renewal, l)
	issued := must(t, confirmed, stepIssue, renewal.Add(l.Settle), l)
	late := renewal.Add(l.Settle + time.Hour) // the write of the certificate took that long
	served := must(t, issued, stepServe, late, l)
	withoutServing := func(s state) state { s.serving = nil; return s }

	for _, c := range []struct {
		name  string
		state state
		now   time.Time
		hosts []string
		want  step
		at    time.Time
	}{
		{name: "nothing there", now: begin, want: stepReplace, at: begin},
		{name: "steady", state: steady, now: begin, at: begin.Add(l.Serving * 2 / 3)},
		{name: "serving certificate due", state: steady, now: begin.Add(l.Serving * 2 / 3), want: stepIssue,
			at: begin.Add(l.Serving * 2 / 3)},
		{name: "a new name", state: steady, now: begin, hosts: []string{"elsewhere"}, want: stepIssue, at: begin},
		{name: "authority due", state: steady, now: renewal, want: stepReplace, at: renewal},
		{name: "not confirmed", state: announced, now: renewal, want: stepTrust, at: renewal},
		{name: "settling", state: through(t, confirmed, begin), now: renewal, at: renewal.Add(l.Settle)},
		{name: "a new name while settling", state: confirmed, now: renewal, hosts: []string{"elsewhere"},
			at: renewal.Add(l.Settle)},
		{name: "settled", state: confirmed, now: renewal.Add(l.Settle), want: stepIssue, at: renewal.Add(l.Settle)},
		{name: "nothing to serve meanwhile", state: withoutServing(confirmed), now: renewal, want: stepIssue, at: renewal},
		{name: "issued", state: through(t, issued, renewal), now: late, want: stepServe, at: late},
		{name: "grace", state: through(t, served, late), now: late, at: late.Add(l.Grace)},
		{name: "grace counts from what was seen", state: served, now: renewal.Add(l.Settle + l.Grace), at: late.Add(l.Grace)},
		{name: "graced", state: served, now: late.Add(l.Grace), want: stepRetire, at: late.Add(l.Grace)},
	} {
		t.Run(c.name, func(t *testing.T) {
			names := c.hosts
			if names == nil {
				names = hosts
			}
			got, at := c.state.next(c.now, l, names)
			if got != c.want || at.Sub(c.at).Abs() > time.Second {
				t.Errorf("next = %q at %s, want %q at %s", got, at, c.want, c.at)
			}
		})
	}
}

func TestExpiredRootLeaves(t *testing.T) {
	l := Lifetimes{}.withDefaults()
	s, _, _ := walk(t, state{}, begin, l)
	s = must(t, s, stepReplace, begin, l)
	s = must(t, s, stepTrust, begin, l)
	late := begin.Add(l.Authority + time.Hour)
	data, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	s, _ = decode(data, late) // nobody ran for a year
	if s.signer != nil || s.serving != nil {
		t.Fatal("expired certificates count as usable")
	}
	s, taken, _ := walk(t, s, late, l)
	if diff := cmp.Diff([]step{stepReplace, stepTrust, stepIssue}, taken); diff != "" || len(s.roots) != 1 {
		t.Errorf("%d roots after steps (-want +got):\n%s", len(s.roots), diff)
	}
}

func TestDecodeGarbage(t *testing.T) {
	l := Lifetimes{}.withDefaults()
	good, _, _ := walk(t, state{}, begin, l)
	data, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	other, _, _ := walk(t, state{}, begin, l)
	foreign, err := other.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		change  map[string][]byte
		problem string
		next    step
		serving bool
	}{
		{name: "untouched", next: stepNone, serving: true},
		{name: "roots are no PEM", change: map[string][]byte{keyRoots: []byte("junk")}, problem: "ca.crt: not PEM", next: stepReplace},
		{name: "roots hold a key", change: map[string][]byte{keyRoots: data[keySigner]}, problem: `ca.crt: PEM block "PRIVATE KEY"`, next: stepReplace},
		{name: "roots are cut", change: map[string][]byte{keyRoots: data[keyRoots][:300]}, problem: "ca.crt: not PEM", next: stepReplace},
		{name: "foreign roots", change: map[string][]byte{keyRoots: foreign[keyRoots]}, problem: "ca.key: belongs to no certificate", next: stepReplace},
		{name: "no authority key", change: map[string][]byte{keySigner: nil}, next: stepReplace, serving: true},
		{name: "junk for an authority key", change: map[string][]byte{keySigner: []byte("junk")}, problem: "ca.key: not PEM", next: stepReplace, serving: true},
		{name: "foreign serving certificate", change: map[string][]byte{keyServing: foreign[keyServing], keyPrivate: foreign[keyPrivate]}, problem: "tls.crt: not signed by", next: stepIssue},
		{name: "serving key of another", change: map[string][]byte{keyPrivate: foreign[keyPrivate]}, problem: "tls.crt: certificate and key", next: stepIssue},
		{name: "no rotation record", change: map[string][]byte{keyRotation: nil}, next: stepTrust, serving: true},
		{name: "junk for a rotation record", change: map[string][]byte{keyRotation: []byte("{")}, problem: "rotation.json", next: stepTrust, serving: true},
		{name: "rotation record of another", change: map[string][]byte{keyRotation: foreign[keyRotation]}, next: stepTrust, serving: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := maps.Clone(data)
			maps.Copy(changed, c.change)
			s, err := decode(changed, begin)
			switch {
			case c.problem == "" && err != nil:
				t.Errorf("unexpected problem: %v", err)
			case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
				t.Errorf("problem = %v, want it to contain %q", err, c.problem)
			}
			if err != nil && strings.Contains(err.Error(), "BEGIN") {
				t.Errorf("the problem quotes the Secret: %v", err)
			}
			if got, _ := s.next(begin, l, hosts); got != c.next || (s.serving != nil) != c.serving {
				t.Errorf("next = %q, serving = %v; want %q, %v", got, s.serving != nil, c.next, c.serving)
			}
			s, _, _ = walk(t, s, begin, l)
			if s = through(t, s, begin); s.signer == nil || s.serving == nil {
				t.Error("the steps did not lead to a usable Secret")
			}
		})
	}
}

func TestCarryKeepsServingAfterLoss(t *testing.T) {
	l := Lifetimes{}.withDefaults()
	before, _, _ := walk(t, state{}, begin, l)
	lost, carried := state{}.carry(before.serving, before.roots[0], begin)
	if !carried {
		t.Fatal("nothing was carried into an empty state")
	}
	after := must(t, lost, stepReplace, begin, l)
	if len(after.roots) != 2 || !after.serving.Leaf.Equal(before.serving.Leaf) {
		t.Errorf("%d roots, want the new one and the one that is needed", len(after.roots))
	}
	if _, carried := after.carry(before.serving, before.roots[0], begin); carried {
		t.Error("carried into a state that has something to serve")
	}
	if _, carried := (state{}).carry(before.serving, before.roots[0], begin.Add(l.Serving*2)); carried {
		t.Error("carried an expired certificate")
	}
}

func TestRootsAreBounded(t *testing.T) {
	l := Lifetimes{}.withDefaults()
	s, _, _ := walk(t, state{}, begin, l)
	issuer := s.roots[0]
	for range 3 * maxRoots {
		s = must(t, s, stepReplace, begin, l)
	}
	if len(s.roots) != maxRoots || !contains(s.roots, issuer) {
		t.Errorf("%d roots, want %d with the one that is needed among them", len(s.roots), maxRoots)
	}
}

func TestIssueKeepsOtherNamesWhileSettingsDiffer(t *testing.T) {
	l := Lifetimes{}.withDefaults()
	s, _, _ := walk(t, state{}, begin, l)
	s, err := s.issue(begin, l, []string{"other.system.svc"})
	if err != nil {
		t.Fatal(err)
	}
	if all := append([]string{"other.system.svc"}, hosts...); !covers(s.serving.Leaf, all) {
		t.Errorf("the certificate is good for %v, want %v", hostsOf(s.serving.Leaf), all)
	}
	if s.serving.Leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth || s.serving.Leaf.IsCA {
		t.Error("the serving certificate is more than a serving certificate")
	}
}
