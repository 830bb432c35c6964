// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// bringUp is one run of Up: the directory in order and the lock held.
type bringUp struct {
	*Cluster
	pki     pki
	state   *state
	held    *lock
	started int
	// early are processes that were started before their stage, which waits for them.
	early map[string]waiting
}

func (b *bringUp) say(who, format string, args ...any) {
	fmt.Fprintf(b.Out, "  %-24s %s\n", who, fmt.Sprintf(format, args...))
}

// waiting is a process between its start and the moment it is ready.
type waiting struct {
	spec  spec
	begun time.Time
	fresh bool
	gone  <-chan error
}

// endOutdated ends what runs in another way than it should, last started first: a store that goes before
// its clients waits for them.
func (b *bringUp) endOutdated(ctx context.Context, specs map[string]spec) error {
	for _, name := range slices.Backward(processNames) {
		s, wanted := specs[name]
		rec, err := readRecord(b.Dir, name)
		if !wanted || err != nil || !rec.alive() || rec.Digest == s.digest() {
			continue
		}
		start := time.Now()
		if _, err := stop(ctx, b.Dir, name); err != nil {
			return err
		}
		b.say(name, "ended in %s, because its configuration changed", elapsed(start))
	}
	return nil
}

// stage starts what does not run as it should and waits for the whole stage.
func (b *bringUp) stage(ctx context.Context, specs map[string]spec, names []string) error {
	var all []waiting
	for _, name := range names {
		w, err := b.start(specs[name])
		if err != nil {
			return err
		}
		all = append(all, w)
	}
	for _, w := range all {
		if err := b.await(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (b *bringUp) runs(name string) bool {
	rec, err := readRecord(b.Dir, name)
	return err == nil && rec.alive()
}

func (b *bringUp) start(s spec) (waiting, error) {
	if w, begun := b.early[s.name]; begun {
		return w, nil
	}
	w := waiting{spec: s, begun: time.Now()}
	if b.runs(s.name) {
		return w, nil
	}
	cmd, err := spawn(b.Dir, b.Executable, s, b.held)
	if err != nil {
		return w, err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	w.fresh, w.gone = true, gone
	b.started++
	return w, nil
}

// await asks until the process is ready, and gives up at once when it has ended instead.
func (b *bringUp) await(ctx context.Context, w waiting) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	client, err := w.spec.probe.client(b.pki)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := w.spec.probe.check(ctx, client)
		if err == nil {
			b.sayReady(w)
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		if !w.fresh && !b.runs(w.spec.name) {
			return fmt.Errorf("%s ended meanwhile; run this again to start it", w.spec.name)
		}
		select {
		case <-w.gone:
			return fmt.Errorf("%s ended while starting; the end of its log:\n%s", w.spec.name, tail(logPath(b.Dir, w.spec.name), 15))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %w; its log: %s", w.spec.name, elapsed(w.begun), last, logPath(b.Dir, w.spec.name))
		case <-tick.C:
		}
	}
}

func (b *bringUp) sayReady(w waiting) {
	if w.fresh {
		b.say(w.spec.name, "ready in %s", elapsed(w.begun))
		return
	}
	b.say(w.spec.name, "already running")
}

// waitForServiceAccounts waits for the last thing that a first `kubectl apply` of a pod depends on.
func (b *bringUp) waitForServiceAccounts(ctx context.Context) error {
	probe := probe{
		url: b.state.apiServerURL() + "/api/v1/namespaces/default/serviceaccounts/default",
		ca:  caCluster, cert: certAdmin,
	}
	client, err := probe.client(b.pki)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var last error
	start := time.Now()
	err = waitUntil(ctx, b.Timeout, func() bool {
		last = probe.check(ctx, client)
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("the default service account did not appear: %w", errors.Join(last, err))
	}
	if b.started > 0 {
		b.say("service accounts", "ready in %s", elapsed(start))
	}
	return nil
}
