// SPDX-License-Identifier: Apache-2.0

package main

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
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/modelplane/modelplane/local/internal/components"
)

// actAsProgram makes this test binary behave as modelplane-local, so that the tests run the code as it
// is now and need nothing to be built beforehand. Components inherit it.
const actAsProgram = "MODELPLANE_LOCAL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(actAsProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs modelplane-local and returns what it printed.
func program(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), actAsProgram+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// local is one cluster under test.
type local struct {
	*testing.T
	dir string
}

func newLocal(t *testing.T) local {
	t.Helper()
	l := local{t, filepath.Join(t.TempDir(), "state")}
	t.Cleanup(func() {
		if out, err := program(context.Background(), "down", "--dir", l.dir); err != nil {
			t.Errorf("down at the end: %v\n%s", err, out)
		}
	})
	return l
}

func (l local) must(args ...string) string {
	l.Helper()
	out, err := program(l.Context(), append(args, "--dir", l.dir)...)
	if err != nil {
		for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			text, _ := program(l.Context(), "logs", name, "-n", "20", "--dir", l.dir)
			l.Logf("log of %s:\n%s", name, text)
		}
		l.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (l local) kubectl(args ...string) string {
	l.Helper()
	out, err := program(l.Context(), append([]string{"kubectl", "--kubeconfig", filepath.Join(l.dir, "kubeconfig")}, args...)...)
	if err != nil {
		l.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (l local) pid(name string) int {
	l.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "run", name+".json"))
	if err != nil {
		l.Fatal(err)
	}
	var rec struct{ PID int }
	if err := json.Unmarshal(data, &rec); err != nil {
		l.Fatal(err)
	}
	return rec.PID
}

func (l local) pids() []int {
	l.Helper()
	var pids []int
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		pids = append(pids, l.pid(name))
	}
	return pids
}

// running is false for a process that has ended, also when nobody has reaped it yet.
func running(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func TestControlPlane(t *testing.T) {
	l := newLocal(t)
	if out, err := program(t.Context(), "status", "--dir", l.dir); err == nil || !strings.Contains(out, "no cluster") {
		t.Errorf("status before up: %v\n%s", err, out)
	}
	l.must("up", "--control-plane-only")
	l.must("status")
	for _, want := range []string{"default", "kube-system"} {
		if out := l.kubectl("get", "ns"); !strings.Contains(out, want) {
			t.Errorf("namespace %s is missing:\n%s", want, out)
		}
	}
	l.kubectl("create", "ns", "kept")

	t.Run("a service account's token is good", func(t *testing.T) {
		l := local{t, l.dir}
		token := strings.TrimSpace(l.kubectl("create", "token", "default"))
		// In a file, since arguments are visible to everybody on the machine.
		config := filepath.Join(t.TempDir(), "token.kubeconfig")
		writeTokenKubeconfig(t, filepath.Join(l.dir, "kubeconfig"), config, token)
		out, err := program(t.Context(), "kubectl", "--kubeconfig", config, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		if err != nil || strings.TrimSpace(out) != "system:serviceaccount:default:default" {
			t.Errorf("whoami: %v\n%s", err, out)
		}
	})

	t.Run("extension servers find whom to trust", func(t *testing.T) {
		l := local{t, l.dir}
		out := l.kubectl("get", "configmap", "-n", "kube-system", "extension-apiserver-authentication", "-o", "jsonpath={.data}")
		for _, want := range []string{"client-ca-file", "requestheader-client-ca-file", "front-proxy-client"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s is missing in %s", want, out)
			}
		}
	})

	t.Run("claims get volumes", func(t *testing.T) { local{t, l.dir}.claimsGetVolumes() })
	t.Run("services get ports", func(t *testing.T) { local{t, l.dir}.servicesGetPorts() })

	t.Run("a second up changes nothing", func(t *testing.T) {
		l := local{t, l.dir}
		before := l.pids()
		if out := l.must("up", "--control-plane-only"); !strings.Contains(out, "nothing to do") {
			t.Errorf("up said\n%s", out)
		}
		if after := l.pids(); !slices.Equal(before, after) {
			t.Errorf("processes %v became %v", before, after)
		}
	})

	for _, victim := range []string{"kube-apiserver", "etcd"} {
		t.Run("up repairs a killed "+victim, func(t *testing.T) {
			l := local{t, l.dir}
			if err := syscall.Kill(l.pid(victim), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if out, err := program(t.Context(), "status", "--dir", l.dir); err == nil || !strings.Contains(out, "not r") {
				t.Errorf("status with a dead %s: %v\n%s", victim, err, out)
			}
			l.must("up", "--control-plane-only")
			l.must("status")
			l.kubectl("get", "ns", "kept")
		})
	}

	t.Run("down --keep keeps the data", func(t *testing.T) {
		l := local{t, l.dir}
		before := l.pids()
		l.must("down", "--keep")
		for _, pid := range before {
			if running(pid) {
				t.Errorf("process %d still runs", pid)
			}
		}
		l.must("up", "--control-plane-only")
		l.kubectl("get", "ns", "kept")
	})

	t.Run("down leaves nothing", func(t *testing.T) {
		l := local{t, l.dir}
		before := l.pids()
		l.must("down")
		for _, pid := range before {
			if running(pid) {
				t.Errorf("process %d still runs", pid)
			}
		}
		if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory is still there: %v", err)
		}
	})
}

// An up that is killed half-way leaves a running etcd; the next one must find it, not start another.
func TestUpFinishesWhatAKilledUpBegan(t *testing.T) {
	l := newLocal(t)
	first := exec.Command(os.Args[0], "up", "--control-plane-only", "--dir", l.dir)
	first.Env = append(os.Environ(), actAsProgram+"=1")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(l.dir, "run", "etcd.json")
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := os.Stat(record); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("etcd was never started")
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	etcd := l.pid("etcd")
	l.must("up", "--control-plane-only")
	if got := l.pid("etcd"); got != etcd {
		t.Errorf("etcd was process %d and is %d now", etcd, got)
	}
	l.kubectl("get", "ns", "default")
}

// Every component must start alone although all of them share one process image: two that claim the
// same flag or metric would panic before they print anything.
func TestEveryComponentStartsAlone(t *testing.T) {
	for _, name := range components.Names() {
		args := []string{name, "--help"}
		if out, err := program(t.Context(), args...); err != nil || !strings.Contains(out, "--") {
			t.Errorf("%s: %v\n%.500s", strings.Join(args, " "), err, out)
		}
	}
}

func TestAssetsMakesLinksThatWork(t *testing.T) {
	dir := t.TempDir()
	if out, err := program(t.Context(), "assets", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range components.Names() {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "kubectl"), "version", "--client")
	cmd.Env = append(os.Environ(), actAsProgram+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Client Version") {
		t.Errorf("%v\n%s", err, out)
	}
}

// writeTokenKubeconfig copies a kubeconfig with a token in the place of its credentials.
func writeTokenKubeconfig(t *testing.T, from, to, token string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	if err := clientcmd.WriteToFile(*config, to); err != nil {
		t.Fatal(err)
	}
}
