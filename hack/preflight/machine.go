// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// machine is what the kernel says, read from where it says so: tests have other places.
type machine struct{ proc, sys string }

// ticks of the kernel's clock in a second, as every Linux shows them to programs.
const ticks = 100

// process is a number and what makes it one process's own: numbers are reused.
type process struct {
	pid, group int
	start      uint64
	ended      bool
}

// process reads /proc. The command name comes second and may itself contain spaces and brackets, so fields are counted
// from the last closing bracket.
func (m machine) process(pid int) (process, error) {
	data, err := os.ReadFile(filepath.Join(m.proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, err
	}
	i := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[i+1:]))
	if i < 0 || len(fields) < 20 {
		return process{}, fmt.Errorf("unexpected content of the status of process %d", pid)
	}
	group, err := strconv.Atoi(fields[2])
	if err != nil {
		return process{}, err
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return process{pid: pid, group: group, start: start, ended: fields[0] == "Z" || fields[0] == "X"}, err
}

// alive is true only while the very process runs that started then.
func (m machine) alive(pid int, start uint64, boot string) bool {
	if pid <= 1 || boot != m.boot() {
		return false
	}
	now, err := m.process(pid)
	return err == nil && now.start == start && !now.ended
}

func (m machine) boot() string {
	return m.line("sys/kernel/random/boot_id")
}

// line of a file below proc; empty when there is none.
func (m machine) line(name string) string {
	data, err := os.ReadFile(filepath.Join(m.proc, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (m machine) pids() []int {
	entries, err := os.ReadDir(m.proc)
	if err != nil {
		return nil
	}
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// of is a path of a process below proc.
func (m machine) of(pid int, name string) string {
	return filepath.Join(m.proc, strconv.Itoa(pid), name)
}

// command is how a process was called, for a person.
func (m machine) command(pid int) string {
	data, _ := os.ReadFile(m.of(pid, "cmdline"))
	if words := strings.Join(strings.FieldsFunc(string(data), func(r rune) bool { return r == 0 }), " "); words != "" {
		const most = 100
		return strings.ToValidUTF8(words[:min(len(words), most)], "")
	}
	return m.line(strconv.Itoa(pid) + "/comm")
}

// sinceBoot is the clock that start times count on.
func (m machine) sinceBoot() (time.Duration, error) {
	first, _, _ := strings.Cut(m.line("uptime"), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	return time.Duration(seconds * float64(time.Second)), err
}

// tests lists processes that may be a test or one of the project's own tools, by what they run: `go test` and `go run`
// build what they start in a folder of their own.
func (m machine) tests() []process {
	var found []process
	for _, pid := range m.pids() {
		exe, err := os.Readlink(m.of(pid, "exe"))
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe = strings.TrimSuffix(exe, " (deleted)")
		if !strings.HasSuffix(exe, ".test") && !strings.Contains(exe, "/go-build") {
			continue
		}
		if one, err := m.process(pid); err == nil && !one.ended {
			found = append(found, one)
		}
	}
	return found
}

// testBefore is a living test that was there at a time already, and therefore may have made what was made then; 0 if
// there is none. When it cannot be told, this process stands for one.
func (m machine) testBefore(at, now time.Time) int {
	const inexact = 2 * time.Second
	up, err := m.sinceBoot()
	if err != nil {
		return os.Getpid()
	}
	for _, one := range m.tests() {
		age := up - time.Duration(one.start)*time.Second/ticks
		if now.Add(-age).Before(at.Add(inexact)) {
			return one.pid
		}
	}
	return 0
}
