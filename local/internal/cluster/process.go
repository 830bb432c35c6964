// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// record is what a started process writes about itself. Process numbers are reused, so the number
// alone proves nothing: the start time (in clock ticks) and the boot it counts from belong to it.
type record struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`
	Boot   string `json:"boot"`
	Digest string `json:"digest"`
}

func recordPath(dir, name string) string { return filepath.Join(dir, "run", name+".json") }

func logPath(dir, name string) string { return filepath.Join(dir, "logs", name+".log") }

func readRecord(dir, name string) (record, error) {
	var rec record
	data, err := os.ReadFile(recordPath(dir, name))
	if err != nil {
		return rec, err
	}
	err = json.Unmarshal(data, &rec)
	return rec, err
}

// alive is true only while the very process that wrote the record runs. A zombie does not.
func (r record) alive() bool {
	if r.PID <= 1 || r.Boot != bootID() {
		return false
	}
	start, phase, err := procStat(r.PID)
	return err == nil && start == r.Start && phase != 'Z' && phase != 'X'
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// procStat reads the start time and the state letter from /proc. The command name comes second and may
// itself contain spaces and brackets, so fields are counted from the last closing bracket.
func procStat(pid int) (start uint64, phase byte, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	i := bytes.LastIndexByte(data, ')')
	fields := bytes.Fields(data[i+1:])
	if i < 0 || len(fields) < 20 {
		return 0, 0, fmt.Errorf("unexpected content in /proc/%d/stat", pid)
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err
}

// ownBytes is the memory that would be free without the process, or 0 when it cannot be told. What is read
// from the executable is left out: all components share that file.
func ownBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// spawn starts s in a session of its own, so that it outlives this command and its terminal. The child
// first records itself and then becomes the component (see Exec): whatever happens to this process
// meanwhile, no component runs without a record.
func spawn(dir, executable string, s spec, held *lock) (*exec.Cmd, error) {
	out, err := openLog(logPath(dir, s.name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	args := append([]string{ExecCommand, recordPath(dir, s.name), s.digest(), s.path, s.name}, s.args...)
	cmd := exec.Command(executable, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.ExtraFiles = []*os.File{held.file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}
	return cmd, nil
}

// maxLog is the size from which a log is set aside when its component starts again.
const maxLog = 10 << 20

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// ExecCommand is the hidden first argument with which spawn calls this executable.
const ExecCommand = "exec-recorded"

// Exec is the child's half of spawn: it records the process it runs in and replaces itself with the
// program. Arguments: record file, digest, program, name to run it under, and the program's arguments.
func Exec(args []string) error {
	if len(args) < 4 {
		return errors.New(ExecCommand + " is used by `up` itself and takes no part in anything else")
	}
	// The inherited lock must end with the record, not live on in the component, and whatever the caller
	// of `up` had open (a lock of its own, a pipe) must not be held by a process that outlives it.
	closeOnExec()
	start, _, err := procStat(os.Getpid())
	if err != nil {
		return err
	}
	rec := record{PID: os.Getpid(), Start: start, Boot: bootID(), Digest: args[1]}
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := writeFile(args[0], data, 0o600); err != nil {
		return err
	}
	return fmt.Errorf("running %s: %w", args[2], syscall.Exec(args[2], args[3:], os.Environ()))
}

// closeOnExec keeps everything but the standard streams from the program that replaces this one.
func closeOnExec() {
	const first, most = 3, 1024
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		for fd := first; fd < most; fd++ {
			syscall.CloseOnExec(fd)
		}
		return
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
}

// grace is how long a process may take to end by itself.
const grace = 15 * time.Second

// stop ends the recorded process if it still runs, and forgets it. The handle is taken before the
// identity is checked and the signal goes through the handle, so that a number which is reused in
// between is never signalled.
func stop(ctx context.Context, dir, name string) (ended bool, err error) {
	rec, err := readRecord(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot tell which process is %s: %w", name, err)
	}
	proc, err := os.FindProcess(rec.PID)
	if err != nil || !rec.alive() {
		return false, os.Remove(recordPath(dir, name))
	}
	defer func() { _ = proc.Release() }()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return false, fmt.Errorf("ending %s (process %d): %w", name, rec.PID, err)
		}
		if err := waitUntil(ctx, grace, func() bool { return !rec.alive() }); err == nil {
			return true, os.Remove(recordPath(dir, name))
		} else if ctx.Err() != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("%s (process %d) did not end even when killed", name, rec.PID)
}

// waitUntil asks for the condition often at first and then ten times a second.
func waitUntil(ctx context.Context, limit time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
