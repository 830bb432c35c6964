// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("nobody there")

func TestTry(t *testing.T) {
	for _, test := range []struct {
		name            string
		failures, tries int
		took            time.Duration
		want            error
		told            string
	}{
		{"at once", 0, 1, 0, nil, ""},
		{"the third time", 2, 3, 25 * time.Second, nil,
			"    nobody there; trying again in 5s (2 of 3)\n    nobody there; trying again in 20s (3 of 3)\n"},
		{"never", 9, 3, 25 * time.Second, errAway, "    nobody there; trying again in 5s (2 of 3)\n    nobody there; trying again in 20s (3 of 3)\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, tries, told := time.Now(), 0, strings.Builder{}
				err := Try(t.Context(), &told, func(context.Context) error {
					if tries++; tries <= test.failures {
						return errAway
					}
					return nil
				})
				if took := time.Since(began); !errors.Is(err, test.want) || tries != test.tries || took != test.took || told.String() != test.told {
					t.Errorf("%v after %d tries in %s, and it told %q", err, tries, took, told.String())
				}
			})
		})
	}
}

// TestTryIsInterrupted: whoever waits is not kept by a pause, nor by tries of what was interrupted itself.
func TestTryIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began, tries := time.Now(), 0
		failing := func(context.Context) error { tries++; return errAway }
		if err := Try(ctx, io.Discard, failing); !errors.Is(err, errAway) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v in %s", err, time.Since(began))
		}
		if err := Try(ctx, io.Discard, failing); !errors.Is(err, errAway) || tries != 2 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

// TestDirOnce has a second one ask while the first one fills.
func TestDirOnce(t *testing.T) {
	parent := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(parent, "cache", "part")
		var fills atomic.Int32
		var told strings.Builder
		done := make(chan error)
		fill := func(temp string) error {
			if fills.Add(1) == 1 {
				go func() { done <- Dir(t.Context(), &told, dir, func(string) error { fills.Add(1); return nil }) }()
				synctest.Wait() // it stands before the lock
			}
			return os.WriteFile(filepath.Join(temp, "file"), nil, 0o600)
		}
		if err := errors.Join(Dir(t.Context(), io.Discard, dir, fill), <-done); err != nil {
			t.Fatal(err)
		}
		if n := fills.Load(); n != 1 {
			t.Errorf("it was made %d times", n)
		}
		if want := "    waiting for another process that makes part\n"; told.String() != want {
			t.Errorf("it told %q, want %q", told.String(), want)
		}
		if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
			t.Error(err)
		}
	})
}

// TestDirInTheWay: somebody who takes no lock is faster.
func TestDirInTheWay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "part")
	err := Dir(t.Context(), io.Discard, dir, func(string) error {
		return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDirFails: nothing is left that looks complete, and what a killed process has left goes away.
func TestDirFails(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{".part.123", ".part-of-another.123"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(parent, "part")
	if err := Dir(t.Context(), io.Discard, dir, func(string) error { return errAway }); !errors.Is(err, errAway) {
		t.Error(err)
	}
	found, err := os.ReadDir(parent)
	if err != nil || len(found) != 2 || found[0].Name() != ".part-of-another.123" || found[1].Name() != "part.lock" {
		t.Errorf("%v, %v", found, err)
	}
}

func TestLockIsInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "part")
	synctest.Test(t, func(t *testing.T) {
		unlock, err := Lock(t.Context(), io.Discard, path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Lock(ctx, io.Discard, path); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		unlock()
		if unlock, err = Lock(t.Context(), io.Discard, path); err != nil {
			t.Fatal(err)
		}
		unlock()
	})
}
