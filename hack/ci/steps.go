// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// step is one command of the run.
type step struct {
	Name  string
	Limit time.Duration
	Args  []string
	Env   []string
	// Again gives the arguments with which what failed is run once more, alone. It is asked only where every failure is
	// that of a test: not after a panic, a data race, a time-out or anything else.
	Again func(failed, all []*testResult) [][]string
	// Fetches: later steps may download nothing once this one has passed.
	Fetches bool
}

// offline makes a download in a test fail, and so be seen.
var offline = []string{"GOPROXY=off", "PIP_NO_INDEX=1"}

// steps are in this order because each leaves the next one quiet: nothing is fetched or compiled beside what is measured.
// Their limits are for an empty cache and add up to less than the 85 minutes of a run; what one does not need is the next one's.
func steps(cold cold) []step {
	race := "RACE=1"
	if cold.Race != "" {
		race = "RACE=" + cold.Race
	}
	lint := []string{"make", "lint"}
	if cold.Lint != "" {
		lint = append(lint, "LINTSINCE="+cold.Lint)
	}
	return []step{
		{Name: "preflight", Limit: time.Minute, Args: []string{"make", "preflight"}},
		{Name: "parts", Limit: 36 * time.Minute, Args: []string{"make", "parts"}, Fetches: true},
		{Name: "lint", Limit: 9 * time.Minute, Args: lint},
		{Name: "verify", Limit: 2 * time.Minute, Args: []string{"make", "verify"}},
		// VET=: the linter has just vetted.
		{Name: "test", Limit: 15 * time.Minute, Args: []string{"make", "test-together", race}},
		{Name: "test-alone", Limit: 6 * time.Minute, Args: []string{"make", "test-alone", race}},
		{Name: "e2e", Limit: 15 * time.Minute, Args: []string{"make", "e2e"}, Again: rowsAgain},
	}
}

// rowsAgain runs the rows of the end-to-end test again in which something failed, on a cluster of their own. What runs one
// after the other, before and after the rows, is run again as a whole if it failed or did not come to its end; if the rows
// have not begun by then, everything is.
func rowsAgain(failed, all []*testResult) [][]string {
	const beside, end = "TestMachine/side_by_side", "TestMachine/down_leaves_nothing"
	ran := func(name string) bool {
		return slices.ContainsFunc(all, func(t *testResult) bool { return t.Test == name && len(t.Ended) > 0 })
	}
	if !ran(beside) {
		return [][]string{{"make", "e2e"}}
	}
	var rows []string
	serial := !ran(end)
	for _, f := range failed {
		rest, ok := strings.CutPrefix(f.Test, beside+"/")
		if !ok {
			serial = true
			continue
		}
		row, _, _ := strings.Cut(rest, "/")
		if row = regexp.QuoteMeta(row); !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	var again [][]string
	if len(rows) > 0 {
		again = append(again, []string{"make", "e2e", "E2EFLAGS=-run=^TestMachine$$/^side_by_side$$/^(" + strings.Join(rows, "|") + ")$$"})
	}
	if serial {
		again = append(again, []string{"make", "e2e", "E2EFLAGS=-skip=^TestMachine$$/^side_by_side$$"})
	}
	return again
}

// cold says what an empty cache cannot afford: for each, a commit since which packages or modules are looked at anew.
type cold struct{ Race, Lint string }

// whatIsCold asks Go itself whether the packages that everything stands on are in its cache, with the race detector and without.
func whatIsCold(ctx context.Context) cold {
	const standsOn = "k8s.io/client-go/kubernetes"
	cached := func(flags ...string) bool {
		args := slices.Concat([]string{"list", "-f", "{{.Stale}}"}, flags, []string{standsOn})
		cmd := exec.CommandContext(ctx, "go", args...)
		// As the Makefile sets them: another setting is another cache.
		cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0")
		if slices.Contains(flags, "-race") {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
		}
		out, err := cmd.Output()
		return err == nil && strings.TrimSpace(string(out)) == "false"
	}
	var c cold
	if !cached() || !cached("-race") {
		c.Race = lastNight(ctx)
	}
	if !cached() {
		c.Lint = lastNight(ctx)
	}
	return c
}

// lastNight is the newest commit of twelve hours ago: what came since is what this run is about. The first commit if all
// of them are younger.
func lastNight(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-list", "-1", "--before=12 hours ago", "HEAD").Output()
	if commit := strings.TrimSpace(string(out)); err == nil && commit != "" {
		return commit
	}
	out, err = exec.CommandContext(ctx, "git", "rev-list", "--max-parents=0", "HEAD").Output()
	if err != nil {
		return "HEAD"
	}
	return strings.Fields(string(out) + " HEAD")[0]
}

func commitHere(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
