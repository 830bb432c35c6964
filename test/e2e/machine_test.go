// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is what a person could find on it, by where they look.
type machine map[string][]string

// lookAtMachine sees everything that a cluster adds to a machine.
func lookAtMachine(t *testing.T) machine {
	t.Helper()
	m := machine{"processes": clusterProcesses(t), "directories": directories(t)}
	for what, command := range map[string][]string{
		"mounts":     {"cat", "/proc/self/mounts"},
		"links":      {"ls", "/sys/class/net"},
		"tables":     {"nft", "list", "tables"},
		"routes":     {"ip", "route", "show", "table", "all"},
		"forwarding": {"cat", "/proc/sys/net/ipv4/ip_forward"},
	} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		// A machine that has never been a node may not have the tools; then there is nothing to see.
		if err != nil && what != "tables" && what != "routes" {
			t.Fatalf("%v: %v", command, err)
		}
		m[what] = strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	return m
}

// clusterProcesses lists the processes that only a cluster has, by their command lines.
func clusterProcesses(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		command := strings.ReplaceAll(strings.Trim(string(line), "\x00"), "\x00", " ")
		program, _, _ := strings.Cut(command, " ")
		switch name := filepath.Base(program); name {
		case "containerd", "containerd-shim-runc-v2", "kubelet", "kube-proxy", "coredns", "addons", "pause", "envoy", "envoy-gateway", "modelplane-onnx", "modelplane-echo", "echo", "transformer":
			found = append(found, filepath.Dir(file)+" "+command)
		}
	}
	return found
}

// directories are the places outside of its own directory where a node leaves files.
func directories(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		"/run/*", "/run/containerd/*", "/run/netns/*", "/var/lib/*", "/var/lib/cni/*", "/var/lib/kubelet/*", "/var/log/*", "/var/log/containers/*",
		"/opt/*", "/etc/cni/*", "/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods", "/usr/libexec/kubernetes",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, matches...)
	}
	return found
}
