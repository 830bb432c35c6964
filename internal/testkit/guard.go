// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// programGuard hears of processes that begin (+) and end (-). Its standard input closes at the latest when the test process
// is gone, however it went; then it ends those that are left, each with what it started itself.
const programGuard = `left=
while read -r what pid; do
  others=
  for p in $left; do [ "$p" = "$pid" ] || others="$others $p"; done
  left=$others
  [ "$what" = + ] && left="$left $pid"
done
for p in $left; do kill -9 "-$p" 2>/dev/null; done
exit 0`

// guards is the guard of this test process, which is there from its first program on.
var guards struct {
	sync.Mutex
	in io.Writer
}

// guarded tells the guard that a process has begun, or has ended.
func guarded(what string, pid int) error {
	guards.Lock()
	defer guards.Unlock()
	if guards.in == nil {
		guard := exec.Command("/bin/sh", "-c", programGuard)
		// A session of its own: an interrupt from the keyboard must not end the guard before its work is done.
		guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, err := guard.StdinPipe()
		if err != nil {
			return err
		}
		if err := guard.Start(); err != nil {
			return fmt.Errorf("starting the guard of programs: %w", err)
		}
		guards.in = in
	}
	_, err := fmt.Fprintln(guards.in, what, pid)
	return err
}
