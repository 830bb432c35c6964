// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// guardScript waits until its standard input closes, which happens at the latest
// when the test process is gone, however it went. Then it ends the servers by the
// process ids they left behind and removes their directory and their records. A test
// binary that panics, times out or is killed thus leaves nothing running.
const guardScript = `cat >/dev/null
for file in "$1"/*.pid; do
  [ -f "$file" ] || continue
  pid=$(cat "$file")
  kill -9 "$pid" 2>/dev/null
  [ -z "$2" ] || rm -f "$2/$pid"
done
rm -rf "$1" || { sleep 1; rm -rf "$1"; }`

// launcherScript leaves its process id and becomes the server, which stays the same process.
const launcherScript = `#!/bin/sh
%s
echo $$ > %s
exec env %s %s "$@" 2>> %s
`

// recordScript puts the launcher on record as package guard does with what it starts itself. Who starts
// a server this way begins by asking it for its options; the record of that process goes.
const recordScript = `pid=%s records=%s owner=%s
record() {
  read -r stat </proc/$$/stat
  set -- ${stat##*) }
  echo "${20} $owner" >"$records/$$"
}
[ ! -f "$pid" ] || rm -f "$records/$(cat "$pid")"
record`

// processes is the directory and the life of the servers of one cluster.
type processes struct {
	assets string
	dir    string
	guard  *exec.Cmd
	alive  io.Closer
}

// findAssets looks for kube-apiserver, etcd and kubectl.
func findAssets() (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			cache = filepath.Join(os.Getenv("HOME"), ".cache")
		}
		dir = filepath.Join(cache, "modelplane", "local", "current")
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("this test needs a real API server, and %s has no %s: "+
				"run `make test`, which builds it once, or point KUBEBUILDER_ASSETS to a directory that has it", dir, name)
		}
	}
	return dir, nil
}

func newProcesses(assets string) (*processes, error) {
	dir, err := os.MkdirTemp("", "modelplane-testkit-")
	if err != nil {
		return nil, err
	}
	p := &processes{assets: assets, dir: dir, guard: exec.Command("/bin/sh", "-c", guardScript, "guard", dir, guard.Records())}
	// A session of its own: an interrupt from the keyboard must not end the guard before its work is done.
	p.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if p.alive, err = p.guard.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.guard.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard of the test servers: %w", err)
	}
	return p, nil
}

// end lets the guard end all servers and waits for it.
func (p *processes) end() {
	_ = p.alive.Close()
	_ = p.guard.Wait()
}

func (p *processes) binary(name string) string { return filepath.Join(p.assets, name) }

// fewerCollections lets etcd and the API server collect garbage less often than
// in production: memory is there, and processor time is what tests wait for.
// Nothing that is measured may run with it.
const fewerCollections = "GOGC=400"

// server is a launcher of one that is put on record.
func (p *processes) server(name string) (string, error) {
	record, pid := "", filepath.Join(p.dir, name+".pid")
	if records := guard.Records(); records != "" {
		owner, err := guard.Owner()
		if err != nil {
			return "", err
		}
		record = fmt.Sprintf(recordScript, shellQuote(pid), shellQuote(records), shellQuote(owner))
	}
	return p.launcher(name, p.binary(name), record, fewerCollections)
}

// launcher writes a script that starts an executable under the eyes of the guard,
// after something else, with variables on top of its environment.
func (p *processes) launcher(name, executable, first string, variables ...string) (string, error) {
	path := filepath.Join(p.dir, name)
	script := fmt.Sprintf(launcherScript, first, shellQuote(path+".pid"), strings.Join(variables, " "), shellQuote(executable), shellQuote(path+".log"))
	return path, os.WriteFile(path, []byte(script), 0o700)
}

func shellQuote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// logTails returns the last lines of each server's log, to explain a failed start.
func (p *processes) logTails() string {
	const lines = 15
	var out strings.Builder
	logs, _ := filepath.Glob(filepath.Join(p.dir, "*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&out, "--- end of %s\n%s\n", filepath.Base(path), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return out.String()
}

// waitReady waits for the hooks that run after start, which among others create
// the built-in roles and namespaces.
func waitReady(cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	last := errors.New("no answer yet")
	err = poll(ctx, func() (bool, error) {
		last = client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the API server is not ready after %s: %w", startTimeout, last)
	}
	return nil
}

// poll calls done until it says so, returns an error or ctx ends, at first every
// 20 ms and then at growing distances of up to 250 ms.
func poll(ctx context.Context, done func() (bool, error)) error {
	const first, slowest = 20 * time.Millisecond, 250 * time.Millisecond
	for wait := first; ; wait = min(wait*3/2, slowest) {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Asset is the path of one of the servers that tests run, such as etcd.
func Asset(t testing.TB, name string) string {
	t.Helper()
	dir, err := findAssets()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}
