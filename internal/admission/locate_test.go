// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	raw := []byte(`{"a":1,"list":[{"x":"short"},{"x":"the longest of all","y":[1,[2,"deep"]]}],"z":null}`)
	if got := largestField(raw); got != "list[1].x" {
		t.Errorf("largest: %q", got)
	}
	for text, want := range map[string]string{"short": "list[0].x", "deep": "list[1].y[1][1]", "null": "z", "1,": "a"} {
		if got := fieldAt(raw, strings.Index(string(raw), text)); got != want {
			t.Errorf("%s is at %q, want %q", text, got, want)
		}
	}
	for _, broken := range []string{"", "{", "[}", `{"a"`, "nonsense"} {
		if got := largestField([]byte(broken)); got != "" {
			t.Errorf("%q has a field %q", broken, got)
		}
	}
}
