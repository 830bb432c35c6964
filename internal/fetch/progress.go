// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/dest"
)

// progress counts what is done and what is known to be ahead.
type progress struct {
	bytes, files, expectedFiles, expectedBytes atomic.Int64
}

func (p *progress) wrote(n int64) { p.bytes.Add(n) }

func (p *progress) finished() { p.files.Add(1) }

func (p *progress) done() (files, bytes int64) { return p.files.Load(), p.bytes.Load() }

func (p *progress) expect(files, bytes int64) {
	p.expectedFiles.Add(files)
	p.expectedBytes.Add(bytes)
}

// report logs progress until the returned function is called.
func (r *run) report(ctx context.Context) func() {
	if r.ProgressEvery <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(r.ProgressEvery)
		defer ticker.Stop()
		var before int64
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			files, bytes := r.progress.done()
			r.Log.Info("Progress", "files", files, "ofFiles", r.progress.expectedFiles.Load(),
				"bytes", bytes, "ofBytes", r.progress.expectedBytes.Load(),
				"perSecond", dest.Size(int64(float64(bytes-before)/r.ProgressEvery.Seconds())))
			before = bytes
		}
	})
	return func() { cancel(); group.Wait() }
}
