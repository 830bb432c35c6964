// SPDX-License-Identifier: Apache-2.0

// Package download has what every download of this repository's tools has in common: it happens once, however many ask for
// it, and a network that fails for a moment does not end it. What is fetched, and from where, is not its business. It must
// not import anything outside the standard library.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pauses are those between tries. What answers too much now mostly answers again within a minute.
var pauses = []time.Duration{5 * time.Second, 20 * time.Second}

// Try fetches until it works, three times at most. It tells of each failure that is not the last, because a download that
// needed another try explains why something took long.
func Try(ctx context.Context, tell io.Writer, fetch func(context.Context) error) error {
	for i := 0; ; i++ {
		err := fetch(ctx)
		if err == nil || i == len(pauses) || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(tell, "    %v; trying again in %s (%d of %d)\n", err, pauses[i], i+2, len(pauses)+1)
		pause := time.NewTimer(pauses[i])
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(err, ctx.Err())
		case <-pause.C:
		}
	}
}

// Lock waits until nobody else makes what belongs at a path. The file of the lock is beside it and stays: who removed it
// would take it from under somebody who waits. It asks again rather than blocking, so that an interrupt ends the wait.
func Lock(ctx context.Context, tell io.Writer, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close())
		}
		if !waited {
			fmt.Fprintf(tell, "    waiting for another process that makes %s\n", filepath.Base(path))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another process makes %s: %w", path, ctx.Err()), f.Close())
		case <-tick.C:
		}
	}
}

// Dir makes a directory once. It is filled beside its place and renamed, so that what exists is complete; what somebody
// left who was killed meanwhile goes away.
func Dir(ctx context.Context, tell io.Writer, dir string, fill func(temp string) error) error {
	if exists(dir) {
		return nil
	}
	unlock, err := Lock(ctx, tell, dir)
	if err != nil {
		return err
	}
	defer unlock()
	if exists(dir) {
		return nil // another process was faster
	}
	parent, name := filepath.Split(dir)
	pattern := "." + name + ".*"
	left, err := filepath.Glob(filepath.Join(parent, pattern))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := errors.Join(fill(temp), os.Chmod(temp, 0o755)); err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil && !exists(dir) { // or somebody has made it who takes no lock
		return err
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
