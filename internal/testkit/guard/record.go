// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Records is the directory that has a file for each process that tests of this user started and that may still run, for whoever
// cleans up after a machine on which guards were killed as well. The file has the name of the process id, and one line: when
// the process began (in clock ticks since boot, field 22 of /proc/<pid>/stat) and in which boot, which together tell it from a
// later process with the same id, and then the id and the begin of the test process that it belongs to. Records is empty where
// nothing can be recorded: without /proc, or when the directory belongs to somebody else, who might put any process there.
var Records = sync.OnceValue(func() string {
	if _, err := Line(os.Getpid()); err != nil {
		return ""
	}
	dir := filepath.Join(os.TempDir(), "modelplane-testkit-run")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return ""
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return ""
	}
	return dir
})

// Line is what the record of a process says.
func Line(pid int) (string, error) {
	began, err := ticks(pid)
	if err != nil {
		return "", err
	}
	owner, err := Owner()
	if err != nil {
		return "", err
	}
	return began + " " + owner, nil
}

// Owner is the part of a line that is the same for all processes of this test process.
var Owner = sync.OnceValues(func() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	began, err := ticks(os.Getpid())
	return fmt.Sprintf("%s %d %s", strings.TrimSpace(string(boot)), os.Getpid(), began), err
})

// ticks tells when a process began.
func ticks(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is a name in parentheses, which may contain both those and spaces.
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	const beyond, began = 3, 22 // the first field behind the name, and the one asked for
	if len(fields) <= began-beyond {
		return "", fmt.Errorf("process %d has the strange state %q", pid, text)
	}
	return fields[began-beyond], nil
}

// record and forget keep the record of a process. That there is none fails no test: the guard does without.
func record(pid int) {
	if dir := Records(); dir != "" {
		if line, err := Line(pid); err == nil {
			_ = os.WriteFile(filepath.Join(dir, strconv.Itoa(pid)), []byte(line+"\n"), 0o600)
		}
	}
}

func forget(pid int) {
	if dir := Records(); dir != "" {
		_ = os.Remove(filepath.Join(dir, strconv.Itoa(pid)))
	}
}
