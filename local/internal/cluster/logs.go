// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Logs writes the last lines of one component's log, or of every log when name is empty. With follow
// it goes on until the context ends.
func (c *Cluster) Logs(ctx context.Context, name string, lines int, follow bool) error {
	if !exists(c.Dir) {
		return c.absent()
	}
	if name != "" {
		return c.oneLog(ctx, name, lines, follow)
	}
	for _, name := range processNames {
		text := tail(logPath(c.Dir, name), lines)
		if text == "" {
			continue
		}
		if _, err := fmt.Fprintf(c.Out, "==> %s <==\n%s\n", name, text); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) oneLog(ctx context.Context, name string, lines int, follow bool) error {
	path := logPath(c.Dir, name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log of %q; components are %s", name, strings.Join(processNames, ", "))
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if text := lastLines(io.NewSectionReader(f, 0, info.Size()), lines); text != "" {
		fmt.Fprintln(c.Out, text)
	}
	if !follow {
		return nil
	}
	if _, err := f.Seek(info.Size(), io.SeekStart); err != nil {
		return err
	}
	return copyUntil(ctx, c.Out, f)
}

func copyUntil(ctx context.Context, to io.Writer, from io.Reader) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tail is for messages to people: a log that cannot be read is simply empty.
func tail(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	return lastLines(f, n)
}

// lastLines keeps no more than n lines in memory, since logs have no bound while a component runs.
func lastLines(from io.Reader, n int) string {
	if n <= 0 {
		return ""
	}
	var ring []string
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			if len(ring) == n {
				ring = ring[1:]
			}
			ring = append(ring, strings.TrimRight(line, "\n"))
		}
		if err != nil {
			return strings.Join(ring, "\n")
		}
	}
}
