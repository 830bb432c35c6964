// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzNamespaces: whatever is in the file, it is refused as a whole or names namespaces.
func FuzzNamespaces(f *testing.F) {
	for _, text := range []string{"", "a\nb\r\n\n# c\n", "../a", "a b", "\x00", "A", strings.Repeat("a", 64)} {
		f.Add(text)
	}
	file := filepath.Join(f.TempDir(), "namespaces")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names, err := readNamespaces(file)
		if err != nil && names != nil {
			t.Errorf("half a list: %q", names)
		}
		for _, name := range names {
			if name == "" || len(name) > 63 || strings.ContainsAny(name, "/.% \t\r\n#") || strings.ToLower(name) != name {
				t.Errorf("%q", name)
			}
		}
	})
}
