// SPDX-License-Identifier: Apache-2.0

// Package orttest loads ONNX Runtime for tests, once for a process.
package orttest

import (
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
	if _, err := ortlib.Find(); err != nil {
		t.Skipf("not tested: %v", err)
	}
	if err := load(); err != nil {
		t.Fatal(err)
	}
}
