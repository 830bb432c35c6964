// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serversDir is where the test kit records each server that a test starts, below the temp directory.
const serversDir = "modelplane-testkit-run"

// server is a record of the test kit. Its file has the process's number as name, and one line: start time of the process
// in clock ticks, boot, number of the test's process, start time of that.
type server struct {
	file       string
	pid, owner int
	start, own uint64
	boot       string
}

func readServer(file string) (server, error) {
	s := server{file: file}
	data, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	if s.pid, err = strconv.Atoi(filepath.Base(file)); err != nil {
		return s, err
	}
	_, err = fmt.Sscan(string(data), &s.start, &s.boot, &s.owner, &s.own)
	return s, err
}

// servers that are recorded by this user. What cannot be read is left out: it may be half written.
func (p *preflight) servers() []server {
	dir := filepath.Join(p.temp, serversDir)
	entries, _ := os.ReadDir(dir)
	var all []server
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if s, err := readServer(file); err == nil && e.Type().IsRegular() && p.mine(dir) && p.mine(file) {
			all = append(all, s)
		}
	}
	return all
}

// mine tells whether this user made a file. Another one's record could name any process, and another one's folder any
// program.
func (p *preflight) mine(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == p.uid
}

// endServers ends those that outlived their test, and forgets those that are gone.
func (p *preflight) endServers(ctx context.Context) {
	var killed []server
	for _, s := range p.servers() {
		if p.alive(s.owner, s.own, s.boot) {
			continue
		}
		if p.alive(s.pid, s.start, s.boot) {
			if err := p.kill(s); err != nil {
				p.warn("process %d (%s), which an ended test started, cannot be ended: %v", s.pid, p.command(s.pid), err)
				continue
			}
			killed = append(killed, s)
		}
		_ = os.Remove(s.file)
	}
	if len(killed) == 0 {
		return
	}
	p.did("ended %d of tests that are gone: %s", len(killed), strings.Join(names(killed), ", "))
	const patience = 5 * time.Second
	waitUntil(ctx, patience, func() bool {
		return !slices.ContainsFunc(killed, func(s server) bool { return p.alive(s.pid, s.start, s.boot) })
	})
}

func names(all []server) []string {
	var names []string
	for _, s := range all {
		names = append(names, fmt.Sprintf("process %d", s.pid))
	}
	return names
}

// kill ends a server with what it started. The group of one that does not lead it is that of the test, or of whoever ran
// the test: others are in it.
func (p *preflight) kill(s server) error {
	now, err := p.process(s.pid)
	if err != nil {
		return err
	}
	if now.group == s.pid && now.group != syscall.Getpgrp() {
		return syscall.Kill(-s.pid, syscall.SIGKILL)
	}
	return syscall.Kill(s.pid, syscall.SIGKILL)
}

func waitUntil(ctx context.Context, limit time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
