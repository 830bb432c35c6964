// SPDX-License-Identifier: Apache-2.0

// Package orttest loads ONNX Runtime for tests, once for a process.
package orttest

import (
	"os"
	"sync"
	"testing"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib"
)

var load = sync.OnceValue(func() error {
	path, err := ortlib.Find()
	if err != nil {
		return nil // Need skips
	}
	return model.LoadLibrary(path)
})

// Need skips a test that cannot run without ONNX Runtime, saying what to do about it.
func Need(t testing.TB) {
	t.Helper()
	Library(t)
	if err := load(); err != nil {
		t.Fatal(err)
	}
}

// Library is where ONNX Runtime is. Where it cannot be had the test is skipped; in
// CI, where nobody reads what is skipped, it fails.
func Library(t testing.TB) string {
	t.Helper()
	path, err := ortlib.Find()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skipf("not tested: %v", err)
	}
	return path
}
