// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string // of what could not be built
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// testResult is what came of a test, however often it ran.
type testResult struct {
	Package, Test string
	Ended         []string // pass, fail, skip: one for each time
	Elapsed       float64  // of the longest time
	Running       bool     // it began and was not heard of again
	Began         time.Time

	output   []string // of the first time that it failed, or of the only one
	reported bool     // with its package
}

func (t *testResult) name() string {
	return strings.TrimPrefix(t.Package, "github.com/modelplane/modelplane/") + " " + t.Test
}

func (t *testResult) last() string {
	if len(t.Ended) == 0 {
		return ""
	}
	return t.Ended[len(t.Ended)-1]
}

func (t *testResult) failed() bool { return t.last() == "fail" || (t.Running && t.last() == "") }

// flaky tests failed, and passed when they were run again.
func (t *testResult) flaky() bool { return t.last() == "pass" && slices.Contains(t.Ended, "fail") }

// place matches what testing.T prints before a message.
var place = regexp.MustCompile(`^\s*([\w./-]+\.go:\d+): ?(.*)`)

// message is the last of what a test said with its place before it failed, which ended it, and what followed in its words;
// without one its last line.
func (t *testResult) message() string {
	if t.Running && t.last() == "" {
		return "was still running"
	}
	lines := slices.DeleteFunc(slices.Clone(t.output), func(line string) bool {
		line = strings.TrimSpace(line)
		return line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
	})
	for i := len(lines) - 1; i >= 0; i-- {
		if place.MatchString(lines[i]) {
			end := min(i+3, len(lines))
			said := make([]string, 0, 3)
			for _, line := range lines[i:end] {
				said = append(said, strings.TrimSpace(line))
			}
			return strings.Join(said, " ")
		}
	}
	if len(lines) == 0 {
		return "said nothing"
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// broken is a package that failed otherwise than by a test of its own: it could not be built, a panic ended it, time ran out.
type broken struct {
	Package string
	Why     []string
}

// reader puts the events of a step together.
type reader struct {
	tests    map[[2]string]*testResult
	packages map[string]*packageResult
	builds   map[string][]string
}

type packageResult struct {
	output []string
	ended  time.Time
	failed bool
	build  string
	raced  bool
}

// readResults reads what the tests of a step said. Lines that are cut off, because somebody was ended, are passed over.
func readResults(dir string) ([]*testResult, []broken) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is good
	r := reader{tests: map[[2]string]*testResult{}, packages: map[string]*packageResult{}, builds: map[string][]string{}}
	for _, file := range files {
		r.read(file)
	}
	return r.results()
}

func (r *reader) read(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			r.take(e)
		}
	}
}

func (r *reader) take(e event) {
	switch {
	case e.Action == "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case e.Package == "":
	case e.Test == "":
		r.ofPackage(e)
	default:
		r.ofTest(e)
	}
}

func (r *reader) ofPackage(e event) {
	p := r.packages[e.Package]
	if p == nil {
		p = &packageResult{}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.keep(e.Output)
	case "fail":
		p.failed, p.build, p.ended = true, e.FailedBuild, e.Time
	}
}

// keep holds what may be a reason; all else is in the log.
func (p *packageResult) keep(line string) {
	const most = 200
	if len(p.output) < most && (reason.MatchString(line) || len(p.output) > 0) {
		p.output = append(p.output, line)
	}
}

// reason is how lines begin that say why a package ended.
var reason = regexp.MustCompile(`^(panic: |fatal error: |SIGQUIT|WARNING: DATA RACE|signal: |exit status|runtime: |testing: |\*\*\* Test killed|FAIL\s+\S+\s+\[)|signal: killed|cannot |no such|not found`)

func (r *reader) ofTest(e event) {
	key := [2]string{e.Package, e.Test}
	t := r.tests[key]
	if t == nil {
		t = &testResult{Package: e.Package, Test: e.Test}
		r.tests[key] = t
	}
	switch e.Action {
	case "run":
		t.Running, t.Began = true, e.Time
	case "output":
		if strings.Contains(e.Output, "WARNING: DATA RACE") || strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") {
			r.ofPackage(event{Action: "output", Package: e.Package, Output: e.Output})
			r.packages[e.Package].raced = true
		}
		t.hear(e.Output)
	case "pass", "fail", "skip":
		t.Running = false
		t.Ended = append(t.Ended, e.Action)
		t.Elapsed = max(t.Elapsed, e.Elapsed)
	}
}

// hear keeps what a test says, up to its first failure; of a long speech the end.
func (t *testResult) hear(line string) {
	const most = 400
	if slices.Contains(t.Ended, "fail") {
		return
	}
	if t.output = append(t.output, line); len(t.output) > most {
		t.output = slices.Delete(t.output, 0, most/2)
	}
}

func (r *reader) results() ([]*testResult, []broken) {
	tests := make([]*testResult, 0, len(r.tests))
	explained := map[string]bool{}        // packages in which a test failed
	running := map[string][]*testResult{} // what their end took by surprise
	for _, t := range r.tests {
		tests = append(tests, t)
		explained[t.Package] = explained[t.Package] || slices.Contains(t.Ended, "fail")
		if t.Running && t.last() == "" {
			running[t.Package] = append(running[t.Package], t)
		}
	}
	slices.SortFunc(tests, func(a, b *testResult) int {
		return cmp.Or(strings.Compare(a.Package, b.Package), strings.Compare(a.Test, b.Test))
	})
	var all []broken
	for name, p := range r.packages {
		surprised := leaves(running[name])
		if !p.failed || explained[name] && !p.raced && len(surprised) == 0 {
			continue
		}
		b := broken{Package: strings.TrimPrefix(name, "github.com/modelplane/modelplane/")}
		b.Why = append(b.Why, firstLines(r.builds[p.build], 3)...)
		b.Why = append(b.Why, firstLines(p.output, 3)...)
		for _, t := range surprised {
			t.reported = true
			words := fmt.Sprintf("%s was running for %d s", t.Test, int(p.ended.Sub(t.Began).Seconds()))
			if said := firstLines(slices.DeleteFunc(slices.Clone(t.output), func(line string) bool { return !reason.MatchString(line) }), 2); len(said) > 0 {
				words += ": " + strings.Join(said, " ")
			}
			b.Why = append(b.Why, words)
		}
		if len(b.Why) == 0 {
			b.Why = []string{"it failed and said nothing"}
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b broken) int { return strings.Compare(a.Package, b.Package) })
	return tests, all
}

func firstLines(lines []string, most int) []string {
	var first []string
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && len(first) < most {
			first = append(first, line)
		}
	}
	return first
}

// leaves leaves out tests that only say what their parts say.
func leaves(tests []*testResult) []*testResult {
	parents := map[[2]string]bool{}
	for _, t := range tests {
		for i := range len(t.Test) {
			if t.Test[i] == '/' && notable(t) {
				parents[[2]string{t.Package, t.Test[:i]}] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(tests), func(t *testResult) bool {
		return parents[[2]string{t.Package, t.Test}] && notable(t)
	})
}

// notable tests are those that someone wants to hear of.
func notable(t *testResult) bool { return t.failed() || slices.Contains(t.Ended, "fail") }
