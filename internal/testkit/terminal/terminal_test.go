// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/modelplane/modelplane/internal/testkit"
)

// TestDirectories: a server of another user gets a directory, and the one of everybody stays as it is.
func TestDirectories(t *testing.T) {
	shared := t.TempDir()
	t.Setenv("TMPDIR", shared)
	if err := os.Chmod(shared, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	var dir string
	ok := Run("test", func(t testing.TB) {
		dir = t.TempDir()
		if _, err := testkit.Unprivileged(dir, "nobody"); err != nil {
			t.Fatal(err)
		}
	})
	if !ok {
		t.Fatal("it failed")
	}
	if info, err := os.Stat(shared); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the shared directory has changed: %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(shared, "*")); len(left) > 0 || filepath.Dir(filepath.Dir(dir)) != shared {
		t.Errorf("%s was used, and left are %v", dir, left)
	}
}

// TestFailure: what fails ends there, and is cleaned up.
func TestFailure(t *testing.T) {
	cleaned := false
	ok := Run("test", func(t testing.TB) {
		t.Cleanup(func() { cleaned = true })
		t.Skip("not here")
		t.Error("it goes on")
	})
	if ok || !cleaned {
		t.Errorf("ok %t, cleaned up %t", ok, cleaned)
	}
}
