// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
)

const (
	stopPatience = time.Minute
	// ticks per second in /proc, the same on every Linux that Go runs on.
	ticks = 100
)

// manager is a manager of InferenceServices, as a process of its own.
type manager struct {
	*testkit.Program
	started time.Time
}

// ours is the command that runs our manager.
func ours(t testing.TB, binary string, workers int) string {
	t.Helper()
	port := testkit.FreePort(t)
	return fmt.Sprintf("%s manager --enable=serving --namespace=%s --workers=%d "+
		"--webhook-host=127.0.0.1 --webhook-port=%d --webhook-url=https://127.0.0.1:%d "+
		"--health-probe-bind-address=0 --metrics-bind-address=0 --shutdown-delay=0s", binary, home, workers, port, port)
}

// start runs a manager. The shell that reads the command becomes the manager.
func (b *bed) start(command, kubeconfig string) *manager {
	b.t.Helper()
	m := &manager{started: time.Now()}
	m.Program = b.Program(b.t, "manager", []string{"KUBECONFIG=" + kubeconfig}, "/bin/sh", "-c", "exec "+command)
	return m
}

// usage is what the process has used so far.
type usage struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakRSSMiB float64 `json:"peakRSSMiB"`
	RSSMiB     float64 `json:"rssMiB"`
}

func (m *manager) usage(t testing.TB) usage {
	t.Helper()
	select {
	case <-m.Ended():
		t.Fatalf("the manager ended. It wrote:\n%s", m.Output())
	default:
	}
	u, err := usageOf(m.PID())
	if err != nil {
		t.Fatalf("read what the manager uses: %v", err)
	}
	return u
}

func usageOf(pid int) (usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return usage{}, err
	}
	var u usage
	u.CPUSeconds = float64(statTicks(string(stat))) / ticks
	u.PeakRSSMiB, u.RSSMiB = statusMiB(string(status), "VmHWM"), statusMiB(string(status), "VmRSS")
	return u, nil
}

// statTicks adds user and system time. The name in parentheses may have spaces.
func statTicks(stat string) int {
	const user, system = 11, 12 // counted from behind the name
	_, rest, _ := strings.Cut(stat[strings.LastIndex(stat, ")")+1:], " ")
	fields := strings.Fields(rest)
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.Atoi(fields[user])
	s, _ := strconv.Atoi(fields[system])
	return u + s
}

func statusMiB(status, field string) float64 {
	for line := range strings.Lines(status) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			kib, _ := strconv.Atoi(strings.Fields(value)[0])
			return float64(kib) / 1024
		}
	}
	return 0
}

// caughtUp waits until the manager, after its start, has watches, sends nothing
// any more and hardly uses the processor, and returns when that began.
func (m *manager) caughtUp(t testing.TB, p *proxy, since testkit.Counts, quiet, patience time.Duration) time.Time {
	t.Helper()
	const hardly = 0.1 // of one core
	testkit.Eventually(t, patience, "the manager to watch InferenceServices", func() error {
		m.usage(t)
		if p.Since(since).Of("watch", "serving.kserve.io/inferenceservices") == 0 {
			return fmt.Errorf("it does not yet; it wrote:\n%s", m.Output())
		}
		return nil
	})
	begin := time.Now()
	for {
		before, last := m.usage(t).CPUSeconds, p.settled(t, quiet, patience)
		used := m.usage(t).CPUSeconds - before
		if used < hardly*quiet.Seconds() {
			return last
		}
		if time.Since(begin) > patience {
			t.Fatalf("the manager does not come to rest after its start:\n%s", m.Output())
		}
	}
}
