// SPDX-License-Identifier: Apache-2.0

// Command preflight makes a machine fit for the tests, or says in one line each why it is not: a test that meets the
// left-overs of another, or a machine that is too small, fails in a way that looks like a defect of the code. It runs
// before everything else in CI, and before the end-to-end tests.
//
// It ends and removes only what it can prove to be left by tests that have ended. It must not end a cluster that somebody
// uses, and must not depend on other modules: it runs first on a machine that has only Go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// unfit is the exit status that tells a machine that is not ready from a preflight that failed.
const unfit = 3

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := preflight{
		machine: machine{proc: "/proc", sys: "/sys"}, temp: filepath.Clean(os.TempDir()), uid: os.Getuid(),
		out: os.Stdout, complain: os.Stderr,
	}
	flag.BoolVar(&p.ci, "ci", os.Getenv("CI") != "", "end clusters, and remove folders, that ended tests left; set by CI as well")
	flag.StringVar(&p.local, "local", "", "the modelplane-local that ends clusters (default the newest that hack/assets has built)")
	flag.Parse()
	var err error
	if p.cache, err = cacheDir(); err != nil {
		fmt.Fprintln(os.Stderr, "preflight:", err)
		return 1
	}
	return p.check(ctx)
}

// cacheDir is where the project keeps what takes long to build; see hack/assets.
func cacheDir() (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no place of built programs; set HOME or XDG_CACHE_HOME: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "modelplane"), nil
}

// preflight is one look at a machine.
type preflight struct {
	machine
	temp, cache, local string
	// uid is the user whose left-overs may be touched.
	uid int
	// ci allows to end clusters and to remove folders: nobody's work is on such a machine.
	ci            bool
	out, complain io.Writer

	done    []string
	refused bool
}

// check does what it can and refuses the rest. What is ended comes first: it holds ports and memory.
func (p *preflight) check(ctx context.Context) int {
	p.endServers(ctx)
	p.endClusters(ctx)
	if p.ci {
		p.removeFolders()
	}
	p.raiseWatches()
	p.checkPorts()
	p.checkMemory()
	p.checkDisks()
	if p.refused {
		return unfit
	}
	did := ""
	if len(p.done) > 0 {
		did = "; " + strings.Join(p.done, ", ")
	}
	fmt.Fprintf(p.out, "preflight: this machine is ready%s\n", did)
	return 0
}

// did is told in the one line at the end.
func (p *preflight) did(format string, args ...any) {
	p.done = append(p.done, fmt.Sprintf(format, args...))
}

// warn is about what is not as it should be, but may do.
func (p *preflight) warn(format string, args ...any) {
	fmt.Fprintf(p.complain, "preflight: warning: "+format+"\n", args...)
}

func (p *preflight) refuse(format string, args ...any) {
	p.refused = true
	fmt.Fprintf(p.complain, "preflight: it is this machine and not the code: "+format+"\n", args...)
}
