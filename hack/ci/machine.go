// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// parentOf reads /proc/PID/stat. The name of the program, in parentheses, may contain anything.
func parentOf(pid int) (int, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	_, rest, ok := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// descendants are a process and all that it and they have started.
func descendants(root int) []int {
	entries, _ := os.ReadDir("/proc") // elsewhere there is none, and only the process itself is known
	children := map[int][]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if parent, ok := parentOf(pid); ok {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// isTest says whether a process is a test binary, which prints where it stands when it is told to quit.
func isTest(pid int) bool {
	path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return err == nil && strings.HasSuffix(strings.TrimSuffix(path, " (deleted)"), ".test")
}

// machineNow is the load and the memory that is left.
func machineNow() string {
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	available := 0.0
	info, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			available = kib / (1 << 20)
		}
	}
	return fmt.Sprintf("load %s, %.1f GiB free", first, available)
}

// kernelLog is what the kernel wrote about processes that it killed for want of memory. Where it may not be read there is
// nothing.
func kernelLog(since time.Time) []string {
	out, err := exec.Command("dmesg").Output()
	if err != nil {
		return nil
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return nil
	}
	up, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		return nil
	}
	return killedForMemory(string(out), up-time.Since(since).Seconds())
}

// killedForMemory finds the lines about killed processes after a moment, in seconds since the start of the machine. A container
// that was killed for its own limit says nothing of the machine.
func killedForMemory(log string, after float64) []string {
	var killed []string
	for line := range strings.Lines(log) {
		stamp, text, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "["), "]")
		at, err := strconv.ParseFloat(strings.TrimSpace(stamp), 64)
		if ok && err == nil && at >= after && strings.Contains(text, "Killed process") && !strings.Contains(text, "Memory cgroup") {
			killed = append(killed, strings.TrimSpace(text))
		}
	}
	return killed
}

func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	const tail = 4096
	buffer := make([]byte, tail)
	n, _ := f.ReadAt(buffer, max(0, info.Size()-tail)) // less than that is there: good
	lines := strings.Split(strings.TrimSpace(string(buffer[:n])), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

func short(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
