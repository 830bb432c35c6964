// SPDX-License-Identifier: Apache-2.0

package mariadb

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// told is a test whose end is looked at.
type told struct {
	testing.TB
	fatal, skip string
}

func (t *told) Fatal(args ...any) { t.fatal = fmt.Sprint(args...); runtime.Goexit() }
func (t *told) Skip(args ...any)  { t.skip = fmt.Sprint(args...); runtime.Goexit() }

// TestNotInstalled: in CI a missing server is a failure and nothing is installed, elsewhere the test is skipped when it
// cannot be installed.
func TestNotInstalled(t *testing.T) {
	known := servers
	servers = nil
	t.Cleanup(func() { servers = known })
	for _, test := range []struct{ ci, fatal, skip string }{
		{"true", "run `make parts` before the tests", ""},
		{"", "", "MariaDB"},
	} {
		bin := t.TempDir()
		called := filepath.Join(bin, "called")
		if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte("#!/bin/sh\n: >"+called+"\nexit 100\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin)
		t.Setenv("CI", test.ci)
		got, ended := &told{TB: t}, make(chan struct{})
		go func() {
			defer close(ended)
			Start(got)
		}()
		<-ended
		if !strings.Contains(got.fatal, test.fatal) || (got.fatal == "") != (test.fatal == "") || !strings.Contains(got.skip, test.skip) || (got.skip == "") != (test.skip == "") {
			t.Errorf("with CI=%q it failed with %q and was skipped with %q", test.ci, got.fatal, got.skip)
		}
		if _, err := os.Stat(called); err == nil && test.ci != "" {
			t.Error("something was installed in CI")
		}
	}
}
