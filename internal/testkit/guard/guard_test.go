// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// asVictim makes the test binary one that is killed.
const asVictim = "GUARD_VICTIM"

// TestKilled: what a test has started ends when the test is killed, with a child in the same group and one that made a group
// of its own, as those of PostgreSQL do; and the record of it goes.
func TestKilled(t *testing.T) {
	if os.Getenv(asVictim) != "" {
		server := exec.Command("/bin/sh", "-c", `sleep 600 & echo $!; setsid sh -c 'echo $$; exec sleep 600' & wait`)
		server.Stdout = os.Stdout
		if err := guard.Start(server); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(os.Stdout, "server", server.Process.Pid)
		_ = guard.Wait(server)
		return
	}
	if guard.Records() == "" {
		t.Skip("there is no /proc to look at")
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	victim.Env = append(os.Environ(), asVictim+"=yes")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	server := 0
	for lines := bufio.NewScanner(out); len(pids) < 3 && lines.Scan(); {
		word, isServer := strings.CutPrefix(lines.Text(), "server ")
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Errorf("it said %q", lines.Text())
			break
		}
		pids = append(pids, pid)
		if isServer {
			server = pid
		}
	}
	record := filepath.Join(guard.Records(), strconv.Itoa(server))
	line, err := os.ReadFile(record)
	if fields := strings.Fields(string(line)); err != nil || len(fields) != 4 || fields[2] != strconv.Itoa(victim.Process.Pid) {
		t.Errorf("the record says %q, %v; want it to belong to %d", line, err, victim.Process.Pid)
	}
	if err := victim.Process.Kill(); err != nil || server == 0 {
		t.Errorf("%v; the server is %d, all are %v", err, server, pids)
	}
	_ = victim.Wait()
	testkit.Eventually(t, 10*time.Second, "the processes and the record to be gone", func() error {
		for _, pid := range pids {
			if runs(pid) {
				return fmt.Errorf("%d still runs", pid)
			}
		}
		if _, err := os.Stat(record); !os.IsNotExist(err) {
			return errors.New("it is still on record")
		}
		return nil
	})
}

// runs tells whether a process does anything yet: one that has ended may wait for whoever asks how.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// TestRecord: a process is on record while it runs, in words that tell it from a later one, and not afterwards.
func TestRecord(t *testing.T) {
	if guard.Records() == "" {
		t.Skip("there is no /proc to look at")
	}
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if group, err := syscall.Getpgid(cmd.Process.Pid); err != nil || group != cmd.Process.Pid {
		t.Errorf("it is in group %d, %v", group, err)
	}
	record := filepath.Join(guard.Records(), strconv.Itoa(cmd.Process.Pid))
	got, err := os.ReadFile(record)
	if err != nil {
		t.Error(err)
	}
	want, err := guard.Line(cmd.Process.Pid)
	if err != nil || string(got) != want+"\n" {
		t.Errorf("the record says %q, want %q, %v", got, want, err)
	}
	_ = in.Close()
	if err := guard.Wait(cmd); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("the record of an ended process: %v", err)
	}
}

func TestNoSuchProgram(t *testing.T) {
	if err := guard.Start(exec.Command(filepath.Join(t.TempDir(), "none"))); err == nil {
		t.Error("a program that is not there was started")
	}
}
