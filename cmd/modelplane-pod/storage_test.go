// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/process/command"
)

// TestStorageInitializer runs the process as a pod does: exit code, last words, last line of the log.
func TestStorageInitializer(t *testing.T) {
	dir := t.TempDir()
	words := filepath.Join(dir, "termination-log")
	source := filepath.Join(dir, "model.onnx")
	for _, file := range []string{words, source} {
		if err := os.WriteFile(file, []byte("weights"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (int, string) {
		var stderr bytes.Buffer
		command := exec.CommandContext(t.Context(), os.Args[0], append([]string{"storage-initializer", "--termination-log=" + words}, args...)...)
		command.Env = append(os.Environ(), asCommand+"=1")
		command.Stderr = &stderr
		if err := command.Run(); err != nil && command.ProcessState == nil {
			t.Fatal(err)
		}
		return command.ProcessState.ExitCode(), stderr.String()
	}
	code, stderr := run("file://"+source, dir+"/out")
	got, err := os.ReadFile(dir + "/out/model.onnx")
	if code != 0 || err != nil || string(got) != "weights" {
		t.Fatalf("exit code %d, content %q, %v; log:\n%s", code, got, err, stderr)
	}
	if code, stderr = run("file://"+dir+"/nothing", dir+"/out"); code != command.ExitFailed {
		t.Errorf("exit code %d, want %d", code, command.ExitFailed)
	}
	said, err := os.ReadFile(words)
	if err != nil || !strings.HasPrefix(string(said), "Cannot fetch file://") || strings.ContainsAny(string(said), "\n") {
		t.Errorf("last words %q, %v", said, err)
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, string(said)) {
		t.Errorf("the last line of the log is %q, want %q", last, said)
	}
}
