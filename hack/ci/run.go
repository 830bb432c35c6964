// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// run is one run of all steps.
type run struct {
	Steps    []step
	Budget   time.Duration // for everything; a repetition that does not fit any more is left out
	Dir      string        // of the logs
	Commit   string
	Out      io.Writer
	Every    time.Duration // between two lines that say that it works
	Patience time.Duration // for what is asked to end
	// KernelLog gives what the kernel has to say since a moment.
	KernelLog func(since time.Time) []string
	Ledger    string // where tests that passed the second time are counted
	Times     string // where the time of each step is kept
	Strict    bool   // whether a skipped test that nobody allowed is a failure
	MaxAgain  int    // how many tests may pass the second time only

	began time.Time
	env   []string
	done  []*outcome
}

// outcome of a step.
type outcome struct {
	step
	Began    time.Time
	Took     time.Duration
	Err      error
	Log      string
	JSON     string // the folder of what its tests said
	TimedOut bool
	Again    bool // of what failed before
}

// verdict tells it in a word.
func (o *outcome) verdict() string {
	switch {
	case o.TimedOut:
		return "TIME LIMIT of " + o.Limit.String()
	case o.Err != nil:
		return "FAILED (" + o.Err.Error() + ")"
	}
	return "passed"
}

// all runs every step, whatever came of those before, and says whether everything is well.
func (r *run) all(ctx context.Context) (bool, error) {
	r.began = time.Now()
	r.say("%s, %d processors, logs in %s", runtime.Version(), runtime.NumCPU(), r.Dir)
	spare := time.Duration(0) // what a step does not need of its time is the next one's
	for _, s := range r.Steps {
		if ctx.Err() != nil {
			break
		}
		s.Limit += spare
		o := r.step(ctx, s, s.Name)
		spare = max(0, s.Limit-o.Took)
		if s.Fetches && o.Err == nil {
			r.env = offline
		}
		if o.Err != nil && s.Again != nil && ctx.Err() == nil {
			r.again(ctx, o)
		}
	}
	report := r.summary(ctx.Err() != nil)
	text := strings.Join(report.Lines, "\n") + "\n"
	_, err := io.WriteString(r.Out, text)
	err = errors.Join(err, os.WriteFile(filepath.Join(r.Dir, "summary"), []byte(text), 0o644), r.remember(report))
	return report.Green, err
}

// again runs what failed in a step once more, if nothing but tests failed, not too many of them, and there is time.
func (r *run) again(ctx context.Context, o *outcome) {
	tests, broken := readResults(o.JSON)
	var failed []*testResult
	for _, t := range leaves(tests) {
		if t.failed() {
			failed = append(failed, t)
		}
	}
	if o.TimedOut || len(broken) > 0 || len(failed) == 0 || len(failed) > r.MaxAgain {
		return
	}
	for i, args := range o.step.Again(failed, tests) {
		left := r.Budget - time.Since(r.began)
		if left < o.Took {
			r.say("what failed in %s is not run again: %s are left of %s", o.Name, left.Round(time.Second), r.Budget)
			return
		}
		s := o.step
		s.Args, s.Limit = args, left
		again := r.step(ctx, s, fmt.Sprintf("%s-again-%d", o.Name, i+1))
		again.Again = true
	}
}

// step runs one, with a log of its own.
func (r *run) step(ctx context.Context, s step, name string) *outcome {
	o := &outcome{step: s, Began: time.Now(), Log: filepath.Join(r.Dir, name+".log"), JSON: filepath.Join(r.Dir, name)}
	o.Name = name
	r.done = append(r.done, o)
	r.say("%s: %s", name, strings.Join(s.Args, " "))
	o.Err = r.execute(ctx, o)
	o.Took = time.Since(o.Began)
	r.say("%s %s in %d s", name, o.verdict(), int(o.Took.Seconds()))
	if err := appendLine(r.Times, "%s %s %s %s %d s", time.Now().UTC().Format(time.RFC3339), r.Commit, name, o.verdict(), int(o.Took.Seconds())); err != nil {
		r.say("the time is not kept: %v", err)
	}
	return o
}

func (r *run) execute(ctx context.Context, o *outcome) error {
	if err := os.MkdirAll(o.JSON, 0o755); err != nil {
		return err
	}
	log, err := os.Create(o.Log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(o.Args[0], o.Args[1:]...)
	// No process group of its own: whoever kills this one's group ends the tests with it.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = slices.Concat(os.Environ(), r.env, o.Env, []string{"TESTJSON=" + o.JSON, "TESTAGAIN=1"})
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	limit, beat := time.NewTimer(o.Limit), time.NewTicker(r.Every)
	defer limit.Stop()
	defer beat.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-beat.C:
			r.say("%s", r.heartbeat(o))
		case <-limit.C:
			o.TimedOut = true
			r.end(cmd.Process.Pid, ended)
			return fmt.Errorf("not ended after %s", o.Limit)
		case <-ctx.Done():
			r.end(cmd.Process.Pid, ended)
			return errors.New("interrupted")
		}
	}
}

// end ends a process and all that it started: tests are asked where they stand, then everything is asked to end, then it is
// ended.
func (r *run) end(pid int, ended <-chan error) {
	family := descendants(pid)
	for _, p := range family {
		if isTest(p) {
			_ = syscall.Kill(p, syscall.SIGQUIT)
		}
	}
	over := wait(ended, r.Patience)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if over {
			break
		}
		for _, p := range append(family, descendants(pid)...) {
			_ = syscall.Kill(p, signal)
		}
		over = wait(ended, r.Patience)
	}
	// Those whose parents ended first are nobody's descendants any more, but were when this began.
	for _, p := range family {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}

func wait(ended <-chan error, patience time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(patience):
		return false
	}
}

// heartbeat says how far a step is, and how the machine does.
func (r *run) heartbeat(o *outcome) string {
	parts := []string{fmt.Sprintf("%s for %d s", o.Name, int(time.Since(o.Began).Seconds()))}
	if tests, broken := readResults(o.JSON); len(tests) > 0 {
		packages, failed, running := map[string]bool{}, []string(nil), []string(nil)
		for _, t := range leaves(tests) {
			packages[t.Package] = true
			switch {
			case t.last() == "fail":
				failed = append(failed, t.name())
			case t.Running:
				running = append(running, t.name())
			}
		}
		for _, b := range broken {
			failed = append(failed, b.Package)
		}
		parts = append(parts, fmt.Sprintf("%d packages", len(packages)))
		if len(failed) > 0 {
			parts = append(parts, fmt.Sprintf("%d FAILED: %s", len(failed), short(strings.Join(failed, ", "), 120)))
		}
		if len(running) > 0 {
			parts = append(parts, "runs: "+short(strings.Join(running, ", "), 100))
		}
	} else if line := lastLine(o.Log); line != "" {
		parts = append(parts, short(line, 100))
	}
	return strings.Join(append(parts, machineNow()), "; ")
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Out, "%+6ds "+format+"\n", append([]any{int(time.Since(r.began).Seconds())}, args...)...)
}

// remember counts in the ledger what passed the second time.
func (r *run) remember(report report) error {
	var failed error
	for _, t := range report.Flaky {
		failed = errors.Join(failed, appendLine(r.Ledger, "%s\t%s\t%s\t%s", time.Now().UTC().Format(time.RFC3339), r.Commit, t.name(), t.message()))
	}
	return failed
}

func appendLine(path, format string, args ...any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// makeRunDir makes the folder of a run and removes all but the last five.
func makeRunDir(base string, now time.Time, commit string) (string, error) {
	const keep = 5
	dir := filepath.Join(base, now.UTC().Format("20060102-150405")+"-"+commit)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	runs, err := filepath.Glob(filepath.Join(base, "2*-*"))
	if err != nil {
		return "", err
	}
	slices.Sort(runs) // by their times
	for len(runs) > keep {
		if err := os.RemoveAll(runs[0]); err != nil {
			return "", err
		}
		runs = runs[1:]
	}
	last := filepath.Join(base, "last")
	_ = os.Remove(last)
	return dir, os.Symlink(dir, last)
}
