// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/image"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib/orttest"
)

// TestTree starts the server with nothing but the collected files: it must come as far as looking for a model, for which
// it has loaded ONNX Runtime before.
func TestTree(t *testing.T) {
	library := orttest.Library(t)
	server := filepath.Join(t.TempDir(), "server")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "netgo,osusergo", "-o", server, "../../cmd/modelplane-onnx")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tree := t.TempDir()
	paths, err := image.Collect(server, library, tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/modelplane-onnx", "/libonnxruntime.so.1"} {
		if !slices.Contains(paths, want) {
			t.Errorf("%s is missing among %v", want, paths)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("only root may change the root directory; the files are not tried")
	}
	if err := os.Chmod(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/modelplane-onnx", "--model_dir=/no/model")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: tree, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("looking for the model")) {
		t.Errorf("%v: %s", err, out)
	}
}
