// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// report is what the run comes to.
type report struct {
	Green bool
	Lines []string
	Flaky []*testResult
}

// maxLines is what a reader of the end of a log sees.
const maxLines = 50

// summary reads the logs of all steps.
func (r *run) summary(interrupted bool) report {
	var (
		rep                    report
		failures, again, skips []string
		slow                   []*testResult
		passed, failedTests    int
		tests                  = r.results()
	)
	recovered := map[string]bool{} // steps whose failures have all passed since
	for _, o := range r.done {
		found, gone := r.failures(o, tests[o.Name])
		failures = append(failures, found...)
		recovered[o.Name] = o.Err != nil && gone && len(found) == 0
	}
	for _, o := range r.done {
		if o.Again {
			continue // counted with what it repeats
		}
		all := tests[o.Name].all
		told := leaves(all)
		for _, t := range all {
			switch {
			case t.flaky() && slices.Contains(told, t):
				rep.Flaky = append(rep.Flaky, t)
				again = append(again, fmt.Sprintf("  %s: %s", t.name(), t.message()))
			case t.last() == "skip" && !maySkip(t):
				skips = append(skips, fmt.Sprintf("  %s: %s", t.name(), t.message()))
			}
			if !strings.Contains(t.Test, "/") || strings.HasPrefix(t.Test, "TestMachine/") {
				slow = append(slow, t)
			}
			if t.failed() {
				failedTests++
			} else if t.last() == "pass" {
				passed++
			}
		}
	}
	rep.Green = !interrupted && len(failures) == 0 && len(r.done) > 0
	for _, o := range r.done {
		rep.Green = rep.Green && (o.Err == nil || recovered[o.Name])
	}
	killed := r.KernelLog(r.began)
	tooMany := len(rep.Flaky) > r.MaxAgain
	rep.Green = rep.Green && !tooMany && (!r.Strict || len(skips) == 0)

	verdict := "GREEN"
	if !rep.Green {
		verdict = "RED"
	}
	if interrupted {
		verdict += ", interrupted"
	}
	lines := []string{fmt.Sprintf("=== %s: %s after %d s", r.Commit, verdict, int(time.Since(r.began).Seconds()))}
	for _, o := range r.done {
		note := o.verdict()
		if recovered[o.Name] {
			note += ", passed when it was run again"
		}
		lines = append(lines, fmt.Sprintf("  %-12s %5d s  %s", o.Name, int(o.Took.Seconds()), note))
	}
	sections := []section{
		{"failed", failures, 16},
		{"killed for want of memory", indent(killed), 3},
		{fmt.Sprintf("run again and passed (at most %d are allowed)", r.MaxAgain), again, 5},
		{"skipped, which is a failure here", skips, 5},
		{"slowest", slowest(slow, 5), 5},
	}
	for _, s := range sections {
		lines = append(lines, s.lines()...)
	}
	// The last line is in the form in which counts are read by tools.
	rep.Lines = append(trim(lines, maxLines-2), "logs: "+r.Dir, fmt.Sprintf("%d passed, %d failed", passed, failedTests+len(failures)-min(failedTests, len(failures))))
	return rep
}

type section struct {
	title string
	rows  []string
	most  int
}

func (s section) lines() []string {
	if len(s.rows) == 0 {
		return nil
	}
	lines := []string{s.title + ":"}
	for i, row := range s.rows {
		if i == s.most {
			return append(lines, fmt.Sprintf("  and %d more, in the logs", len(s.rows)-i))
		}
		lines = append(lines, short(row, 220))
	}
	return lines
}

func trim(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most-1], "  and more, in the logs")
}

func indent(lines []string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, "  "+line)
	}
	return all
}

// stepResults are the tests of a step, with what came of them when they were run again.
type stepResults struct {
	all    []*testResult
	broken []broken
}

// results reads what the tests of every step said. What a step has repeated of another counts as another time of the same
// tests.
func (r *run) results() map[string]*stepResults {
	all := map[string]*stepResults{}
	for _, o := range r.done {
		tests, broken := readResults(o.JSON)
		if !o.Again {
			all[o.Name] = &stepResults{tests, broken}
			continue
		}
		first, _, _ := strings.Cut(o.Name, "-again-")
		all[o.Name] = &stepResults{broken: broken}
		for _, t := range tests {
			i := slices.IndexFunc(all[first].all, func(was *testResult) bool { return was.Package == t.Package && was.Test == t.Test })
			if i < 0 {
				all[first].all = append(all[first].all, t)
				continue
			}
			was := all[first].all[i]
			was.Ended, was.Running = append(was.Ended, t.Ended...), t.Running
		}
	}
	return all
}

// failures of a step in lines, and whether it had some that have gone since.
func (r *run) failures(o *outcome, results *stepResults) (lines []string, gone bool) {
	if o.Err == nil {
		return nil, false
	}
	for _, b := range results.broken {
		lines = append(lines, fmt.Sprintf("  %s: %s", b.Package, strings.Join(b.Why, " | ")))
	}
	for _, t := range leaves(results.all) {
		switch {
		case t.reported:
		case t.failed() && t.Running:
			lines = append(lines, fmt.Sprintf("  %s: was running for %d s", t.name(), int(o.Began.Add(o.Took).Sub(t.Began).Seconds())))
		case t.failed():
			lines = append(lines, fmt.Sprintf("  %s: %s", t.name(), t.message()))
		case t.flaky():
			gone = true
		}
	}
	if len(lines) == 0 && !gone && !o.Again {
		for _, line := range tellingLines(o.Log, 6) {
			lines = append(lines, fmt.Sprintf("  %s: %s", o.Name, line))
		}
		if len(lines) == 0 {
			lines = []string{fmt.Sprintf("  %s: %s; it said nothing", o.Name, o.verdict())}
		}
	}
	return lines, gone
}

// telling are lines of a log that say why something failed.
var telling = regexp.MustCompile(`(?i)(\.go:\d+:\d+: |^FAIL|^--- FAIL|panic:|fatal|error|signal: |killed|cannot |could not|no such|not found|lookup disabled|lookup .* on |i/o timeout|connection refused|out of date|not formatted|refus|unavailable)`)

// tellingLines are the first that say why, and the last line, where make says which target it was.
func tellingLines(path string, most int) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	last := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		last = line
		if telling.MatchString(line) && len(found) < most-1 && !slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	if last != "" && !slices.Contains(found, last) {
		found = append(found, last)
	}
	return found
}

// slowest tests, the longest first.
func slowest(tests []*testResult, most int) []string {
	tests = slices.DeleteFunc(tests, func(t *testResult) bool { return t.Elapsed < 1 })
	slices.SortStableFunc(tests, func(a, b *testResult) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	var lines []string
	for _, t := range tests[:min(most, len(tests))] {
		lines = append(lines, fmt.Sprintf("  %6.1f s  %s", t.Elapsed, t.name()))
	}
	return lines
}

// maySkip: a fuzz target passes over inputs that say nothing to it. Everything else that is skipped was not tested.
func maySkip(t *testResult) bool { return strings.HasPrefix(t.Test, "Fuzz") }
