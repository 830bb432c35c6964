// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// longAgo is before every process that runs.
var longAgo = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// newPreflight looks at the processes of this machine, and at nothing else of it. What it says is in the buffer.
func newPreflight(t *testing.T) (*preflight, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	return &preflight{
		machine: machine{proc: "/proc", sys: t.TempDir()}, temp: t.TempDir(), cache: t.TempDir(),
		uid: os.Getuid(), ci: true, out: out, complain: out,
	}, out
}

// start runs a process that leads a group of its own, and reaps it.
func start(t *testing.T, dir, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { defer close(gone); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-gone
	})
	return cmd
}

// sleeper is a process of its own.
func (m machine) sleeper(t *testing.T) process {
	t.Helper()
	p, err := m.process(start(t, "", "sleep", "300").Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// livingTest is a process that looks like a test. Its folders are newer than it.
func livingTest(t *testing.T) int {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "some.test")
	write(t, path, string(program))
	return start(t, "", path, "300").Process.Pid
}

// folder is one that a test made.
func (p *preflight) folder(t *testing.T, name string, at time.Time) string {
	t.Helper()
	path := filepath.Join(p.temp, name)
	write(t, filepath.Join(path, "001", "file"), "")
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestServersOfEndedTestsAreEnded(t *testing.T) {
	p, _ := newPreflight(t)
	boot, test := p.boot(), p.sleeper(t)
	gone := test
	gone.start-- // the number is somebody else's now
	file := func(s process) string { return filepath.Join(p.temp, serversDir, strconv.Itoa(s.pid)) }
	record := func(s process, boot string, owner process) process {
		write(t, file(s), fmt.Sprintf("%d %s %d %d\n", s.start, boot, owner.pid, owner.start))
		return s
	}
	recycled := p.sleeper(t)
	recycled.start--
	all := []struct {
		name         string
		server       process
		lives, stays bool
	}{
		{"its test is gone", record(p.sleeper(t), boot, gone), false, false},
		{"its test runs", record(p.sleeper(t), boot, test), true, true},
		{"its number was given to another", record(recycled, boot, gone), true, false},
		{"it was before the machine started again", record(p.sleeper(t), "another", gone), true, false},
	}
	half := p.sleeper(t)
	write(t, file(half), strconv.FormatUint(half.start, 10))
	p.endServers(t.Context())
	for _, tc := range all {
		now, err := p.process(tc.server.pid)
		if lives := err == nil && !now.ended; lives != tc.lives {
			t.Errorf("%s: lives %v, want %v", tc.name, lives, tc.lives)
		}
		if stays := exists(file(tc.server)); stays != tc.stays {
			t.Errorf("%s: recorded %v, want %v", tc.name, stays, tc.stays)
		}
	}
	if !p.alive(half.pid, half.start, boot) || !exists(file(half)) {
		t.Error("a record that is half written was used")
	}
	if want := []string{fmt.Sprintf("ended 1 of tests that are gone: process %d", all[0].server.pid)}; !cmp.Equal(want, p.done) {
		t.Errorf("said %q, want %q", p.done, want)
	}
	p.uid++
	if left := p.servers(); len(left) > 0 {
		t.Errorf("records of another user are believed: %v", left)
	}
}

func TestAServerIsEndedWithWhatItStartedAndNobodyElse(t *testing.T) {
	p, _ := newPreflight(t)
	inGroup := func(group int) (n int) {
		for _, pid := range p.pids() {
			if one, err := p.process(pid); err == nil && one.group == group && !one.ended {
				n++
			}
		}
		return n
	}
	becomes := func(what string, group, want int) {
		t.Helper()
		waitUntil(t.Context(), 10*time.Second, func() bool { return inGroup(group) == want })
		if got := inGroup(group); got != want {
			t.Errorf("%s: %d processes, want %d", what, got, want)
		}
	}
	leader := start(t, "", "/bin/sh", "-c", "sleep 300 & sleep 300; :").Process.Pid
	becomes("a server and what it started", leader, 3)
	if err := p.kill(server{pid: leader}); err != nil {
		t.Fatal(err)
	}
	becomes("a server that was ended", leader, 0)

	// This one is in the group of who ran the test.
	who := p.sleeper(t)
	member := exec.Command("sleep", "300")
	member.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: who.pid}
	if err := member.Start(); err != nil {
		t.Fatal(err)
	}
	becomes("who ran the test, and a server", who.pid, 2)
	if err := p.kill(server{pid: member.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	if err := member.Wait(); err == nil {
		t.Error("the server was not killed")
	}
	becomes("who ran the test", who.pid, 1)
}

func TestClusters(t *testing.T) {
	const young, old = "young", "old"
	for _, tc := range []struct {
		name       string
		ci         bool
		folder     string // below the temp directory; empty: the cluster is elsewhere
		lives      string
		unlinked   bool
		want, says string // DIR is the state directory
	}{
		{name: "of somebody, runs", ci: true, lives: "process", says: "down --dir DIR"},
		{name: "of somebody, begins", ci: true, lives: "lock", says: "down --dir DIR"},
		{name: "of somebody, cannot be judged", ci: true, lives: "damage", says: "down --dir DIR"},
		{name: "of somebody, dead", ci: true, want: "down --dir DIR --keep"},
		{name: "of somebody, dead, not in CI"},
		{name: "of somebody who works below the temp directory, runs", ci: true, folder: "work", lives: "process", says: "down --dir DIR"},
		{name: "of an ended test, runs", ci: true, folder: old, lives: "process", want: "down --dir DIR"},
		{name: "of an ended test, dead", ci: true, folder: old, want: "down --dir DIR"},
		{name: "of an ended test, runs, is not the node", ci: true, folder: old, lives: "process", unlinked: true, want: "down --dir DIR"},
		{name: "of an ended test, runs, not in CI", folder: old, lives: "process", says: "down --dir DIR"},
		{name: "of a test, runs", ci: true, folder: young, lives: "process", says: "may be its test"},
		{name: "of a test, between two processes", ci: true, folder: young},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, out := newPreflight(t)
			p.ci = tc.ci
			calls := filepath.Join(t.TempDir(), "calls")
			write(t, filepath.Join(p.cache, "local", "0123456789abcdef", program), fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\n", calls))
			dir := filepath.Join(t.TempDir(), "state")
			switch tc.folder {
			case old:
				dir = filepath.Join(p.folder(t, "TestMachine123", longAgo), "001", "state")
			case "work":
				dir = filepath.Join(p.folder(t, "work1", longAgo), "state")
			case young:
				livingTest(t)
				dir = filepath.Join(p.folder(t, "TestMachine123", time.Now().Add(time.Minute)), "001", "state")
			}
			write(t, filepath.Join(dir, marker), "{}")
			write(t, filepath.Join(dir, "lock"), "")
			one := p.sleeper(t)
			if tc.lives != "process" {
				one.start--
			}
			write(t, filepath.Join(dir, "run", "etcd.json"), fmt.Sprintf(`{"pid":%d,"start":%d,"boot":%q}`, one.pid, one.start, p.boot()))
			switch tc.lives {
			case "damage":
				write(t, filepath.Join(dir, "run", "kubelet.json"), "{")
			case "lock":
				f, err := os.Open(filepath.Join(dir, "lock"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = f.Close() }()
				if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
					t.Fatal(err)
				}
			}
			if !tc.unlinked {
				write(t, filepath.Join(p.sys, "class", "net", link, "ifalias"), dir+"\n")
			}
			p.endClusters(t.Context())
			called, _ := os.ReadFile(calls)
			if want := strings.ReplaceAll(tc.want, "DIR", dir); strings.TrimSpace(string(called)) != want {
				t.Errorf("called with %q, want %q", called, want)
			}
			if p.refused != (tc.says != "") || strings.Count(out.String(), "\n") > 1 || !strings.Contains(out.String(), strings.ReplaceAll(tc.says, "DIR", dir)) {
				t.Errorf("refused %v, said %q, want %q", p.refused, out, tc.says)
			}
		})
	}
}

func TestWhatCannotBeEnded(t *testing.T) {
	for _, tc := range []struct {
		name, program, says string
		refused             bool
	}{
		{"it fails", "#!/bin/sh\necho working\necho no way >&2\nexit 1\n", "no way", true},
		{"there is no program", "", "the next one will", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("PATH", "/bin")
			p, out := newPreflight(t)
			if tc.program != "" {
				p.local = filepath.Join(t.TempDir(), program)
				write(t, p.local, tc.program)
			}
			dir := filepath.Join(p.folder(t, "TestMachine123", longAgo), "001", "state")
			write(t, filepath.Join(dir, marker), "{}")
			write(t, filepath.Join(dir, "node", "kubelet.yaml"), "")
			p.endClusters(t.Context())
			if p.refused != tc.refused || !strings.Contains(out.String(), tc.says) || strings.Count(out.String(), "\n") != 1 {
				t.Errorf("refused %v, said %q", p.refused, out)
			}
			p.removeFolders()
			if !exists(dir) {
				t.Error("what is needed to end it was removed")
			}
		})
	}
}

// TestALinkOfNobodyIsRemoved: with another program for ip, so that this machine's own stays.
func TestALinkOfNobodyIsRemoved(t *testing.T) {
	for _, ci := range []bool{true, false} {
		p, out := newPreflight(t)
		p.ci = ci
		write(t, filepath.Join(p.sys, "class", "net", link, "ifalias"), filepath.Join(p.temp, "gone")+"\n")
		bin := t.TempDir()
		write(t, filepath.Join(bin, "ip"), fmt.Sprintf("#!/bin/sh\necho \"$@\" >%s/calls\n", bin))
		t.Setenv("PATH", bin)
		p.endClusters(t.Context())
		called, _ := os.ReadFile(filepath.Join(bin, "calls"))
		if did := string(called) == "link delete "+link+"\n"; did != ci || p.refused || out.Len() > 0 {
			t.Errorf("in CI %v: called with %q, refused %v, said %q", ci, called, p.refused, out)
		}
	}
}

func TestTheNewestProgramIsTaken(t *testing.T) {
	p, _ := newPreflight(t)
	dir := t.TempDir()
	if got := p.findProgram(dir); got != program {
		t.Errorf("without any: %s", got)
	}
	own := filepath.Join(dir, "bin", program)
	write(t, own, "")
	if got := p.findProgram(dir); got != own {
		t.Errorf("only the cluster's own: %s", got)
	}
	for _, name := range []string{"a", "b", "c"} {
		path := filepath.Join(p.cache, "local", name, program)
		write(t, path, "")
		if name != "b" {
			if err := os.Chtimes(path, longAgo, longAgo); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := p.findProgram(dir), filepath.Join(p.cache, "local", "b", program); got != want {
		t.Errorf("of three: %s, want %s", got, want)
	}
	p.local = "mine"
	if got := p.findProgram(dir); got != "mine" {
		t.Errorf("where one is asked for: %s", got)
	}
}

func TestFolders(t *testing.T) {
	p, _ := newPreflight(t)
	livingTest(t)
	young := time.Now().Add(time.Minute)
	stays := map[string]bool{}
	for _, tc := range []struct {
		name  string
		at    time.Time
		stays bool
	}{
		{"TestEnded123", longAgo, false}, {"BenchmarkEnded_x1", longAgo, false}, {"modelplane-testkit-42", longAgo, false}, {"modelplane-image-7", longAgo, false},
		{"modelplane-up.aBcDeF0123", longAgo, false},
		{"TestOfALivingOne5", young, true}, {"modelplane-bench-9", young, true},
		{"Testament", longAgo, true}, {"modelplane-notes", longAgo, true}, {"somebody123", longAgo, true}, {serversDir, longAgo, true},
		{"TestIn6", longAgo, true}, {"TestIn61", longAgo, false}, {"TestNamed8", longAgo, true}, {"TestOpen10", longAgo, true},
	} {
		p.folder(t, tc.name, tc.at)
		stays[tc.name] = tc.stays
	}
	write(t, filepath.Join(p.temp, "TestOfSomebodyElse77", "notes.txt"), "")
	if err := os.Chtimes(filepath.Join(p.temp, "TestOfSomebodyElse77"), longAgo, longAgo); err != nil {
		t.Fatal(err)
	}
	stays["TestOfSomebodyElse77"] = true
	start(t, filepath.Join(p.temp, "TestIn6", "001"), "sleep", "300")
	start(t, "", "/bin/sh", "-c", "sleep 300; :", "--dir="+filepath.Join(p.temp, "TestNamed8", "001"))
	open, err := os.Open(filepath.Join(p.temp, "TestOpen10", "001", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	holder := exec.Command("sleep", "300")
	holder.Stdin = open
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()

	p.removeFolders()
	for name, want := range stays {
		if got := exists(filepath.Join(p.temp, name)); got != want {
			t.Errorf("%s is there: %v, want %v", name, got, want)
		}
	}
	if want := []string{"removed folders of tests that are gone: 6"}; !cmp.Equal(want, p.done) {
		t.Errorf("said %q", p.done)
	}
	p.uid++
	if left := p.folders(); len(left) > 0 {
		t.Errorf("folders of another user: %v", left)
	}
}

func TestMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not tested: only root mounts")
	}
	p, _ := newPreflight(t)
	inside := filepath.Join(p.folder(t, "TestMounted1", longAgo), "001", "m")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", inside, "tmpfs", 0, ""); err != nil {
		t.Skipf("not tested: %v", err)
	}
	defer func() { _ = syscall.Unmount(inside, 0) }()
	write(t, filepath.Join(inside, "file"), "")
	p.removeFolders()
	if !exists(filepath.Join(inside, "file")) {
		t.Error("what is mounted in a folder was removed with it")
	}
}

func TestParseSocket(t *testing.T) {
	const rest = "00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0"
	for _, tc := range []struct {
		line    string
		at      string
		listens bool
	}{
		{"   0: 0100007F:0050 00000000:0000 0A " + rest, "127.0.0.1:80", true},
		{"   0: 00000000:1F90 00000000:0000 0A " + rest, "0.0.0.0:8080", true},
		{"   0: 00000000000000000000000001000000:1F91 00000000000000000000000000000000:0000 0A " + rest, "[::1]:8081", true},
		{"   0: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A " + rest, "127.0.0.1:80", true},
		{"   0: 0100007F:0050 0100007F:9999 01 " + rest, "", false},
		{"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", "", false},
	} {
		l, listens := parseSocket(tc.line)
		if listens != tc.listens || listens && (l.at.String() != tc.at || l.inode != "4242") {
			t.Errorf("%s: %v %v", tc.line, l, listens)
		}
	}
}

func TestWhoListensIsNamed(t *testing.T) {
	p, _ := newPreflight(t)
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		at, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = at.Close() })
		found := p.listeners([]uint16{at.Addr().(*net.TCPAddr).AddrPort().Port()})
		if len(found) != 1 {
			t.Fatalf("%s: found %v", address, found)
		}
		if who, want := p.holder(found[0].inode), fmt.Sprintf("process %d (%s", os.Getpid(), os.Args[0]); !strings.HasPrefix(who, want) {
			t.Errorf("%s is held by %s, want %s", address, who, want)
		}
	}
}

// TestCheck: a machine where all is well gets one line, and one where nothing is gets one for each reason.
func TestCheck(t *testing.T) {
	const setting = "sys/fs/inotify/max_user_instances"
	p, out := newPreflight(t)
	p.proc = t.TempDir()
	write(t, filepath.Join(p.proc, "meminfo"), "MemTotal: 99999999 kB\nMemAvailable:   16777216 kB\n")
	write(t, filepath.Join(p.proc, setting), "4096\n")
	_, free, err := disk(p.temp)
	if err != nil {
		t.Fatal(err)
	}
	if free >= needDisk {
		if code := p.check(t.Context()); code != 0 || out.String() != "preflight: this machine is ready\n" {
			t.Errorf("exit %d, said %q", code, out)
		}
	}

	p, out = newPreflight(t)
	p.proc = t.TempDir()
	write(t, filepath.Join(p.proc, "meminfo"), "MemAvailable:   1048576 kB\n")
	write(t, filepath.Join(p.proc, setting), "128\n")
	write(t, filepath.Join(p.proc, "net", "tcp"), "  sl\n   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0\n")
	write(t, filepath.Join(p.proc, "4242", "cmdline"), "nginx\x00-g\x00")
	if err := os.Mkdir(filepath.Join(p.proc, "4242", "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("socket:[77]", filepath.Join(p.proc, "4242", "fd", "6")); err != nil {
		t.Fatal(err)
	}
	code := p.check(t.Context())
	if now := p.line(setting); now != "1024" || code != unfit {
		t.Errorf("exit %d, inotify %s", code, now)
	}
	for _, want := range []string{
		"TCP port 80 is taken by process 4242 (nginx -g)",
		"1.0 GiB of memory are available, and the tests need 8.0 GiB",
	} {
		if !strings.Contains(out.String(), "it is this machine and not the code: "+want) {
			t.Errorf("%q is not said:\n%s", want, out)
		}
	}
}

func TestNearest(t *testing.T) {
	dir := t.TempDir()
	if got := nearest(filepath.Join(dir, "not", "yet")); got != dir {
		t.Errorf("%s, want %s", got, dir)
	}
}
