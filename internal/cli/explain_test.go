// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/cli/explain"
)

func TestLook(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	device, buffer := null, &bytes.Buffer{} // a device looks like a terminal
	for _, tc := range []struct {
		name string
		env  map[string]string
		want explain.Look
	}{
		{"no locale", nil, explain.Look{ASCII: true, Colour: true}},
		{"C", map[string]string{"LANG": "C"}, explain.Look{ASCII: true, Colour: true}},
		{"POSIX wins", map[string]string{"LANG": "en_GB.UTF-8", "LC_ALL": "POSIX"}, explain.Look{ASCII: true, Colour: true}},
		{"UTF-8", map[string]string{"LANG": "en_GB.UTF-8"}, explain.Look{Colour: true}},
		{"C.utf8", map[string]string{"LC_CTYPE": "C.utf8", "LANG": "C"}, explain.Look{Colour: true}},
		{"no colour", map[string]string{"LANG": "de_DE.UTF-8", "NO_COLOR": "1"}, explain.Look{}},
		{"dumb", map[string]string{"LANG": "de_DE.UTF-8", "TERM": "dumb"}, explain.Look{}},
	} {
		getenv := func(name string) string { return tc.env[name] }
		if got := lookOf(device, getenv); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if lookOf(buffer, getenv).Colour || lookOf(file, getenv).Colour {
			t.Errorf("%s: colours where there is no terminal", tc.name)
		}
	}
}

func TestExplainCalls(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "KIND/NAME"},
		{"no name", []string{"isvc"}, "KIND/NAME"},
		{"empty name", []string{"isvc/"}, "KIND/NAME"},
		{"two objects", []string{"isvc/a", "isvc/b", "isvc/c"}, "KIND/NAME"},
		{"output", []string{"isvc/a", "-o", "yaml"}, `--output "yaml" is unknown`},
		{"flag", []string{"isvc/a", "--nonsense"}, "unknown flag"},
		{"no cluster", []string{"isvc/a"}, "give --kubeconfig or set KUBECONFIG"},
		{"no file", []string{"isvc/a", "--kubeconfig", "/does/not/exist"}, "/does/not/exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewExplainCommand(func() (*Known, error) { return &Known{}, nil })
			c.SetArgs(tc.args)
			c.SetOut(&bytes.Buffer{})
			c.SetErr(&bytes.Buffer{})
			err := c.ExecuteContext(t.Context())
			var coded interface{ ExitCode() int }
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, &coded) {
				t.Errorf("error %v, want %q with the code of any error", err, tc.want)
			}
		})
	}
}

func TestCommandsReachTheSameCluster(t *testing.T) {
	for want, call := range map[string]explainCall{
		"kubectl": {},
		"kubectl --context arn:aws:eks:eu-west-1:1:cluster/x":      {context: "arn:aws:eks:eu-west-1:1:cluster/x"},
		`kubectl --kubeconfig 'my file' --context 'it'\''s; mine'`: {kubeconfig: "my file", context: "it's; mine"},
	} {
		if got := "kubectl" + call.flags(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
