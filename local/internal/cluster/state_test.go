// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestClaimRefusesSomebodysDirectory(t *testing.T) {
	dir := t.TempDir()
	touch(t, filepath.Join(dir, "thesis.tex"))
	if err := claim(dir); err == nil {
		t.Error("a directory with somebody's files was claimed")
	}
	fresh := filepath.Join(dir, "new")
	for range 2 {
		if err := claim(fresh); err != nil {
			t.Fatal(err)
		}
	}
	if !exists(fresh) || exists(dir) {
		t.Errorf("exists: claimed %v, refused %v", exists(fresh), exists(dir))
	}
}

func TestRemoveStateTakesOnlyItsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := claim(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd/member/db", "logs/etcd.log", "kubeconfig", "my-notes.txt"} {
		touch(t, filepath.Join(dir, name))
	}
	left, err := removeState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"my-notes.txt"}, left); diff != "" {
		t.Errorf("left behind:\n%s", diff)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("entries %v, error %v", entries, err)
	}
}

func TestPortsStayUnlessTaken(t *testing.T) {
	dir, st := t.TempDir(), &state{}
	if err := st.choosePorts(dir); err != nil {
		t.Fatal(err)
	}
	first := maps.Clone(st.Ports)
	seen := map[int]string{}
	for name, port := range first {
		if other, twice := seen[port]; twice {
			t.Errorf("%s and %s share port %d", name, other, port)
		}
		seen[port] = name
	}
	stranger, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first[portScheduler])))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	if err := st.choosePorts(dir); err != nil {
		t.Fatal(err)
	}
	for name, port := range first {
		if moved := st.Ports[name] != port; moved != (name == portScheduler) {
			t.Errorf("%s moved: %v", name, moved)
		}
	}
}

func TestPortsOfRunningProcessesStay(t *testing.T) {
	dir, st := t.TempDir(), &state{Ports: map[string]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	st.Ports[portEtcd] = port
	writeRecord(t, dir, nameEtcd, recordOf(t, os.Getpid()))
	if err := st.choosePorts(dir); err != nil {
		t.Fatal(err)
	}
	if st.Ports[portEtcd] != port {
		t.Error("a running process lost its port")
	}
}

func TestStateSurvivesSaving(t *testing.T) {
	dir := t.TempDir()
	want := &state{Ports: map[string]int{portEtcd: 1234}}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(filepath.Join(dir, marker), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadState(dir); err == nil {
		t.Error("a damaged state was read")
	}
}
