// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Bounds of the file of namespaces.
const maxFile, maxNamespaces = 1 << 20, 5000

// wanted are all namespaces that are to be watched now.
func (w *Watcher) wanted() ([]string, error) {
	out := slices.Clone(w.always)
	if w.file != "" {
		named, err := readNamespaces(w.file)
		if err != nil {
			return nil, err
		}
		out = append(out, named...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// readNamespaces reads a namespace from each line. Empty lines, and those that begin with #, are none. A file with something else is
// not believed at all: half a list would take models away.
func readNamespaces(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if len(validation.IsDNS1123Label(line)) > 0 {
			return nil, fmt.Errorf("%.70q is no namespace", line)
		}
		out = append(out, line)
	}
	if len(out) > maxNamespaces {
		return nil, fmt.Errorf("it names %d namespaces; %d are watched at most", len(out), maxNamespaces)
	}
	return out, nil
}

// follow reads the file whenever something changes beside it, which is how a mounted ConfigMap changes.
func (w *Watcher) follow(ctx context.Context) error {
	changes, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the file of namespaces: %w", err)
	}
	defer func() { _ = changes.Close() }()
	if err := changes.Add(filepath.Dir(w.file)); err != nil {
		return fmt.Errorf("watch the file of namespaces: %w", err)
	}
	w.adjust(ctx) // it may have changed since it was read first
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-changes.Events:
			if !open {
				return errors.New("the file of namespaces is not watched any more")
			}
		case err, open := <-changes.Errors: // something was missed
			if open {
				w.log.Warn("Changes of the file of namespaces may have been missed; it is read again", "err", err.Error())
			}
		}
		w.adjust(ctx)
	}
}

// adjust watches what the file names, and nothing else. While it cannot be read, everything stays as it is.
func (w *Watcher) adjust(ctx context.Context) {
	wanted, err := w.wanted()
	if err != nil {
		w.log.Warn("The file of namespaces cannot be read; those that it named before are watched", "file", w.file, "err", err.Error())
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, ns := range w.known {
		if slices.Contains(wanted, name) {
			continue
		}
		ns.stop()
		ns.done.Wait() // nothing comes after that
		w.table.RemoveNamespace(name)
		delete(w.known, name)
		w.log.Info("A namespace is not watched any more", "namespace", name)
	}
	for _, name := range wanted {
		if w.known[name] != nil {
			continue
		}
		ns, err := w.prepare(name)
		if err != nil {
			w.log.Error("A namespace cannot be watched", "namespace", name, "err", err.Error())
			continue
		}
		ns.start(ctx)
		w.known[name] = ns
		w.log.Info("A namespace is watched", "namespace", name)
	}
}
