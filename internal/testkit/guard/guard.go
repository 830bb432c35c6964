// SPDX-License-Identifier: Apache-2.0

// Package guard starts processes beside a test that end at the latest when the test process does, also when that is killed.
// It needs nothing but the standard library, so that tests of any module can use it without compiling a control plane. It is for
// tests and benches only.
package guard

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// script hears of processes that begin (+) and end (-). Its standard input closes at the latest when the test process is gone,
// however it went; then it ends those that are left, each with its group and with what it started itself, for a server such as
// PostgreSQL gives its children groups of their own. $1 is where the processes are on record.
const script = `end() {
  set -- "$1" $(cat "/proc/$1/task/"*/children 2>/dev/null)
  kill -9 "-$1" 2>/dev/null
  kill -9 "$1" 2>/dev/null
  shift
  for child in "$@"; do end "$child"; done
}
left=
while read -r what pid; do
  others=
  for p in $left; do [ "$p" = "$pid" ] || others="$others $p"; done
  left=$others
  [ "$what" = + ] && left="$left $pid"
done
for p in $left; do
  end "$p"
  [ -z "$1" ] || rm -f "$1/$p"
done
exit 0`

// guards is the guard of this test process, which is there from its first process on.
var guards struct {
	sync.Mutex
	in io.Writer
}

// tell lets the guard know that a process has begun, or has ended.
func tell(what string, pid int) error {
	guards.Lock()
	defer guards.Unlock()
	if guards.in == nil {
		sh := exec.Command("/bin/sh", "-c", script, "guard", Records())
		// A session of its own: an interrupt from the keyboard must not end the guard before its work is done.
		sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, err := sh.StdinPipe()
		if err != nil {
			return err
		}
		if err := sh.Start(); err != nil {
			return fmt.Errorf("starting the guard of processes: %w", err)
		}
		guards.in = in
	}
	_, err := fmt.Fprintln(guards.in, what, pid)
	return err
}

// Start starts a command in a process group of its own, as the user that it names. It ends with this process at the latest.
// Whoever starts it also waits for it, with Wait. The signal that Linux sends when a parent dies would not do: it comes when the
// thread ends that started the child, and the children of that live on.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return err
	}
	record(cmd.Process.Pid)
	if err := tell("+", cmd.Process.Pid); err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = Wait(cmd)
		return err
	}
	return nil
}

// Wait waits for the end of a command that Start started, which is nobody's to kill from then on.
func Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = tell("-", cmd.Process.Pid) // without a guard there is nobody to tell
	forget(cmd.Process.Pid)
	return err
}
