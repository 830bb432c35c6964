// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"time"
)

// every is how often a person who waits hears that work goes on.
const every = 10 * time.Second

// packageLine is what `go build -v` prints when it starts on a package; everything else it prints is
// for the person to read.
var packageLine = regexp.MustCompile(`^[\w.~-]+(/[\w.~-]+)*$`)

// runWithProgress turns the toolchain's list of packages into a counter, because a thousand lines of
// import paths tell nobody how far the build is.
func runWithProgress(cmd *exec.Cmd) error {
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "building the local control plane: about 6 minutes the first time on 2 cores, seconds later on")
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	compiled := follow(pipe, os.Stderr, time.NewTicker(every), start)
	if err := cmd.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "built the local control plane in %s (%d packages compiled)\n", since(start), compiled)
	return nil
}

// follow reads the build's output to its end and returns how many packages were compiled.
func follow(from io.Reader, to io.Writer, tick *time.Ticker, start time.Time) int {
	defer tick.Stop()
	lines := make(chan string)
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(from)
		for scan.Scan() {
			lines <- scan.Text()
		}
	}()
	compiled := 0
	for {
		select {
		case line, more := <-lines:
			switch {
			case !more:
				return compiled
			case packageLine.MatchString(line):
				compiled++
			default:
				fmt.Fprintln(to, line)
			}
		case <-tick.C:
			fmt.Fprintf(to, "  … compiled %d packages, %s so far\n", compiled, since(start))
		}
	}
}

func since(start time.Time) time.Duration { return time.Since(start).Round(time.Second) }
