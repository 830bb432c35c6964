// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The places of a local cluster, of which this program must know as much as a person who looks for one.
const (
	link    = "modelplane0"
	marker  = "cluster.json"
	program = "modelplane-local"
)

// endClusters ends what tests left, and refuses a cluster that somebody uses: a machine can be the node of one only.
func (p *preflight) endClusters(ctx context.Context) {
	owner, linked := p.linkOwner()
	if linked && isGone(owner) {
		p.removeLink(ctx, owner)
		owner = ""
	}
	for _, dir := range p.clusters(owner) {
		p.cluster(ctx, dir, dir == owner)
	}
}

// linkOwner is the directory of the cluster that this machine is the node of.
func (p *preflight) linkOwner() (dir string, linked bool) {
	alias, err := os.ReadFile(filepath.Join(p.sys, "class", "net", link, "ifalias"))
	return strings.TrimSpace(string(alias)), err == nil
}

// isGone tells that there is no cluster in a directory any more. One that this user cannot look into may have one.
func isGone(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, marker))
	return dir == "" || errors.Is(err, fs.ErrNotExist)
}

// removeLink takes away the interface of a cluster whose directory is gone. Everybody else's next `up` would take it over,
// but tests compare the machine before and after them.
func (p *preflight) removeLink(ctx context.Context, owner string) {
	if !p.ci {
		return
	}
	if out, err := exec.CommandContext(ctx, "ip", "link", "delete", link).CombinedOutput(); err != nil {
		p.warn("%s, which belonged to a cluster in %q that is gone, cannot be removed: %v: %s", link, owner, err, strings.TrimSpace(string(out)))
		return
	}
	p.did("removed %s of a cluster that is gone", link)
}

// clusters are that which has the machine, if any, and those below the folders of tests.
func (p *preflight) clusters(owner string) []string {
	var dirs []string
	if owner != "" {
		dirs = append(dirs, owner)
	}
	for _, folder := range p.folders() {
		dirs = append(dirs, clustersIn(folder)...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func clustersIn(folder string) []string {
	var dirs []string
	for _, below := range []string{"*", "*/*", "*/*/*"} {
		files, _ := filepath.Glob(filepath.Join(folder, below, marker))
		for _, file := range files {
			if dir := filepath.Dir(file); hasStarted(dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// hasStarted tells whether a cluster can have left anything outside of its directory.
func hasStarted(dir string) bool {
	records, _ := filepath.Glob(filepath.Join(dir, "run", "*.json"))
	_, err := os.Stat(filepath.Join(dir, "node"))
	return len(records) > 0 || err == nil
}

// cluster ends one, or says who has to. Only one that has the machine is in the way of others.
func (p *preflight) cluster(ctx context.Context, dir string, hasMachine bool) {
	lives, by := p.lives(dir), p.findProgram(dir)
	ofTest := slices.Contains(p.folders(), p.folderOf(dir))
	if ofTest {
		if test := p.testBefore(modified(p.folderOf(dir)), time.Now()); test != 0 {
			if lives && hasMachine {
				p.refuse("the cluster in %s runs, and so does what may be its test (process %d, %s); wait for that, or: %s down --dir %[1]s",
					dir, test, p.command(test), by)
			}
			return
		}
	}
	switch {
	case p.ci && (ofTest || !lives):
		p.endCluster(ctx, by, dir, lives, ofTest)
	case lives && hasMachine:
		p.refuse("it is the node of the cluster in %s, which runs; end that: %s down --dir %[1]s", dir, by)
	}
}

// endCluster removes the cluster of a test. Another's data stays: only the machine is needed.
func (p *preflight) endCluster(ctx context.Context, by, dir string, lives, ofTest bool) {
	args := []string{"down", "--dir", dir}
	if !ofTest {
		args = append(args, "--keep")
	}
	const patience = 3 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, by, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) && !lives {
		p.warn("there is no %s to end what is left of the cluster in %s; the next one will", by, dir)
		return
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		p.refuse("what is left of the cluster in %s cannot be ended (%v %s); try it: %s %s", dir, err, lines[len(lines)-1], by, strings.Join(args, " "))
		return
	}
	p.did("ended what was left of the cluster in %s", dir)
}

// findProgram is that which was asked for, the newest of those that are kept, or the one that has started the cluster.
func (p *preflight) findProgram(dir string) string {
	if p.local != "" {
		return p.local
	}
	found, _ := filepath.Glob(filepath.Join(p.cache, "local", "*", program))
	slices.SortFunc(found, func(a, b string) int { return modified(b).Compare(modified(a)) })
	if own := filepath.Join(dir, "bin", program); p.mine(own) && !modified(own).IsZero() {
		found = append(found, own)
	}
	return append(found, program)[0]
}

func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// lives tells whether a recorded process of a cluster runs, or somebody works on it: he holds its lock.
func (p *preflight) lives(dir string) bool {
	if locked(filepath.Join(dir, "lock")) {
		return true
	}
	records, _ := filepath.Glob(filepath.Join(dir, "run", "*.json"))
	return slices.ContainsFunc(records, func(file string) bool {
		var rec struct {
			PID   int
			Start uint64
			Boot  string
		}
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		// What cannot be judged counts as alive.
		return err != nil || json.Unmarshal(data, &rec) != nil || p.alive(rec.PID, rec.Start, rec.Boot)
	})
}

func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// folderOf is the folder of the temp directory that dir is in; empty when it is elsewhere.
func (p *preflight) folderOf(dir string) string {
	below, ok := strings.CutPrefix(dir, p.temp+"/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(below, "/")
	return filepath.Join(p.temp, first)
}
