// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProgram(t *testing.T) {
	cluster := Start(t)
	t.Run("stops when asked and keeps what it wrote", func(t *testing.T) {
		p := cluster.Program(t, "polite", []string{"WORD=hello"}, "/bin/sh", "-c", `trap 'echo bye >&2; exit 0' TERM; echo $WORD; while :; do sleep 0.05; done`)
		Eventually(t, time.Minute, "the first word", func() error {
			if p.Output() != "hello\n" {
				return errors.New(p.Output())
			}
			return nil
		})
		if usage := p.Stop(t, time.Minute); usage == nil || usage.Maxrss == 0 {
			t.Errorf("what it used is not known: %+v", usage)
		}
		if got := p.Output(); got != "hello\nbye\n" {
			t.Errorf("it wrote %q", got)
		}
	})
	t.Run("is killed when it does not listen", func(t *testing.T) {
		p := cluster.Program(t, "rude", nil, "/bin/sh", "-c", `trap '' TERM; echo up; while :; do sleep 0.05; done`)
		Eventually(t, time.Minute, "it to listen no more", func() error {
			if p.Output() == "" {
				return errors.New("not yet")
			}
			return nil
		})
		p.Stop(t, 50*time.Millisecond)
		select {
		case <-p.Ended():
		default:
			t.Error("it still runs")
		}
	})
}

// envVictim makes a test process one that is killed.
const envVictim = "TESTKIT_VICTIM"

// TestProgramsDieWithTheirTest: what a test has started, and what that has started in turn, ends with the test also when it
// is killed. A program that has ended is nobody's to kill.
func TestProgramsDieWithTheirTest(t *testing.T) {
	if os.Getenv(envVictim) != "" {
		RunProgram(t, "short", exec.Command("/bin/true")).ExitCode(t, time.Minute)
		p := RunProgram(t, "parent", exec.Command("/bin/sh", "-c", `sleep 600 & echo $!; wait`))
		Eventually(t, time.Minute, "the child", func() error {
			if !strings.HasSuffix(p.Output(), "\n") {
				return errors.New("not yet")
			}
			return nil
		})
		_, _ = os.Stdout.WriteString("pids " + strconv.Itoa(p.PID()) + " " + p.Output())
		<-p.Ended()
		return
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestProgramsDieWithTheirTest$")
	victim.Env = append(os.Environ(), envVictim+"=yes")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) == 0 && lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "pids "); found {
			for word := range strings.FieldsSeq(text) {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
		}
	}
	if err := victim.Process.Kill(); err != nil || len(pids) != 2 {
		t.Fatalf("%v; the programs are %v", err, pids)
	}
	_ = victim.Wait()
	t.Cleanup(func() {
		for _, pid := range pids {
			if t.Failed() && stateOf(pid) != "" {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	Eventually(t, 10*time.Second, "the programs to end", func() error {
		for _, pid := range pids {
			if state := stateOf(pid); state != "" && state != "Z" {
				return errors.New(strconv.Itoa(pid) + " still runs")
			}
		}
		return nil
	})
}

// stateOf is the letter that says what a process does, empty if there is none.
func stateOf(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:min(1, len(rest))]
}
