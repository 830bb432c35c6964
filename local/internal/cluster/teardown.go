// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// outsideDirs are directories that a node makes at fixed places, parents first. Those that were not there
// before the node are removed with it, if nothing else has come into them.
var outsideDirs = []string{
	"/run/containerd", "/run/containerd/s",
	"/var/lib/cni", "/var/lib/cni/results",
	"/var/lib/kubelet", "/var/lib/kubelet/device-plugins",
	"/var/log/containers",
	"/run/mount",
}

// removeNode takes away everything of the node that lives outside of its processes. They have ended: nothing
// comes back while it works.
func (c *Cluster) removeNode(ctx context.Context, n *nodeState) error {
	start := time.Now()
	if err := c.endPods(ctx); err != nil {
		return err
	}
	if err := unmountBelow(c.Dir); err != nil {
		return err
	}
	if owner := c.nodeOf(); owner != "" {
		fmt.Fprintf(c.Out, "  %-24s that of the cluster in %s, which stays\n", "node", owner)
		return nil
	}
	if err := c.removeNetwork(ctx, n); err != nil {
		return fmt.Errorf("removing the node's network: %w", err)
	}
	if err := removeControlGroups(); err != nil {
		return err
	}
	if err := c.removeOutside(n); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "  %-24s removed in %s\n", "node", elapsed(start))
	return nil
}

// endPods ends the pods and removes the sockets of their shims, which containerd would forget together with the pods.
func (c *Cluster) endPods(ctx context.Context) error {
	start, sockets, shims := time.Now(), c.shimSockets(), c.shims()
	if len(shims) > 0 {
		if err := endBelow(ctx, shims); err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "  %-24s %d ended in %s\n", "pods", len(shims), elapsed(start))
	}
	return removeFiles(sockets)
}

// endBelow ends shims and what they watch over: politely at first.
func endBelow(ctx context.Context, shims []record) error {
	var inside []record
	for _, shim := range shims {
		inside = append(inside, descendants(shim)...)
	}
	const patience = 5 * time.Second
	if err := end(ctx, inside, syscall.SIGTERM, patience); err != nil && ctx.Err() != nil {
		return err
	}
	// What a dying process has started meanwhile is found now.
	for _, shim := range shims {
		inside = append(inside, descendants(shim)...)
	}
	if err := end(ctx, append(inside, shims...), syscall.SIGKILL, grace); err != nil {
		return fmt.Errorf("processes of pods do not end even when killed: %w", err)
	}
	return nil
}

// end signals processes and waits until none of them runs.
func end(ctx context.Context, all []record, sig syscall.Signal, limit time.Duration) error {
	for _, rec := range all {
		proc, err := os.FindProcess(rec.PID)
		if err != nil {
			continue
		}
		// The handle is taken before the identity is checked; see stop.
		if rec.alive() {
			_ = proc.Signal(sig)
		}
		_ = proc.Release()
	}
	return waitUntil(ctx, limit, func() bool {
		return !slices.ContainsFunc(all, record.alive)
	})
}

// shims finds the processes that containerd left behind for this cluster: their command line names its socket.
func (c *Cluster) shims() []record {
	var found []record
	for _, pid := range allProcesses() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		args := strings.Split(string(line), "\x00")
		if strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && slices.Contains(args, c.containerdSocket()) {
			found = append(found, identify(pid)...)
		}
	}
	return found
}

func allProcesses() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// identify is empty when the process has ended meanwhile.
func identify(pid int) []record {
	start, _, err := procStat(pid)
	if err != nil {
		return nil
	}
	return []record{{PID: pid, Start: start, Boot: bootID()}}
}

// descendants lists the processes below one, nearest first.
func descendants(of record) []record {
	children := map[int][]int{}
	for _, pid := range allProcesses() {
		if parent, err := parentOf(pid); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	var found []record
	for queue := children[of.PID]; len(queue) > 0; queue = queue[1:] {
		found = append(found, identify(queue[0])...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

func parentOf(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return 0, errors.New("unexpected content")
	}
	return strconv.Atoi(fields[1])
}

// shimSockets are at a fixed place outside of the state directory; each shim's own files name them.
func (c *Cluster) shimSockets() []string {
	files, _ := filepath.Glob(filepath.Join(c.containerdState(), "io.containerd.runtime.v2.task", "*", "*", "address"))
	var sockets []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "unix://"); err == nil && ok {
			sockets = append(sockets, path)
		}
	}
	return sockets
}

// unmountBelow releases everything that is mounted below dir, the innermost first.
func unmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(mountsBelow(string(data), dir)) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}

// mountsBelow reads the mount points in the order in which they were mounted. The kernel writes blanks in
// names as octal numbers.
func mountsBelow(mountinfo, dir string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[4])
		if strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points
}

// removeControlGroups removes the groups of pods, which are empty by now, in every hierarchy.
func removeControlGroups() error {
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods"} {
		tops, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, top := range tops {
			if err := removeTree(top); err != nil {
				return fmt.Errorf("removing the pods' control groups: %w", err)
			}
		}
	}
	return nil
}

// removeTree removes directories from the inside out. The files in a control group are the kernel's and go
// with their directory.
func removeTree(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeOutside removes the node's files from places that are fixed, and the directories that it brought.
func (c *Cluster) removeOutside(n *nodeState) error {
	remove := slices.Concat(c.cniResults(), c.logLinks())
	if slices.Contains(n.Made, "/var/lib/kubelet") {
		plugins, _ := filepath.Glob("/var/lib/kubelet/device-plugins/*")
		remove = append(remove, plugins...)
	}
	if err := removeFiles(remove); err != nil {
		return err
	}
	for _, dir := range slices.Backward(n.Made) {
		// Somebody else's files in it are a good reason to leave it.
		_ = os.Remove(dir)
	}
	return nil
}

func removeFiles(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// cniResults are the notes that containerd keeps on each connection of a pod, named by the pod's sandbox.
func (c *Cluster) cniResults() []string {
	sandboxes, _ := os.ReadDir(c.nodeFile("containerd", "io.containerd.grpc.v1.cri", "sandboxes"))
	var found []string
	for _, s := range sandboxes {
		notes, _ := filepath.Glob("/var/lib/cni/results/*-" + s.Name() + "-*")
		found = append(found, notes...)
	}
	return found
}

// logLinks are the links by which the kubelet offers this cluster's logs to collectors.
func (c *Cluster) logLinks() []string {
	links, _ := filepath.Glob("/var/log/containers/*.log")
	return slices.DeleteFunc(links, func(link string) bool {
		target, err := os.Readlink(link)
		return err != nil || !strings.HasPrefix(target, c.Dir+"/")
	})
}
