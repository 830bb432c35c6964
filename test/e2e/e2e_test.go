// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e uses Modelplane as a person does: it starts a cluster with the programs that `make up`
// starts, talks to it with kubectl, and looks only at what a person could see. It must not import the
// code under test.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const root = "../.."

var processes = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "modelplane"}

// cluster is one local cluster with a manager.
type cluster struct {
	*testing.T
	program, manager, dir string
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{T: t, program: os.Getenv("MODELPLANE_LOCAL"), manager: os.Getenv("MODELPLANE_BINARY")}
	if c.program == "" || c.manager == "" {
		t.Fatal("MODELPLANE_LOCAL and MODELPLANE_BINARY name the programs to test; `make e2e` builds them and sets both")
	}
	c.dir = filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() {
		if out, err := c.run(context.Background(), "down", "--dir", c.dir); err != nil {
			t.Errorf("down at the end: %v\n%s", err, out)
		}
	})
	return c
}

// run leaves out KUBECONFIG, so that a developer's own cluster is never touched.
func (c cluster) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") })
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (c cluster) must(args ...string) string {
	c.Helper()
	out, err := c.run(c.Context(), args...)
	if err != nil {
		logs, _ := c.run(c.Context(), "logs", "-n", "20", "--dir", c.dir)
		c.Fatalf("%s: %v\n%s\nlogs:\n%s", strings.Join(args, " "), err, out, logs)
	}
	return out
}

func (c cluster) up() string {
	c.Helper()
	return c.must("up", "--control-plane-only", "--dir", c.dir, "--manager", c.manager,
		"--crds", filepath.Join(root, "charts/modelplane/files/crds"),
		"--webhooks", filepath.Join(root, "config/base/webhooks.yaml"))
}

func (c cluster) kubectl(args ...string) (string, error) {
	return c.run(c.Context(), append([]string{"kubectl", "--kubeconfig", filepath.Join(c.dir, "kubeconfig")}, args...)...)
}

func (c cluster) mustKubectl(args ...string) string {
	c.Helper()
	out, err := c.kubectl(args...)
	if err != nil {
		c.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c cluster) pid(name string) int {
	c.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, "run", name+".json"))
	if err != nil {
		c.Fatal(err)
	}
	var rec struct{ PID int }
	if err := json.Unmarshal(data, &rec); err != nil || rec.PID <= 1 {
		c.Fatalf("record of %s: %v %s", name, err, data)
	}
	return rec.PID
}

func running(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ")
}

// refusesBadInput applies the manifest that only the manager can refuse.
func (c cluster) refusesBadInput() {
	c.Helper()
	out, err := c.kubectl("apply", "-f", "testdata/refused.yaml")
	if err == nil {
		c.Fatalf("a misspelt field was accepted:\n%s", out)
	}
	if want := "spec.predictor.containers[0].livenessProbe.httpGett: unknown field"; !strings.Contains(out, want) {
		c.Fatalf("refused without naming the field %q:\n%s", want, out)
	}
}

func TestLocalCluster(t *testing.T) {
	c := newCluster(t)
	t.Log("\n" + c.up())

	t.Run("definitions are served", func(t *testing.T) {
		c := c.in(t)
		out := c.mustKubectl("get", "crds", "-o", "name")
		files, err := filepath.Glob(filepath.Join(root, "charts/modelplane/files/crds/*_*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no definitions to compare with: %v", err)
		}
		if got := strings.Count(out, "customresourcedefinition.apiextensions.k8s.io/"); got < len(files) {
			t.Errorf("%d definitions are served, want %d:\n%s", got, len(files), out)
		}
	})

	t.Run("a good manifest is accepted", func(t *testing.T) {
		c := c.in(t)
		c.mustKubectl("apply", "-f", "testdata/accepted.yaml")
		if out := c.mustKubectl("get", "models", "-n", "default"); !strings.Contains(out, "accepted") {
			t.Errorf("kubectl get models does not show it:\n%s", out)
		}
	})

	t.Run("a bad manifest is refused", func(t *testing.T) { c.in(t).refusesBadInput() })

	t.Run("an old version is converted", func(t *testing.T) {
		c := c.in(t)
		c.mustKubectl("apply", "-f", "testdata/converted.yaml")
		out := c.mustKubectl("get", "modelregistries.v1beta1.modelregistry.opendatahub.io", "converted", "-n", "default",
			"-o", "jsonpath={.apiVersion} {.spec.postgres.host}")
		if want := "modelregistry.opendatahub.io/v1beta1 db.example.com"; strings.TrimSpace(out) != want {
			t.Errorf("read back %q, want %q", out, want)
		}
	})

	t.Run("a second up changes nothing", func(t *testing.T) {
		if out := c.in(t).up(); !strings.Contains(out, "nothing to do") {
			t.Errorf("up said\n%s", out)
		}
	})

	t.Run("a killed manager comes back", func(t *testing.T) {
		c := c.in(t)
		before := c.pid("modelplane")
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// Nothing may slip in while nobody looks.
		if out, err := c.kubectl("apply", "-f", "testdata/refused.yaml"); err == nil {
			t.Errorf("accepted without a manager:\n%s", out)
		}
		c.up()
		if after := c.pid("modelplane"); after == before {
			t.Error("the record still names the killed process")
		}
		c.refusesBadInput()
		c.mustKubectl("get", "inferenceservice", "accepted", "-n", "default")
	})

	t.Run("down leaves nothing", func(t *testing.T) {
		c := c.in(t)
		var pids []int
		for _, name := range processes {
			pids = append(pids, c.pid(name))
		}
		t.Log("\n" + c.must("down", "--dir", c.dir))
		for i, pid := range pids {
			if running(pid) {
				t.Errorf("%s (process %d) still runs", processes[i], pid)
			}
		}
		if _, err := os.Stat(c.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory is still there: %v", err)
		}
	})
}

// in reports to a part of the test.
func (c cluster) in(t *testing.T) cluster {
	c.T = t
	return c
}
