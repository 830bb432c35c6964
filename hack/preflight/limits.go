// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// What the tests need of a machine.
const (
	watches    = 1024 // instances of inotify for one user: API servers, managers, a kubelet and proxies are all one
	needMemory = 8 << 30
	needDisk   = 12 << 30
)

// ports that tests listen on because what they play has them: the gateway in front of models, and programs in pods.
var ports = []uint16{80, 8080, 8081}

// raiseWatches lets more programs of one user watch files at once than the kernel's own 128.
func (p *preflight) raiseWatches() {
	const setting = "sys/fs/inotify/max_user_instances"
	if now, err := strconv.Atoi(p.line(setting)); err != nil || now >= watches {
		return
	}
	if err := os.WriteFile(filepath.Join(p.proc, setting), fmt.Appendf(nil, "%d\n", watches), 0o644); err != nil {
		p.warn("fs.inotify.max_user_instances is %s, and tests may run out of it (%v); as root: sysctl fs.inotify.max_user_instances=%d", p.line(setting), err, watches)
		return
	}
	p.did("raised fs.inotify.max_user_instances to %d", watches)
}

// checkPorts refuses each port once, with all who have it.
func (p *preflight) checkPorts() {
	holders := map[uint16][]string{}
	for _, l := range p.listeners(ports) {
		port, who := l.at.Port(), p.holder(l.inode)
		if !slices.Contains(holders[port], who) {
			holders[port] = append(holders[port], who)
		}
	}
	for _, port := range ports {
		if who := holders[port]; len(who) > 0 {
			p.refuse("TCP port %d is taken by %s; end that, or let it listen elsewhere", port, strings.Join(who, " and "))
		}
	}
}

// listener is a socket that waits for connections of this machine.
type listener struct {
	at    netip.AddrPort
	inode string
}

// listeners at some ports, of addresses that programs of this machine use among themselves. One at an address of a
// network is in nobody's way.
func (m machine) listeners(ports []uint16) []listener {
	var found []listener
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		for line := range strings.Lines(m.line(name)) {
			l, listens := parseSocket(line)
			if ip := l.at.Addr(); listens && slices.Contains(ports, l.at.Port()) && (ip.IsUnspecified() || ip.IsLoopback()) {
				found = append(found, l)
			}
		}
	}
	return found
}

// parseSocket reads a line of /proc/net/tcp: number, address, address of the peer, state, and some more.
func parseSocket(line string) (l listener, listens bool) {
	const listening = "0A"
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listening {
		return l, false
	}
	address, port, _ := strings.Cut(fields[1], ":")
	raw, err := hex.DecodeString(address)
	if err != nil {
		return l, false
	}
	// The kernel writes each four bytes as a number of the processor.
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	ip, known := netip.AddrFromSlice(raw)
	number, err := strconv.ParseUint(port, 16, 16)
	return listener{at: netip.AddrPortFrom(ip.Unmap(), uint16(number)), inode: fields[9]}, known && err == nil
}

// holder names the process that has a socket.
func (m machine) holder(inode string) string {
	for _, pid := range m.pids() {
		open, _ := filepath.Glob(m.of(pid, "fd/*"))
		for _, path := range open {
			if target, err := os.Readlink(path); err == nil && target == "socket:["+inode+"]" {
				return fmt.Sprintf("process %d (%s)", pid, m.command(pid))
			}
		}
	}
	return "a process that this user cannot see"
}

func (p *preflight) checkMemory() {
	have, known := p.availableMemory()
	if known && have < needMemory {
		p.refuse("%s of memory are available, and the tests need %s; end what is not needed", gib(have), gib(needMemory))
	}
}

// availableMemory is what programs can get without anybody being ended.
func (m machine) availableMemory() (bytes uint64, known bool) {
	for line := range strings.Lines(m.line("meminfo")) {
		if value, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

// checkDisks looks once at each file system: both directories may be on the same.
func (p *preflight) checkDisks() {
	seen := map[uint64]bool{}
	for _, dir := range []string{p.temp, nearest(p.cache)} {
		id, free, err := disk(dir)
		if err != nil {
			p.warn("the disk of %s: %v", dir, err)
			continue
		}
		if !seen[id] && free < needDisk {
			p.refuse("%s are free on the disk of %s, and the tests need %s; remove what is not needed (go clean -cache gives back the most)", gib(free), dir, gib(needDisk))
		}
		seen[id] = true
	}
}

// nearest is a directory, or that above it which is there already.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func disk(dir string) (id, free uint64, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0, err
	}
	var room syscall.Statfs_t
	if err := syscall.Statfs(dir, &room); err != nil {
		return 0, 0, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id = stat.Dev
	}
	return id, room.Bavail * uint64(room.Bsize), nil
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
