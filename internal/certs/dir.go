// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// reread is how often files are compared for file systems that do not tell of changes.
const reread = 10 * time.Second

// dir serves certificates that somebody else puts into a directory.
type dir struct {
	keeper *Keeper
	path   string
	inject bool // ca.crt is ours to hand to the API server

	certPEM, keyPEM, rootsPEM []byte // as last read
}

// watchDir reads the files once, so that a wrong path ends the process at its start, and then wakes the loop whenever
// they change. The directory is watched rather than the files, because mounted Secrets change by swapping a link.
func (k *Keeper) watchDir(ctx context.Context) (*dir, error) {
	d := &dir{keeper: k, path: k.opts.Dir, inject: k.opts.Source == Dir}
	pair, err := d.read()
	if err != nil {
		return nil, err
	}
	d.serve(pair)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", d.path, err)
	}
	if err := watcher.Add(d.path); err != nil {
		_ = watcher.Close()
		return nil, fmt.Errorf("watch %s: %w", d.path, err)
	}
	go func() {
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Events:
				k.poke()
			case err := <-watcher.Errors:
				k.opts.Log.Error(err, "Watching the certificate directory failed; it is still read now and then",
					"dir", d.path, "every", reread.String())
			}
		}
	}()
	return d, nil
}

// sync reads the files again and injects. New roots are injected before a new certificate is served, since whoever
// rotates with care extends the roots first.
func (d *dir) sync(ctx context.Context) (time.Time, error) {
	k := d.keeper
	pair, err := d.read()
	if err != nil {
		return time.Time{}, err // what was read before is still being served
	}
	err = k.injector.ensure(ctx, k.cache, d.rootsPEM)
	d.serve(pair)
	if err != nil {
		return time.Time{}, err
	}
	k.injected.Store(true)
	return k.opts.Clock.Now().Add(reread), nil
}

// read takes over the files when they belong together. The certificate is nil when nothing changed.
func (d *dir) read() (*tls.Certificate, error) {
	certPEM, err := os.ReadFile(filepath.Join(d.path, keyServing))
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(d.path, keyPrivate))
	if err != nil {
		return nil, fmt.Errorf("read the serving key: %w", err)
	}
	rootsPEM, err := d.readRoots()
	if err != nil {
		return nil, err
	}
	d.rootsPEM = rootsPEM
	if bytes.Equal(certPEM, d.certPEM) && bytes.Equal(keyPEM, d.keyPEM) {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s in %s cannot be read or do not belong together; replace both at once",
			keyServing, keyPrivate, d.path)
	}
	d.certPEM, d.keyPEM = certPEM, keyPEM
	return &pair, nil
}

func (d *dir) serve(pair *tls.Certificate) {
	if pair != nil && d.keeper.slot.swap(served{cert: pair}) {
		d.keeper.opts.Log.Info("Serving a new certificate", "serial", pair.Leaf.SerialNumber.Text(16),
			"expires", pair.Leaf.NotAfter)
	}
}

// readRoots returns nil when there is nothing to inject.
func (d *dir) readRoots() ([]byte, error) {
	if !d.inject {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(d.path, keyRoots))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the trusted roots: %w", err)
	}
	if _, err := decodeCertificates(data); err != nil {
		return nil, fmt.Errorf("%s in %s cannot be used as trusted roots: %w", keyRoots, d.path, err)
	}
	return data, nil
}
