// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// nodeOf is the directory of another cluster that this machine is the node of; empty if there is none. Everything of a
// node that has a fixed name is that cluster's then.
func (c *Cluster) nodeOf() string {
	owner, err := linkOwner()
	if err != nil || owner == "" || owner == c.Dir || !exists(owner) {
		return ""
	}
	return owner
}

// endDeadOwner lets this machine become the node of this cluster when that which it is the node of was killed and will
// not do anything about it by itself. Its data stays, as after `down --keep`: nobody has asked to remove it.
//
// A cluster is dead when nobody works on its directory and none of its recorded processes runs. The lock is not waited
// for: whoever holds it starts that cluster, or ends it. What cannot be judged counts as alive, and claimLink refuses it.
func (b *bringUp) endDeadOwner(ctx context.Context) error {
	owner := b.nodeOf()
	if owner == "" {
		return nil
	}
	held, err := tryLock(filepath.Join(owner, lockFile))
	if err != nil {
		return fmt.Errorf("asking whether the cluster in %s lives: %w", owner, err)
	}
	if held == nil {
		return nil
	}
	defer held.release()
	if mayLive(owner) {
		return nil
	}
	b.say("node", "the cluster in %s is dead; what it left on this machine is taken down, its data stays", owner)
	dead := &Cluster{Dir: owner, Executable: b.Executable, Out: io.Discard}
	if err := dead.halt(ctx); err != nil {
		return fmt.Errorf("taking down what the dead cluster in %s left: %w", owner, err)
	}
	return nil
}

// mayLive tells whether a recorded process of a cluster runs, or cannot be told from one that does.
func mayLive(dir string) bool {
	for _, name := range processNames {
		rec, err := readRecord(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || rec.alive() {
			return true
		}
	}
	return false
}
