// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const lockFile = "lock"

// lock keeps two commands from working on the same directory at once. A child that has been started
// but has not yet recorded itself holds it too (see spawn), so that nobody overlooks that child.
type lock struct{ file *os.File }

func (l *lock) release() { _ = l.file.Close() }

// acquire waits for the lock. Because down removes the lock file while holding it, a lock obtained on
// a file that is no longer the one in the directory counts for nothing and is tried again.
func acquire(ctx context.Context, dir string) (*lock, error) {
	path := filepath.Join(dir, lockFile)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		l, err := tryLock(path)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another command is working on %s: %w", dir, ctx.Err())
		case <-tick.C:
		}
	}
}

// tryLock returns nil without an error when somebody else holds the lock.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return nil, errors.Join(err, f.Close())
	}
	held, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(held, now) {
		return nil, f.Close()
	}
	return &lock{file: f}, nil
}
