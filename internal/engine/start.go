// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Start runs a manager until ctx ends. It returns soon after that also when the
// caches are not filled yet, because the API server does not answer:
// controller-runtime would wait for them for ever and burn a core doing so.
func Start(ctx context.Context, mgr manager.Manager, grace time.Duration) error {
	filled := make(chan struct{})
	if err := mgr.Add(afterCaches(func() { close(filled) })); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() {
		defer stop()
		done <- mgr.Start(running)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// A manager that we no longer wait for must still stop as soon as it can.
	go func() {
		select {
		case <-filled:
			stop()
		case <-running.Done():
		}
	}()
	select {
	case err := <-done:
		return err
	case <-notFilled(filled, grace):
		return nil
	}
}

// notFilled fires after the grace period unless the caches were filled by then.
func notFilled(filled <-chan struct{}, grace time.Duration) <-chan struct{} {
	gaveUp := make(chan struct{})
	go func() {
		select {
		case <-filled:
		case <-time.After(grace):
			close(gaveUp)
		}
	}()
	return gaveUp
}

// afterCaches is called when all caches are filled, on standbys too.
type afterCaches func()

func (f afterCaches) Start(context.Context) error { f(); return nil }

func (afterCaches) NeedLeaderElection() bool { return false }
