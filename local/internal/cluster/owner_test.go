// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const namespaceVariable = "MODELPLANE_TEST_NAMESPACE"

// alone tells whether the test runs with a network, and mounts, that nobody else sees. Where it does not yet, it runs the
// test once more where it does, and reports what came of that.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceVariable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("not tested: only root makes network namespaces")
	}
	ns := fmt.Sprintf("mp%do", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
		t.Skipf("not tested: no network namespace can be made: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", ns).Run() }) // its interfaces go with it
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", ns, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceVariable+"="+ns)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// ensureNft puts a program that takes every rule where the real one is missing: it comes with the first node of a machine,
// and what happens to links and processes does not depend on it.
func ensureNft(t *testing.T) {
	t.Helper()
	if findTools()["nft"] != "" {
		return
	}
	const dir = "/usr/local/sbin"
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("not tested: nft is not installed, and nothing can stand in for it: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\nexec cat >/dev/null\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// newNode is a cluster in a directory of its own, up to where it makes the machine its node.
func newNode(t *testing.T) (*bringUp, *bytes.Buffer) {
	t.Helper()
	b, out := newBringUp(t)
	b.Executable = filepath.Join(t.TempDir(), "modelplane-local")
	touch(t, filepath.Join(filepath.Dir(b.Executable), "pause"))
	if err := claim(b.Dir); err != nil {
		t.Fatal(err)
	}
	return b, out
}

// abandoned is a cluster that is the machine's node, has data, and of which nothing runs any more.
func abandoned(t *testing.T) *Cluster {
	t.Helper()
	b, _ := newNode(t)
	if err := b.prepareNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(b.Dir, "etcd", "member", "db"))
	touch(t, filepath.Join(b.Dir, "volumes", "claim", "file"))
	dead := recordOf(t, os.Getpid())
	dead.Start--
	writeRecord(t, b.Dir, nameEtcd, dead)
	writeRecord(t, b.Dir, nameKubelet, dead)
	b.held.release()
	return b.Cluster
}

func forwarding(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(forwardingSetting)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// TestADeadOwnerMakesRoom: what a killed cluster left on the machine must not keep another one from being its node, and
// the next one must not lose the data of the killed one.
func TestADeadOwnerMakesRoom(t *testing.T) {
	if !alone(t) {
		return
	}
	ensureNft(t)
	was := forwarding(t)
	owner := abandoned(t)
	mounted := filepath.Join(owner.Dir, "node", "kubelet", "pods", "secret")
	if err := os.MkdirAll(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", mounted, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}

	b, out := newNode(t)
	if err := b.prepareNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := linkOwner(); err != nil || got != b.Dir {
		t.Errorf("the machine is the node of %q (%v), want %q", got, err, b.Dir)
	}
	if said := out.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "the cluster in "+owner.Dir+" is dead") {
		t.Errorf("it is not said in one sentence what happened:\n%s", said)
	}
	if b.state.Node.Forwarding != was {
		t.Errorf("forwarding %q is remembered, and was %q before there was any node", b.state.Node.Forwarding, was)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if left := mountsBelow(string(mounts), owner.Dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	for _, name := range []string{"etcd/member/db", "volumes/claim/file", marker} {
		if _, err := os.Stat(filepath.Join(owner.Dir, name)); err != nil {
			t.Errorf("the data of the dead cluster: %v", err)
		}
	}

	// The dead one can be resumed when the machine is free again, and can be removed now, without harm to the other.
	if _, err := owner.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is stopped") {
		t.Errorf("status of the dead cluster: %v", err)
	}
	if err := owner.Down(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got, err := linkOwner(); err != nil || got != b.Dir {
		t.Errorf("after the end of the dead one, the machine is the node of %q (%v)", got, err)
	}
	if _, err := os.Stat(owner.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory of the dead cluster: %v", err)
	}
	b.held.release()
	if err := b.Down(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if now := forwarding(t); now != was {
		t.Errorf("forwarding is %q after all clusters, and was %q", now, was)
	}
}

// TestAnOwnerThatMayLiveIsRefused: nothing of a cluster that runs, begins or cannot be judged is touched.
func TestAnOwnerThatMayLiveIsRefused(t *testing.T) {
	if !alone(t) {
		return
	}
	ensureNft(t)
	for _, tc := range []struct {
		name  string
		lives func(*testing.T, *Cluster)
	}{
		{"one process runs", func(t *testing.T, owner *Cluster) {
			writeRecord(t, owner.Dir, nameProxy, recordOf(t, sleeper(t).Process.Pid))
		}},
		{"another command works on it", func(t *testing.T, owner *Cluster) {
			held, err := acquire(t.Context(), owner.Dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(held.release)
		}},
		{"a record cannot be read", func(t *testing.T, owner *Cluster) {
			if err := os.WriteFile(recordPath(owner.Dir, nameEtcd), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			owner := abandoned(t)
			tc.lives(t, owner)
			b, out := newNode(t)
			err := b.prepareNode(t.Context())
			if want := "is the node of the cluster in " + owner.Dir; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			if got, err := linkOwner(); err != nil || got != owner.Dir {
				t.Errorf("the machine is the node of %q (%v)", got, err)
			}
			if _, err := os.Stat(recordPath(owner.Dir, nameKubelet)); err != nil || out.Len() > 0 {
				t.Errorf("something was taken down: %v\n%s", err, out)
			}
			if err := b.removeNetwork(t.Context(), &nodeState{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAnOwnerWhoseDirectoryIsGoneIsForgotten: there is nobody to ask then, and nothing to lose.
func TestAnOwnerWhoseDirectoryIsGoneIsForgotten(t *testing.T) {
	if !alone(t) {
		return
	}
	ensureNft(t)
	if err := os.RemoveAll(abandoned(t).Dir); err != nil {
		t.Fatal(err)
	}
	b, out := newNode(t)
	if err := b.prepareNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := linkOwner(); err != nil || got != b.Dir || out.Len() > 0 {
		t.Errorf("the machine is the node of %q (%v)\n%s", got, err, out)
	}
}
