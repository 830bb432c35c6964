// SPDX-License-Identifier: Apache-2.0

// Package progress runs a long go command and tells the waiting person how far it is. It must not
// import anything outside the standard library, since it is compiled before everything else.
package progress

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"time"
)

// Every is how often a person who waits hears that work goes on.
const Every = 10 * time.Second

// packageLine is what -v makes the go command print for each package it works on; everything else it
// prints is for the person to read.
var packageLine = regexp.MustCompile(`^[\w.~-]+(/[\w.~-]+)*$`)

// Run starts cmd, which must have been given -v, and turns its list of packages into a counter: a
// thousand lines of import paths tell nobody how far a build is. It returns the number of packages.
func Run(cmd *exec.Cmd, to io.Writer) (int, error) {
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	tick := time.NewTicker(Every)
	defer tick.Stop()
	count := follow(pipe, to, tick.C, func() time.Duration { return time.Since(start) })
	return count, cmd.Wait()
}

// follow reads to the end of the output and counts.
func follow(from io.Reader, to io.Writer, tick <-chan time.Time, elapsed func() time.Duration) int {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(from)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	count := 0
	for {
		select {
		case line, more := <-lines:
			switch {
			case !more:
				return count
			case packageLine.MatchString(trim(line)):
				count++
			default:
				fmt.Fprintln(to, trim(line))
			}
		case <-tick:
			fmt.Fprintf(to, "    … %d packages, %s so far\n", count, elapsed().Round(time.Second))
		}
	}
}

func trim(line string) string {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}
