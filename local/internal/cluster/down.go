// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Down ends the processes of the cluster, last started first, and removes the directory. With keep,
// the directory stays and a later Up resumes from it. A directory without a cluster is no error: what
// was asked for is already so.
func (c *Cluster) Down(ctx context.Context, keep bool) error {
	if !exists(c.Dir) {
		fmt.Fprintf(c.Out, "  nothing to end: there is no cluster in %s\n", c.Dir)
		return nil
	}
	held, err := acquire(ctx, c.Dir)
	if err != nil {
		return err
	}
	defer held.release()
	if err := c.halt(ctx); err != nil {
		return err
	}
	if keep {
		fmt.Fprintf(c.Out, "  %-24s kept in %s; `modelplane-local up` resumes it\n", "data", c.Dir)
		return nil
	}
	left, err := removeState(c.Dir)
	if err != nil {
		return fmt.Errorf("removing %s: %w", c.Dir, err)
	}
	if len(left) > 0 {
		fmt.Fprintf(c.Out, "  %-24s %s stays, because of files that are not the cluster's: %s\n", "directory", c.Dir, strings.Join(left, ", "))
		return nil
	}
	fmt.Fprintf(c.Out, "  %-24s %s removed\n", "directory", c.Dir)
	return nil
}

// halt ends the processes and takes away what the cluster has outside of its directory, in which everything stays that a
// later Up needs. The caller holds the lock.
func (c *Cluster) halt(ctx context.Context) error {
	for _, name := range slices.Backward(processNames) {
		start := time.Now()
		ended, err := stop(ctx, c.Dir, name)
		if err != nil {
			return err
		}
		if ended {
			fmt.Fprintf(c.Out, "  %-24s ended in %s\n", name, elapsed(start))
		}
		if name == nameKubelet {
			// Nobody starts them again now, and the API server need not wait for those that talk to it.
			if err := c.endPods(ctx); err != nil {
				return err
			}
		}
	}
	return c.downNode(ctx)
}

// downNode removes the node, if there is one. When the state file cannot be read, the node's directory tells,
// since down is also what removes damage.
func (c *Cluster) downNode(ctx context.Context) error {
	st, err := loadState(c.Dir)
	switch {
	case err == nil && st.Node != nil:
		return c.removeNode(ctx, st.Node)
	case err != nil && isDir(c.nodeFile()):
		return c.removeNode(ctx, &nodeState{})
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
