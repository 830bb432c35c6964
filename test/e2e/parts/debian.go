// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/download"
)

// needed is a program that tests or the local cluster call, in one of several places, and the package of Debian that has it.
// A name is looked for where programs of the machine are, a path with a slash is a pattern.
type needed struct {
	pkg    string
	places []string
}

// ofDebian is what the local cluster, the servers of the test kit and the compiler of the ONNX server are. A test compares
// it with what these say themselves.
var ofDebian = []needed{
	{"containerd", []string{"containerd"}},
	{"containerd", []string{"containerd-shim-runc-v2"}},
	{"containerd", []string{"ctr"}},
	{"runc", []string{"runc"}},
	{"containernetworking-plugins", []string{"/usr/lib/cni/ptp"}},
	{"containernetworking-plugins", []string{"/usr/lib/cni/host-local"}},
	{"nftables", []string{"nft"}},
	{"iproute2", []string{"ip"}},
	{"postgresql", []string{"/usr/lib/postgresql/*/bin/postgres"}},
	{"mariadb-server-core", []string{"mariadbd"}},
	{"mariadb-server-core", []string{"mariadb-install-db"}},
	{"mariadb-client-core", []string{"my_print_defaults"}},
	{"redis-tools", []string{"valkey-server", "redis-server", "valkey-check-rdb", "redis-check-rdb"}},
	{"gcc", []string{"gcc"}},
	{"libc6-dev", []string{"/usr/include/stdlib.h"}},
	{"curl", []string{"curl"}},
}

// programDirs are where Debian keeps programs. Some of them are not in everybody's PATH.
const programDirs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// policy is the file by which Debian asks whether a package may start its service.
const policy = "/usr/sbin/policy-rc.d"

// debian is a machine on which packages are installed.
type debian struct {
	apt    string // empty if it is no Debian
	root   bool
	policy string
	lock   string // beside which a file keeps two from installing at once
	dirs   []string
	needed []needed
	tell   io.Writer
}

// debianPackages installs all that is missing, so that nobody else does so while something is measured. It prints no path.
func debianPackages(ctx context.Context) (string, error) {
	apt, _ := exec.LookPath("apt-get") // empty says the same
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	d := debian{
		apt: apt, root: os.Geteuid() == 0, policy: policy, lock: filepath.Join(cache, "modelplane", "debian"), needed: ofDebian, tell: os.Stderr,
	}
	d.dirs = append(filepath.SplitList(os.Getenv("PATH")), filepath.SplitList(programDirs)...)
	return "", d.install(ctx)
}

// missing are the packages of programs that are nowhere.
func (d debian) missing() []string {
	var missing []string
	for _, n := range d.needed {
		if !slices.ContainsFunc(n.places, d.has) && !slices.Contains(missing, n.pkg) {
			missing = append(missing, n.pkg)
		}
	}
	return missing
}

func (d debian) has(program string) bool {
	patterns := []string{program}
	if !strings.Contains(program, "/") {
		patterns = nil
		for _, dir := range d.dirs {
			patterns = append(patterns, filepath.Join(dir, program))
		}
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		found, err := filepath.Glob(pattern)
		return err == nil && len(found) > 0
	})
}

func (d debian) install(ctx context.Context) error {
	missing := d.missing()
	if len(missing) == 0 {
		return nil
	}
	byHand := "apt-get install --no-install-recommends " + strings.Join(missing, " ")
	if d.apt == "" || !d.root {
		return fmt.Errorf("%w: this machine lacks %s; install what is missing, on Debian as root with: %s", errUnavailable, strings.Join(missing, ", "), byHand)
	}
	// Who comes second would not forbid services any more when the first one is done.
	unlock, err := download.Lock(ctx, d.tell, d.lock)
	if err != nil {
		return err
	}
	defer unlock()
	if missing = d.missing(); len(missing) == 0 {
		return nil
	}
	fmt.Fprintf(d.tell, "    installing %s\n", strings.Join(missing, ", "))
	if err := d.withoutServices(func() error { return d.get(ctx, missing) }); err != nil {
		return fmt.Errorf("%w: %s: %w", errUnavailable, byHand, err)
	}
	if still := d.missing(); len(still) > 0 {
		return fmt.Errorf("%w: %s lacks programs although it is installed", errUnavailable, strings.Join(still, ", "))
	}
	return nil
}

// get asks for all packages at once. The lists of a new machine may be missing, or older than what they lead to, and are
// fetched before another try.
func (d debian) get(ctx context.Context, packages []string) error {
	first := true
	return download.Try(ctx, d.tell, func(ctx context.Context) error {
		if !first {
			if err := d.call(ctx, "update", "-q"); err != nil {
				return err
			}
		}
		first = false
		return d.call(ctx, append([]string{"install", "-q", "--yes", "--no-install-recommends"}, packages...)...)
	})
}

// call waits for somebody else who installs. An end is asked for, since what is killed meanwhile leaves a package half there.
func (d debian) call(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return nil
}

// withoutServices keeps Debian from starting a containerd and a PostgreSQL of its own, unless the machine has a rule for
// that already.
func (d debian) withoutServices(install func() error) error {
	f, err := os.OpenFile(d.policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return install()
	}
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(d.policy) }()
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return install()
}
