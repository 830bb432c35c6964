// SPDX-License-Identifier: Apache-2.0

package checkout

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// linkScript links a program where every test finds it again, one at a time, and gives the test a name of its own for it. It
// is a child's work, since go test would take files of dist that the test itself opens for what its result depends on.
const linkScript = `mkdir -p dist/test
flock dist/test/lock go build -ldflags=-w -o "dist/test/$1" "./cmd/$1"
ln "dist/test/$1" "$2" 2>/dev/null || cp "dist/test/$1" "$2"`

// Program builds a program of the checkout by its name. To link the manager takes ten seconds and more, so that tests of
// several packages share one.
func Program(t testing.TB, name string) string {
	t.Helper()
	root, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-euc", linkScript, "link", name, path)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}
	return path
}
