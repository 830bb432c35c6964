// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func newBringUp(t *testing.T) (*bringUp, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	held, err := acquire(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.release)
	out := &bytes.Buffer{}
	c := &Cluster{Dir: dir, Executable: os.Args[0], Out: out, Timeout: 20 * time.Second}
	return &bringUp{Cluster: c, state: &state{}, held: held}, out
}

// shell is a process that runs a script under the name of a component.
func shell(name, script string) spec {
	return spec{name: name, path: "/bin/sh", args: []string{"-c", script}, probe: probe{url: "http://127.0.0.1:1/"}}
}

func TestAComponentThatEndsIsReportedAtOnceWithItsLog(t *testing.T) {
	b, _ := newBringUp(t)
	s := shell(nameEtcd, "echo the disk is on fire >&2; exit 1")
	err := b.stage(t.Context(), map[string]spec{nameEtcd: s}, []string{nameEtcd})
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire") || !strings.Contains(err.Error(), "etcd ended") {
		t.Errorf("error %v", err)
	}
}

func TestAComponentThatNeverGetsReadyIsReportedWithItsLastAnswer(t *testing.T) {
	b, _ := newBringUp(t)
	b.Timeout = 300 * time.Millisecond
	s := shell(nameEtcd, "exec sleep 300")
	t.Cleanup(func() {
		if _, err := stop(context.Background(), b.Dir, nameEtcd); err != nil {
			t.Error(err)
		}
	})
	err := b.stage(t.Context(), map[string]spec{nameEtcd: s}, []string{nameEtcd})
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "not ready after") {
		t.Errorf("error %v", err)
	}
}

func TestOnlyOutdatedProcessesAreEndedAndTheLastStartedFirst(t *testing.T) {
	b, out := newBringUp(t)
	records := map[string]record{}
	specs := map[string]spec{}
	for _, name := range []string{nameEtcd, nameAPIServer, nameScheduler} {
		specs[name] = shell(name, "true")
		rec := recordOf(t, sleeper(t).Process.Pid)
		rec.Digest = "another"
		if name == nameScheduler {
			rec.Digest = specs[name].digest()
		}
		writeRecord(t, b.Dir, name, rec)
		records[name] = rec
	}
	if err := b.endOutdated(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	for name, rec := range records {
		if want := name == nameScheduler; rec.alive() != want {
			t.Errorf("%s runs: %v, want %v", name, rec.alive(), want)
		}
	}
	said := out.String()
	if first, second := strings.Index(said, nameAPIServer), strings.Index(said, nameEtcd); first < 0 || second < first {
		t.Errorf("ended in the wrong order:\n%s", said)
	}
}
