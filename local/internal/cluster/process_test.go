// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this test binary stand in for the multi-call binary: started by spawn it records
// itself and becomes the program it was told to become.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ExecCommand {
		panic(Exec(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// sleeper starts a process that is not ours to end, and reaps it at the end of the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { defer close(gone); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
	})
	return cmd
}

func recordOf(t *testing.T, pid int) record {
	t.Helper()
	start, _, err := procStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return record{PID: pid, Start: start, Boot: bootID()}
}

func writeRecord(t *testing.T, dir, name string, rec record) {
	t.Helper()
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(recordPath(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAliveNeedsTheSameProcess(t *testing.T) {
	rec := recordOf(t, sleeper(t).Process.Pid)
	later, otherBoot := rec, rec
	later.Start++
	otherBoot.Boot = "another"
	for name, tc := range map[string]struct {
		rec  record
		want bool
	}{
		"the process itself":         {rec, true},
		"a process started later":    {later, false},
		"the number before a reboot": {otherBoot, false},
		"no record":                  {record{}, false},
		"the first process":          {record{PID: 1, Boot: bootID()}, false},
	} {
		if got := tc.rec.alive(); got != tc.want {
			t.Errorf("%s: alive %v, want %v", name, got, tc.want)
		}
	}
}

func TestAZombieIsNotAlive(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	rec := recordOf(t, cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nobody waits for it before the end of this test, so it stays as a zombie.
	if err := waitUntil(t.Context(), 10*time.Second, func() bool { return !rec.alive() }); err != nil {
		t.Error("a killed process that nobody reaped still counts as alive")
	}
}

func TestStopSparesAStrangerWithARecycledNumber(t *testing.T) {
	dir, stranger := t.TempDir(), sleeper(t)
	rec := recordOf(t, stranger.Process.Pid)
	recycled := rec
	recycled.Start--
	writeRecord(t, dir, nameEtcd, recycled)
	ended, err := stop(t.Context(), dir, nameEtcd)
	if err != nil || ended {
		t.Errorf("ended %v, error %v", ended, err)
	}
	if !rec.alive() {
		t.Error("somebody else's process was ended")
	}
	if _, err := os.Stat(recordPath(dir, nameEtcd)); !os.IsNotExist(err) {
		t.Errorf("the stale record stays: %v", err)
	}
}

func TestSpawnRecordsAndStopEnds(t *testing.T) {
	dir := t.TempDir()
	held, err := acquire(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	s := spec{name: "napper", path: sleep, args: []string{"300"}}
	cmd, err := spawn(dir, os.Args[0], s, held)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	var rec record
	if err := waitUntil(t.Context(), 10*time.Second, func() bool {
		rec, err = readRecord(dir, s.name)
		return err == nil
	}); err != nil {
		t.Fatal("no record was written")
	}
	if rec.PID != cmd.Process.Pid || rec.Digest != s.digest() || !rec.alive() {
		t.Errorf("record %+v does not describe process %d", rec, cmd.Process.Pid)
	}
	if ended, err := stop(t.Context(), dir, s.name); err != nil || !ended {
		t.Errorf("ended %v, error %v", ended, err)
	}
	if rec.alive() {
		t.Error("the process still runs")
	}
	if ended, err := stop(t.Context(), dir, s.name); err != nil || ended {
		t.Errorf("ending it twice: ended %v, error %v", ended, err)
	}
}

// A started component must not keep the lock, or the next command would wait for ever.
func TestALockEndsWithItsHolderWhileTheComponentRuns(t *testing.T) {
	dir := t.TempDir()
	held, err := acquire(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := spawn(dir, os.Args[0], spec{name: "napper", path: sleep, args: []string{"300"}}, held)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	if l, err := tryLock(filepath.Join(dir, lockFile)); l != nil || err != nil {
		t.Fatalf("a held lock was given away: %v", err)
	}
	held.release()
	if err := waitUntil(t.Context(), 10*time.Second, func() bool {
		l, err := tryLock(filepath.Join(dir, lockFile))
		if err != nil || l == nil {
			return false
		}
		l.release()
		return true
	}); err != nil {
		t.Error("the component kept the lock")
	}
	if rec, err := readRecord(dir, "napper"); err != nil || !rec.alive() {
		t.Errorf("the lock ended before the record was there: %+v %v", rec, err)
	}
}

// Whoever waits for the end of a pipe that `up` was started with must not wait for the components.
func TestAComponentHoldsNothingOfItsCaller(t *testing.T) {
	dir := t.TempDir()
	held, err := acquire(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(write.Fd())) // a descriptor that children get
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := spawn(dir, os.Args[0], spec{name: "napper", path: sleep, args: []string{"300"}}, held)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	_ = write.Close()
	_ = syscall.Close(inherited)
	if err := read.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the component holds the pipe: %v", err)
	}
}
