// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func keys(t *testing.T, text string) []Key {
	t.Helper()
	out, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGood: a pass opens one tenant until its end, by whichever key is known, and nothing like it does.
func TestGood(t *testing.T) {
	text, other := NewKey(), NewKey()
	if text == other {
		t.Fatal("two keys are the same")
	}
	ours, theirs := keys(t, text), keys(t, other)
	period, left := Now(now)
	if left <= 0 || left > Period {
		t.Errorf("%s are left", left)
	}
	shown := ours[0].Of("acme", period)
	if shown != ours[0].Of("acme", period) {
		t.Error("a pass is not the same twice")
	}
	end := now.Add(left + Period)
	for name, c := range map[string]struct {
		keys   []Key
		tenant string
		shown  string
		at     time.Time
		want   bool
	}{
		"as it is":               {ours, "acme", shown, now, true},
		"of the period before":   {ours, "acme", ours[0].Of("acme", period-1), now, true},
		"of two periods before":  {ours, "acme", ours[0].Of("acme", period-2), now, false},
		"at its last moment":     {ours, "acme", shown, end.Add(-time.Second), true},
		"at its end":             {ours, "acme", shown, end, false},
		"beside a newer key":     {append(keys(t, NewKey()), ours...), "acme", shown, now, true},
		"of another tenant":      {ours, "other", shown, now, false},
		"with another key":       {theirs, "acme", shown, now, false},
		"without a key":          {nil, "acme", shown, now, false},
		"with another end":       {ours, "acme", strings.Replace(shown, "v1.1", "v1.2", 1), now, false},
		"cut short":              {ours, "acme", shown[:len(shown)-1], now, false},
		"longer":                 {ours, "acme", shown + "0", now, false},
		"with a part more":       {ours, "acme", shown + ".x", now, false},
		"of another form":        {ours, "acme", "v2" + shown[2:], now, false},
		"nothing":                {ours, "acme", "", now, false},
		"only dots":              {ours, "acme", "v1..", now, false},
		"an end that is no time": {ours, "acme", "v1.x." + ours[0].sign("acme", "x"), now, false},
	} {
		if got := Good(c.keys, c.tenant, c.shown, c.at); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestParseKeys(t *testing.T) {
	a, b := NewKey(), NewKey()
	if got := keys(t, "\n"+a+"\r\n  "+b+"\n\n"); len(got) != 2 || string(got[0]) != string(keys(t, a)[0]) {
		t.Errorf("%d keys", len(got))
	}
	for _, bad := range []string{"", "\n", "c2hvcnQ=", a + "\nnonsense", strings.Repeat("!", 60)} {
		if _, err := ParseKeys(bad); err == nil || strings.Contains(err.Error(), "nonsense") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
