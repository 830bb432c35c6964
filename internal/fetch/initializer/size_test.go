// SPDX-License-Identifier: Apache-2.0

package initializer

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "20Gi": 20 << 30, "1.5Ki": 1536, "100M": 100_000_000, "7k": 7000, "1e3": 1000, "1E": 1e18, "2E2": 200, "1500m": 2, ".5Ki": 512, "1.": 1,
		"9007199254740992": 1 << 53,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "much", "-1", "20GB", "1 Gi", "1e", "1e999", "Gi", "0x10", "inf", "NaN", "8Ei", "1e19", "１"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
