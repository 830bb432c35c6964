// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// When files are read again.
const (
	// settle is how long a change must be over; whoever writes several files is done by then.
	settle = time.Second
	// atMost is waited for changes that do not end.
	atMost = 5 * time.Second
	// again is when a directory is looked for that is not there yet.
	again = 30 * time.Second
)

// watcher tells of changes in the directories of files. A mounted ConfigMap changes by a link in its directory, so that
// watching the file itself would show nothing.
type watcher struct {
	*fsnotify.Watcher
	watched map[string]bool
	// blind: some directory cannot be watched, and is looked at from time to time.
	blind bool
}

// watch sees to it that the directories, and no others, are watched.
func (w *watcher) watch(dirs []string) {
	w.blind = w.Watcher == nil
	if w.blind {
		return
	}
	for _, dir := range dirs {
		if !w.watched[dir] {
			if err := w.Add(dir); err != nil {
				w.blind = true
				continue
			}
			w.watched[dir] = true
		}
	}
	for dir := range w.watched {
		if !slices.Contains(dirs, dir) {
			_ = w.Remove(dir)
			delete(w.watched, dir)
		}
	}
}

// dirs are those of all files that are shown.
func (k *keeper) dirs() []string {
	var out []string
	for _, path := range k.paths {
		out = append(out, filepath.Dir(path))
	}
	for _, s := range k.current.Load().sources {
		if s.Type == "yaml" && s.IsEnabled() && s.Path() != "" {
			out = append(out, filepath.Dir(s.Path()))
		}
	}
	out = append(out, k.performance...)
	slices.Sort(out)
	return slices.Compact(out)
}

// run keeps the snapshot up to date until the context ends. It has been loaded once before.
func (k *keeper) run(ctx context.Context, settle time.Duration) error {
	inner, err := fsnotify.NewWatcher()
	if err != nil {
		k.log.Warn("Files cannot be watched and are read every half minute", "err", err.Error())
		inner = nil
	}
	w := &watcher{Watcher: inner, watched: map[string]bool{}}
	var events chan fsnotify.Event
	if inner != nil {
		defer func() { _ = inner.Close() }()
		events = inner.Events
		go func() {
			for err := range inner.Errors { // an overflow is one too many changes: they are read anyway
				k.log.Debug("Watching files", "err", err.Error())
			}
		}()
	}
	w.watch(k.dirs())
	k.reload(ctx) // what changed before it was watched
	var quiet <-chan time.Time
	var began time.Time
	for {
		var later <-chan time.Time
		if w.blind {
			later = time.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if e.Op == fsnotify.Chmod {
				continue
			}
			if k.measuredAt(e.Name) {
				k.stale = true
			}
			if w.watched[e.Name] && e.Has(fsnotify.Remove|fsnotify.Rename) {
				delete(w.watched, e.Name)
			}
			if quiet == nil {
				began = time.Now()
			}
			quiet = time.After(min(settle, max(atMost-time.Since(began), 0)))
		case r := <-k.results:
			if k.took(r) {
				k.reload(ctx)
			}
		case <-quiet:
			quiet = nil
			k.again(ctx, w)
		case <-later:
			k.again(ctx, w)
		}
	}
}

func (k *keeper) again(ctx context.Context, w *watcher) {
	if k.stale {
		k.stale = false
		k.remeasure()
	}
	k.reload(ctx)
	k.metrics.reloads.Inc()
	w.watch(k.dirs())
}

func (k *keeper) measuredAt(path string) bool {
	return slices.ContainsFunc(k.performance, func(root string) bool {
		return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
	})
}
