// SPDX-License-Identifier: Apache-2.0

package checkout

import (
	"os"
	"path/filepath"
	"testing"
)

// Manifests is a folder of the manifests that users of the five systems already have, which are kept beside the
// checkout. A test that needs them is skipped where they are absent, but not in CI.
func Manifests(t testing.TB, path ...string) string {
	t.Helper()
	root, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(append([]string{filepath.Dir(root), "shared", "conformance", "manifests"}, path...)...)
	if _, err := os.Stat(dir); err != nil {
		const missing = "the manifests of users are not tried: %v"
		if os.Getenv("CI") != "" {
			t.Fatalf(missing, err)
		}
		t.Skipf(missing, err)
	}
	return dir
}
