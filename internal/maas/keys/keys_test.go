// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMint(t *testing.T) {
	form := regexp.MustCompile(`^sk-oai-[0-9A-Za-z]{16}_[0-9A-Za-z]{43}$`)
	seen := map[string]bool{}
	for range 1000 {
		k, err := Mint()
		if err != nil {
			t.Fatal(err)
		}
		text := k.Reveal()
		if !form.MatchString(text) || seen[text] {
			t.Fatalf("%q has another form, or was made before", text)
		}
		seen[text] = true
		if again, err := Parse(text); err != nil || again != k {
			t.Fatalf("%q is read as %v: %v", text, again, err)
		}
	}
	if _, err := mint(strings.NewReader("too little")); err == nil {
		t.Error("a key is made without chance")
	}
}

// TestFair: a byte that would make some letters likelier is thrown away.
func TestFair(t *testing.T) {
	got, err := letters(bytes.NewReader([]byte{255, 250, 248, 247, 0}), 3)
	if err == nil || got != "" {
		t.Errorf("it needs more than there is, and yet gives %q", got)
	}
	got, err = letters(bytes.NewReader([]byte{255, 247, 0, 61, 62, 1}), 3)
	if err != nil || got != "z0z" {
		t.Errorf("it is %q (%v)", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "sk-oai-", "sk-oai-a", "sk-oai-a_", "sk-oai-_b", "sk-oai-a_b_c", "sk-oai-a_b ", "SK-OAI-a_b", "sk-oai-a_ü", "sk-oai-a_b\x00", "sk-oai-a'_b", "Bearer sk-oai-a_b",
		"sk-oai-a_" + strings.Repeat("b", maxLength),
	} {
		if _, err := Parse(text); err == nil || len(text) > 8 && strings.Contains(err.Error(), text) {
			t.Errorf("%q is taken, or repeated: %v", text, err)
		}
	}
	if _, err := Parse("sk-oai-a_b"); err != nil {
		t.Errorf("a short one of another server is refused: %v", err)
	}
}

// TestSecretStaysInside: nothing that prints a key shows its secret.
func TestSecretStaysInside(t *testing.T) {
	k, err := Parse("sk-oai-abcdefghijklmnop_TOPSECRET")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("A key", "key", k)
	asJSON, err := json.Marshal(map[string]any{"key": k})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "%v %+v %#v %s %q %s", k, k, k, k, k, asJSON)
	if strings.Contains(out.String(), "SECRET") || !strings.Contains(out.String(), "sk-oai-abcdefghijkl...") {
		t.Error(out.String())
	}
}

func TestDigest(t *testing.T) {
	k, err := Parse("sk-oai-abc_def")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := NewDigester(nil)
	if err != nil {
		t.Fatal(err)
	}
	// printf 'abc\0def' | sha256sum
	const known = "516a5e926ce20c5f4d80f00e1a01abdf14986def6588d6abeed9fce090bc660c"
	if got := plain.Digest(k); got != known || Peppered(got) || !plain.Matches(got, k) {
		t.Errorf("the digest is %s", got)
	}
	peppered, err := NewDigester([]byte("sixteen bytes or more"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewDigester([]byte("another pepper of theirs"))
	if err != nil {
		t.Fatal(err)
	}
	made := peppered.Digest(k)
	if !Peppered(made) || !peppered.Matches(made, k) || !peppered.Matches(plain.Digest(k), k) {
		t.Error("with a pepper, its own digest and the one from before it are not both known")
	}
	if plain.Matches(made, k) || other.Matches(made, k) || peppered.Matches("", k) {
		t.Error("a digest is taken that was made with another pepper, or none at all")
	}
	if swapped := (Key{"abcd", "ef"}); peppered.Matches(made, swapped) || plain.Matches(plain.Digest(k), swapped) {
		t.Error("it does not matter where the id ends")
	}
	if _, err := NewDigester([]byte("short")); err == nil {
		t.Error("a short pepper is taken")
	}
}

func TestExpiresIn(t *testing.T) {
	for raw, want := range map[string]string{
		``: "none", `null`: "none", `""`: "none", `" "`: "none", `"12h"`: "12h0m0s", `"30d"`: "720h0m0s", `"1.5d"`: "36h0m0s", `3600`: "1h0m0s", `0.5`: "500ms",
		`"-1h"`: "-1h0m0s", `-5`: "-5s", `0`: "0s", `"1d2h"`: "error", `"d"`: "error", `"NaNd"`: "error", `"Infd"`: "error", `1e300`: "error", `"99999999999d"`: "error",
		`true`: "error", `{}`: "error", `"x"`: "error", `[1]`: "error",
	} {
		d, ok, err := ParseExpiresIn(json.RawMessage(raw))
		got := d.String()
		if err != nil {
			got = "error"
		} else if !ok {
			got = "none"
		}
		if got != want {
			t.Errorf("%s is %s, not %s", raw, got, want)
		}
	}
}

func TestLifetime(t *testing.T) {
	for _, c := range []struct {
		want              time.Duration
		wanted, ephemeral bool
		is                time.Duration // 0: refused
	}{
		{0, false, false, 90 * day}, {0, false, true, time.Hour}, {time.Hour, true, true, time.Hour}, {time.Hour + 1, true, true, 0}, {90 * day, true, false, 90 * day},
		{90*day + 1, true, false, 0}, {0, true, false, 0}, {-1, true, true, 0}, {1, true, false, 1},
	} {
		got, err := Lifetime(c.want, c.wanted, c.ephemeral, 90)
		if got != c.is || (err == nil) != (c.is != 0) {
			t.Errorf("%+v is %s (%v)", c, got, err)
		}
	}
}

func TestRules(t *testing.T) {
	long := strings.Repeat("ü", maxName)
	for name, want := range map[string]bool{"": false, "  ": false, " a ": true, long: true, long + "x": false, "a\nb": false, "a\x7f": false, "a\xff": false, "'; DROP TABLE api_keys; --": true} {
		if _, err := Name(name); (err == nil) != want {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	for text, want := range map[string]bool{"": true, "two\nlines": true, "\x1b[31m": false, strings.Repeat("x", maxDescription+1): false} {
		if err := Description(text); (err == nil) != want {
			t.Errorf("the description %.20q: %v", text, err)
		}
	}
	for key, want := range map[string]bool{"a": true, "a.b/C_d-e": true, "": false, "/a": false, "a/": false, "A/b": false, "-a": false, "a b": false, strings.Repeat("a", maxLabelKey+1): false} {
		if err := Labels(map[string]string{key: "v"}); (err == nil) != want {
			t.Errorf("the label key %.20q: %v", key, err)
		}
	}
	for value, want := range map[string]bool{"": false, "x y": true, "a\tb": false, "\xff": false, strings.Repeat("x", maxLabelValue): true, strings.Repeat("x", maxLabelValue+1): false} {
		if err := Labels(map[string]string{"a": value}); (err == nil) != want {
			t.Errorf("the label value %.20q: %v", value, err)
		}
	}
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many[fmt.Sprint("k", i)] = "v"
	}
	if Labels(many) == nil {
		t.Error("too many labels are taken")
	}
	for g, want := range map[string]bool{"/realm/team-a": true, "system:authenticated": true, "": false, "a b": false, `a"b`: false, "a,b": false} {
		if err := Groups([]string{"ok", g}); (err == nil) != want {
			t.Errorf("the group %q: %v", g, err)
		}
	}
}

// FuzzParse: whatever is taken for a key has one form, and reveals what it was made of.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"sk-oai-a_b", "sk-oai-", "sk-oai-a_b_c", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Parse(text)
		if err == nil && (k.Reveal() != text || len(text) > maxLength || k.String() != Prefix+k.id[:min(12, len(k.id))]+"...") {
			t.Errorf("%q is read as %q", text, k.Reveal())
		}
	})
}

// FuzzExpiresIn: a lifetime that is permitted is positive and no longer than the maximum.
func FuzzExpiresIn(f *testing.F) {
	for _, s := range []string{`"12h"`, `"1.5d"`, `3600`, `"NaNd"`, `1e300`, `null`} {
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, raw string, ephemeral bool) {
		d, ok, err := ParseExpiresIn(json.RawMessage(raw))
		if err != nil {
			return
		}
		if life, err := Lifetime(d, ok, ephemeral, 90); err == nil && (life <= 0 || life > 90*day || ephemeral && life > EphemeralLifetime) {
			t.Errorf("%s lives for %s", raw, life)
		}
	})
}
