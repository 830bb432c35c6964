// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// planted is a module with one package for each way in which tests end.
var planted = map[string]string{
	"go.mod":            "module planted\n\ngo 1.26\n",
	"good/good_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(*testing.T) {}\n",
	"wrong/one_test.go": "package wrong\n\nimport \"testing\"\n\nfunc TestWrong(t *testing.T) {\n\tt.Log(\"began\")\n\tt.Run(\"a part\", func(t *testing.T) { t.Fatalf(\"%d models answer, want 3\", 2) })\n}\n",
	"broken/no_test.go": "package broken\n\nimport \"testing\"\n\nfunc TestBroken(*testing.T) { missing() }\n",
	"hangs/h_test.go":   "package hangs\n\nimport \"testing\"\n\nfunc TestHangs(*testing.T) { select {} }\n",
	"killed/k_test.go":  "package killed\n\nimport (\n\t\"os\"\n\t\"syscall\"\n\t\"testing\"\n)\n\nfunc TestKilled(*testing.T) { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }\n",
	"panics/p_test.go":  "package panics\n\nimport \"testing\"\n\nfunc TestPanics(*testing.T) { panic(\"nobody expected this\") }\n",
	"skips/s_test.go":   "package skips\n\nimport \"testing\"\n\nfunc TestDatabase(t *testing.T) { t.Skip(\"MariaDB is not installed\") }\n",
	"flakes/f_test.go":  "package flakes\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestFlakes(t *testing.T) {\n\tif f, err := os.OpenFile(\"seen\", os.O_CREATE|os.O_EXCL, 0o600); err == nil {\n\t\t_ = f.Close()\n\t\tt.Fatal(\"too slow today\")\n\t}\n}\n",
	"flakes2/f_test.go": "package flakes2\n\nimport \"testing\"\n\nfunc TestNeverPasses(t *testing.T) { t.Fatal(\"slow on every day\") }\n",
}

// bed is a run in a folder of its own.
type bed struct {
	*run
	out  *bytes.Buffer
	home string
}

func newBed(t *testing.T, steps ...step) *bed {
	t.Helper()
	home := t.TempDir()
	for name, text := range planted {
		path := filepath.Join(home, "planted", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &bed{out: &bytes.Buffer{}, home: home}
	b.run = &run{
		Steps: steps, Budget: time.Hour, Dir: filepath.Join(home, "logs"), Commit: "c0ffee", Out: b.out, Every: 100 * time.Millisecond,
		Patience: 5 * time.Second, KernelLog: func(time.Time) []string { return nil }, Ledger: filepath.Join(home, "flakes.tsv"),
		Times: filepath.Join(home, "times"), Strict: true, MaxAgain: 3,
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

// shell is a step that runs a line in the planted module.
func (b *bed) shell(name, line string) step {
	return step{Name: name, Limit: time.Minute, Args: []string{"sh", "-c", "cd " + filepath.Join(b.home, "planted") + " && export GOWORK=off GOFLAGS= && " + line}}
}

// goTest is what it takes to have a package of the planted module speak to the driver.
func goTest(pkg string) string {
	return "go test -count=1 -json ./" + pkg + ` >"$TESTJSON/` + pkg + `.json"`
}

// finish runs everything and gives the last lines.
func (b *bed) finish(ctx context.Context, t *testing.T) (bool, string) {
	t.Helper()
	green, err := b.all(ctx)
	if err != nil {
		t.Fatal(err)
	}
	text := b.out.String()
	_, last, ok := strings.Cut(text, "=== ")
	if !ok {
		t.Fatalf("there is no verdict:\n%s", text)
	}
	if n := strings.Count(last, "\n"); n > maxLines {
		t.Errorf("the last part has %d lines", n)
	}
	t.Logf("\n=== %s", last)
	return green, last
}

func wantAll(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not among the last lines", w)
		}
	}
}

func TestGreen(t *testing.T) {
	b := newBed(t)
	b.Steps = []step{b.shell("test", goTest("good")), b.shell("other", "sleep 0.3; echo all is well")}
	green, last := b.finish(t.Context(), t)
	if !green {
		t.Error("it is red")
	}
	wantAll(t, last, "c0ffee: GREEN", "1 passed, 0 failed")
	if !strings.Contains(b.out.String(), "other for 0 s; all is well") && !strings.Contains(b.out.String(), "other for 0 s; load") {
		t.Errorf("it does not say that it works:\n%s", b.out)
	}
	times, err := os.ReadFile(b.Times)
	if err != nil || strings.Count(string(times), "passed") != 2 {
		t.Errorf("times: %v %s", err, times)
	}
}

// TestEverythingIsNamed: one run shows all there is, each with its first words.
func TestEverythingIsNamed(t *testing.T) {
	b := newBed(t)
	hangs := b.shell("hangs", goTest("hangs"))
	compile := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", os.DevNull, "./hangs") // not within the step's limit
	compile.Dir, compile.Env = filepath.Join(b.home, "planted"), append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	hangs.Limit = 15 * time.Second
	b.Patience = 2 * time.Second
	b.KernelLog = func(time.Time) []string {
		return killedForMemory("[   12.5] Out of memory: Killed process 7 (old)\n[  100.5] Out of memory: Killed process 8 (killed.test) total-vm:1kB\n"+
			"[  101.5] Memory cgroup out of memory: Killed process 9 (container) total-vm:1kB\n", 50)
	}
	b.Steps = []step{
		hangs, // first, because a step has what those before it have left of their time
		b.shell("unit", goTest("wrong")),
		b.shell("build", goTest("broken")),
		b.shell("killed", goTest("killed")),
		b.shell("panics", goTest("panics")),
		b.shell("download", "GOPROXY=off GOFLAGS=-mod=mod go run example.com/not/there@v1.0.0"),
		b.shell("lint", "echo 'internal/x/y.go:12:3: error strings should not be capitalized'; exit 1"),
		b.shell("skips", goTest("skips")),
		b.shell("last", goTest("good")),
	}
	green, last := b.finish(t.Context(), t)
	if green {
		t.Error("it is green")
	}
	wantAll(t, last, "c0ffee: RED",
		"planted/wrong TestWrong/a_part: one_test.go:7: 2 models answer, want 3",
		"planted/broken: ", "undefined: missing",
		"planted/hangs: ", "TestHangs was running for", "TIME LIMIT of 15s",
		"planted/killed", "signal: killed", "Killed process 8 (killed.test)",
		"planted/panics", "panic: nobody expected this",
		"download: ", "module lookup disabled by GOPROXY=off",
		"lint: internal/x/y.go:12:3: error strings should not be capitalized",
		"skipped, which is a failure here", "planted/skips TestDatabase: s_test.go:5: MariaDB is not installed",
		"last ", "passed")
	if strings.Contains(last, "Killed process 7") || strings.Contains(last, "Killed process 9") {
		t.Error("a process is named that was killed long before, or for a limit of its own")
	}
}

// TestSkipsAreRedInCI alone: a developer may do without a database.
func TestSkipsAreRedInCI(t *testing.T) {
	for _, strict := range []bool{true, false} {
		b := newBed(t)
		b.Strict = strict
		b.Steps = []step{b.shell("skips", goTest("skips"))}
		if green, _ := b.finish(t.Context(), t); green == strict {
			t.Errorf("strict %v: green %v", strict, green)
		}
	}
}

// TestFlakesAreRunAgain by the program that the Makefile uses, and are told.
func TestFlakesAreRunAgain(t *testing.T) {
	b := newBed(t)
	program := gotestsum(t)
	again := func(packages string) string {
		return program + ` --jsonfile "$TESTJSON/t.json" --rerun-fails=1 --rerun-fails-run-root-test --packages "` + packages + `" -- -count=1`
	}
	b.Steps = []step{b.shell("test", again("./flakes ./good"))}
	green, last := b.finish(t.Context(), t)
	if !green {
		t.Error("it is red")
	}
	wantAll(t, last, "run again and passed", "planted/flakes TestFlakes: f_test.go:11: too slow today")
	ledger, err := os.ReadFile(b.Ledger)
	if err != nil || !strings.Contains(string(ledger), "c0ffee\tplanted/flakes TestFlakes\tf_test.go:11: too slow today") {
		t.Errorf("ledger: %v %s", err, ledger)
	}

	b = newBed(t)
	b.Steps = []step{b.shell("test", again("./flakes ./flakes2"))}
	green, last = b.finish(t.Context(), t)
	if green {
		t.Error("green although a test failed twice")
	}
	wantAll(t, last, "planted/flakes2 TestNeverPasses: f_test.go:5: slow on every day", "planted/flakes TestFlakes: f_test.go:11")

	b = newBed(t)
	b.MaxAgain = 0
	b.Steps = []step{b.shell("test", again("./flakes"))}
	if green, _ = b.finish(t.Context(), t); green {
		t.Error("green although more tests were run again than are allowed")
	}
}

// TestRowsAreRunAgain where nothing but tests failed: not after a panic.
func TestRowsAreRunAgain(t *testing.T) {
	b := newBed(t)
	var asked []string
	withAgain := func(s step) step {
		s.Again = func(failed, _ []*testResult) [][]string {
			for _, f := range failed {
				asked = append(asked, f.Test)
			}
			return [][]string{s.Args}
		}
		return s
	}
	b.Steps = []step{withAgain(b.shell("e2e", goTest("flakes")))}
	green, last := b.finish(t.Context(), t)
	if !green || strings.Join(asked, " ") != "TestFlakes" {
		t.Errorf("green %v, asked for %v", green, asked)
	}
	wantAll(t, last, "passed when it was run again", "e2e-again-1", "run again and passed", "too slow today")

	b, asked = newBed(t), nil
	b.Steps = []step{withAgain(b.shell("e2e", goTest("panics")))}
	if green, _ := b.finish(t.Context(), t); green || asked != nil {
		t.Errorf("green %v, asked for %v", green, asked)
	}

	b, asked = newBed(t), nil
	b.Steps = []step{withAgain(b.shell("e2e", goTest("wrong")))}
	green, last = b.finish(t.Context(), t)
	if green {
		t.Error("green although it failed again")
	}
	wantAll(t, last, "planted/wrong TestWrong/a_part: one_test.go:7: 2 models answer, want 3")

	b = newBed(t)
	b.Budget = 0
	b.Steps = []step{withAgain(b.shell("e2e", goTest("flakes")))}
	if green, _ := b.finish(t.Context(), t); green || !strings.Contains(b.out.String(), "is not run again") {
		t.Errorf("green %v without time for it:\n%s", green, b.out)
	}
}

func TestRowsAgain(t *testing.T) {
	ended := func(names ...string) (all []*testResult) {
		for _, n := range names {
			all = append(all, &testResult{Test: n, Ended: []string{"fail"}})
		}
		return all
	}
	const rows, down = "TestMachine/side_by_side", "TestMachine/down_leaves_nothing"
	for name, c := range map[string]struct {
		failed, all []*testResult
		want        string
	}{
		"a row":               {ended(rows + "/traffic/grpc"), ended(rows, down), `make e2e E2EFLAGS=-run=^TestMachine$$/^side_by_side$$/^(traffic)$$`},
		"two rows":            {ended(rows+"/a/x", rows+"/a/y", rows+"/b"), ended(rows, down), `make e2e E2EFLAGS=-run=^TestMachine$$/^side_by_side$$/^(a|b)$$`},
		"what follows":        {ended("TestMachine/upgrade"), ended(rows), `make e2e E2EFLAGS=-skip=^TestMachine$$/^side_by_side$$`},
		"both":                {ended(rows+"/a", "TestMachine/upgrade"), ended(rows), `make e2e E2EFLAGS=-run=^TestMachine$$/^side_by_side$$/^(a)$$; make e2e E2EFLAGS=-skip=^TestMachine$$/^side_by_side$$`},
		"a row, and no end":   {ended(rows + "/a"), ended(rows), `make e2e E2EFLAGS=-run=^TestMachine$$/^side_by_side$$/^(a)$$; make e2e E2EFLAGS=-skip=^TestMachine$$/^side_by_side$$`},
		"before all rows":     {ended("TestMachine/node"), nil, `make e2e`},
		"nothing of it began": {ended("TestMachine"), nil, `make e2e`},
	} {
		var got []string
		for _, args := range rowsAgain(c.failed, c.all) {
			got = append(got, strings.Join(args, " "))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, "; "), c.want)
		}
	}
}

// TestInterrupted: what runs is ended with all that it started, and what there is is told.
func TestInterrupted(t *testing.T) {
	b := newBed(t)
	pids := filepath.Join(b.home, "pids")
	b.Steps = []step{b.shell("first", "sleep 600 & echo $! >"+pids+"; wait"), b.shell("second", "true")}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for range 600 {
			if data, err := os.ReadFile(pids); err == nil && bytes.HasSuffix(data, []byte("\n")) {
				return
			}
			<-time.After(50 * time.Millisecond)
		}
	}()
	green, last := b.finish(ctx, t)
	if green {
		t.Error("it is green")
	}
	wantAll(t, last, "RED, interrupted", "first")
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(data))
	for range 100 { // it was told; it may not have heard yet
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Error("a process that it started is left")
}

func TestStepsFitTheirTime(t *testing.T) {
	var sum time.Duration
	for _, c := range []cold{{}, {Race: "HEAD", Lint: "HEAD"}} {
		sum = 0
		for _, s := range steps(c) {
			if s.Limit <= 0 {
				t.Errorf("%s has no limit", s.Name)
			}
			sum += s.Limit
		}
	}
	if sum >= 85*time.Minute {
		t.Errorf("the limits of all steps add up to %s", sum)
	}
}

func TestFiveRunsAreKept(t *testing.T) {
	base := filepath.Join(t.TempDir(), "ci")
	for i := range 7 {
		if _, err := makeRunDir(base, time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC), "c"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := filepath.Glob(filepath.Join(base, "2*"))
	if err != nil || len(runs) != 5 || !strings.HasSuffix(runs[0], "-c2") {
		t.Errorf("%v %v", runs, err)
	}
	if last, err := os.Readlink(filepath.Join(base, "last")); err != nil || !strings.HasSuffix(last, "-c6") {
		t.Errorf("last is %s: %v", last, err)
	}
}

// gotestsum is the program that the Makefile uses.
func gotestsum(t *testing.T) string {
	t.Helper()
	mod, err := checkout.Dir("tools", "gotestsum", "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+mod, "-n", "gotestsum").Output()
	if err != nil {
		t.Fatalf("gotestsum: %v", err)
	}
	return strings.TrimSpace(string(out))
}
