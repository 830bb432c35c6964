// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/modelplane/modelplane/hack/internal/progress"
)

// binary is the multi-call program; links are the names it is called by. pause is for the pods of its node.
const binary, pause = "modelplane-local", "pause"

var links = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}

// keep bounds the cache: each build weighs well over 100 MB, and a few are kept so that switching
// between branches does not build every time.
const keep = 4

// ensure returns the directory for the sources as they are now, building it when it does not exist.
// A lock file makes parallel callers wait for one build instead of running several.
func ensure(ctx context.Context, source, cache string) (string, error) {
	key, err := cacheKey(ctx, source)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if !complete(dir) {
		if err := build(ctx, source, cache, dir); err != nil {
			return "", err
		}
	}
	now := time.Now()
	if err := errors.Join(os.Chtimes(dir, now, now), pointCurrent(cache, key)); err != nil {
		return "", err
	}
	return dir, prune(cache, key)
}

// lock waits by asking again rather than by a blocking flock, so that an interrupt ends the wait.
func lock(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
		}
		if !said {
			fmt.Fprintln(os.Stderr, "waiting for another build of the local control plane to finish")
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-tick.C:
		}
	}
}

func complete(dir string) bool {
	for _, name := range append([]string{binary, pause}, links...) {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// settings are those of every other build of the project, so that packages which several programs use are
// compiled once.
var settings = []string{"CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false"}

// build works in a temporary directory beside the final one and renames it at the end: a directory
// with the final name is always whole, whatever interrupted an earlier build.
func build(ctx context.Context, source, cache, dir string) error {
	work, err := os.MkdirTemp(cache, "building-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	flags, err := versionFlags(source)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-v",
		"-ldflags", flags, "-o", work+"/", "./cmd/"+binary, "./cmd/"+pause)
	cmd.Dir, cmd.Env = source, append(os.Environ(), settings...)
	fmt.Fprintln(os.Stderr, "building the local control plane: about 8 minutes the first time on 2 cores, seconds later on")
	start := time.Now()
	compiled, err := progress.Run(cmd, os.Stderr)
	if err != nil {
		return fmt.Errorf("building the local control plane: %w", err)
	}
	fmt.Fprintf(os.Stderr, "built the local control plane in %s (%d packages compiled)\n", time.Since(start).Round(time.Second), compiled)
	for _, name := range links {
		if err := os.Symlink(binary, filepath.Join(work, name)); err != nil {
			return err
		}
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(work, dir)
}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`)

// versionFlags reads the version from go.mod, where it is pinned, so that what the programs say about
// themselves cannot drift from what they are. Without these flags the server reports a version that
// kubectl cannot parse.
func versionFlags(source string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", err
	}
	m := kubernetesVersion.FindSubmatch(mod)
	if m == nil {
		return "", fmt.Errorf("%s/go.mod does not require k8s.io/kubernetes", source)
	}
	values := [][2]string{
		{"gitVersion", string(m[1])}, {"gitMajor", string(m[2])}, {"gitMinor", string(m[3])},
		{"gitCommit", ""}, {"gitTreeState", "archive"}, {"buildDate", "1970-01-01T00:00:00Z"},
	}
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range values {
			flags = append(flags, "-X", pkg+"."+v[0]+"="+v[1])
		}
	}
	return strings.Join(flags, " "), nil
}

// pointCurrent swaps the link in one rename: programs started through it meanwhile find either the old
// or the new build, never none.
func pointCurrent(cache, key string) error {
	current := filepath.Join(cache, "current")
	if to, err := os.Readlink(current); err == nil && to == key {
		return nil
	}
	next := filepath.Join(cache, fmt.Sprintf("current-%d", os.Getpid()))
	if err := os.Symlink(key, next); err != nil {
		return err
	}
	return os.Rename(next, current)
}

var keyName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// prune removes the builds that were asked for longest ago, and leftovers of interrupted builds. The
// caller holds the lock, so no build is under way.
func prune(cache, key string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	var builds []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), "building-"):
			if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
				return err
			}
		case e.IsDir() && keyName.MatchString(e.Name()) && e.Name() != key:
			builds = append(builds, info)
		}
	}
	slices.SortFunc(builds, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, b := range builds {
		if i < keep-1 {
			continue
		}
		if err := os.RemoveAll(filepath.Join(cache, b.Name())); err != nil {
			return err
		}
	}
	return nil
}

// goEnv asks the toolchain what it would build for, which is part of what makes two builds the same.
func goEnv(ctx context.Context, source string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED", "GOFLAGS")
	cmd.Dir, cmd.Env = source, append(os.Environ(), settings...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its version: %w", err)
	}
	return bytes.TrimSpace(out), nil
}
