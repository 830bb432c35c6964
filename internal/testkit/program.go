// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// Program is a process beside the test. It ends with the test at the
// latest, and with the test process however that ends.
type Program struct {
	Name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// Program starts an executable under a name of its own. What it writes is kept;
// see Output. The variables come on top of the test's environment.
func (c *Cluster) Program(t testing.TB, name string, variables []string, path string, args ...string) *Program {
	t.Helper()
	launcher, err := c.processes.launcher(name, path, "")
	if err != nil {
		t.Fatalf("preparing %s: %v", name, err)
	}
	cmd := exec.Command(launcher, args...)
	cmd.Env = append(os.Environ(), variables...)
	return run(t, name, cmd, launcher+".log", func() { _ = os.Remove(launcher + ".pid") })
}

// RunProgram runs a command beside no cluster at all, to the same end: that of the test at
// the latest. Both its outputs are kept.
func RunProgram(t testing.TB, name string, cmd *exec.Cmd) *Program {
	t.Helper()
	return run(t, name, cmd, filepath.Join(t.TempDir(), name+".log"), func() {})
}

func run(t testing.TB, name string, cmd *exec.Cmd, log string, after func()) *Program {
	t.Helper()
	p := &Program{Name: name, cmd: cmd, log: log, ended: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("preparing %s: %v", name, err)
	}
	defer func() { _ = out.Close() }() // the process has one of its own
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := guard.Start(p.cmd); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = guard.Wait(p.cmd)
		after()
	}()
	t.Cleanup(p.Kill)
	return p
}

// PID of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Memory is what the process has now and the most that it had, in MiB.
func (p *Program) Memory() (now, most float64, err error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID()), "status"))
	if err != nil {
		return 0, 0, err
	}
	for name, into := range map[string]*float64{"VmRSS:": &now, "VmHWM:": &most} {
		_, rest, _ := strings.Cut(string(status), name)
		var kib float64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			return 0, 0, fmt.Errorf("%s tells nothing of its memory: %w", p.Name, err)
		}
		*into = kib / 1024
	}
	return now, most, nil
}

// Ended is closed once the process has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Signal sends one to the process.
func (p *Program) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signalling %s: %v", p.Name, err)
	}
}

// ExitCode waits for the end of the process.
func (p *Program) ExitCode(t testing.TB, most time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience(t, most)):
		t.Fatalf("%s does not end", p.Name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Kill ends the process without a word and waits for its end.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Stop asks the process to end and returns what the system counted for it. One
// that takes longer than that is killed.
func (p *Program) Stop(t testing.TB, most time.Duration) *syscall.Rusage {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience(t, most)):
		t.Logf("%s did not stop within %s and was killed", p.Name, most)
		p.Kill()
	}
	usage, _ := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return usage
}

// Output is what the process wrote so far, or the end of it if that is long.
func (p *Program) Output() string {
	const most = 16 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(what %s wrote cannot be read: %v)", p.Name, err)
	}
	return string(text[max(0, len(text)-most):])
}
