// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	binaryPackage  = "./cmd/modelplane"
	podPackage     = "./cmd/modelplane-pod"
	versionPackage = "github.com/modelplane/modelplane/internal/version"
	// podTags leaves gRPC's pages of requests out. They would bring templates along, for whose sake the linker keeps every
	// method of every type, and so memory of every pod.
	podTags = "grpcnotrace"
)

// compile builds the static binary for a platform. The toolchain's own stamp of the repository is left out, because it
// would differ between a clone and an unpacked archive of the same sources.
func compile(o options, p platform, into string) error {
	date := "unknown"
	if !o.date.IsZero() {
		date = o.date.Format(time.RFC3339)
	}
	ldflags := fmt.Sprintf("-s -w -buildid= -X %[1]s.version=%[2]s -X %[1]s.commit=%[3]s -X %[1]s.date=%[4]s",
		versionPackage, o.version, o.commit, date)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", o.tags(), "-ldflags", ldflags, "-o", into, o.pkg)
	cmd.Dir, cmd.Env = o.module, append(os.Environ(), p.environment()...)
	cmd.Stderr = os.Stderr
	fmt.Fprintf(os.Stderr, "building %s for %s\n", o.pkg, p)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s for %s: %w", o.pkg, p, err)
	}
	return nil
}

// tags with which a program is built; none for most.
func (o options) tags() string {
	if o.pkg == podPackage {
		return podTags
	}
	return ""
}

func (p platform) environment() []string {
	return []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch}
}

// gitCommit is "unknown" outside a repository. A work tree with changes is not what the commit says.
func gitCommit() string {
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return "unknown"
	}
	if changes, err := git("status", "--porcelain"); err != nil || changes != "" {
		commit += "-modified"
	}
	return commit
}

// sourceDate is when the sources were last changed: as the environment says, or else the commit.
func sourceDate(epoch, commit string) (time.Time, error) {
	if epoch == "" {
		found, err := git("show", "--no-patch", "--format=%ct", strings.TrimSuffix(commit, "-modified"))
		if err != nil {
			return time.Time{}, nil //nolint:nilerr // outside a repository nobody knows the date, and the image does without
		}
		epoch = found
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	return strings.TrimSpace(string(out)), err
}

// keep puts a copy of the program where people start it. It takes the place of one that may be running in one step.
func keep(binary, place string) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return err
	}
	next := place + ".new"
	if err := os.WriteFile(next, program, 0o755); err != nil {
		return err
	}
	return os.Rename(next, place)
}
