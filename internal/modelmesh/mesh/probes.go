// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// probes answers /ready and /live.
func (m *Mesh) probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.isReady(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	mux.HandleFunc("/live", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	return mux
}

// isReady holds a new instance back while another one hands over, so that a rollout does not take away more at once than it
// brings. An instance that was ready once stays so until it ends.
func (m *Mesh) isReady() error {
	switch {
	case m.failfast.stopped():
		return errors.New("models that others have loaded fail to load here; see the log")
	case !m.ready.Load():
		return errors.New("it is starting")
	case m.draining.Load():
		return errors.New("it is about to end")
	case m.everReady.Load():
		return nil
	}
	ending := ""
	m.instances.Each(func(id string, row store.Row[store.Instance]) bool {
		if row.Value.Shutdown && m.exists(id) {
			ending = id
		}
		return ending == ""
	})
	if ending != "" {
		return fmt.Errorf("the instance %s hands over its models first", ending)
	}
	m.everReady.Store(true)
	return nil
}

// alone is how long a runtime that is stopped without its mesh is held.
const alone = 10 * time.Second

// preStop answers /stop, which has models handed over, and /prestop, which holds the runtime until nobody is answered any more.
func (m *Mesh) preStop() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/prestop", func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(alone)
		defer timer.Stop()
		select { // a runtime that is restarted alone need not wait
		case <-m.stopAsked:
		case <-timer.C:
			_, _ = io.WriteString(w, "the mesh goes on")
			return
		case <-r.Context().Done():
			return
		}
		tell(w, r, m.ended, "the mesh has ended")
	})
	mux.HandleFunc("/stop", func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() || r.Method != http.MethodPost {
			http.Error(w, "only this pod itself may stop its mesh", http.StatusForbidden)
			return
		}
		m.stopOnce.Do(func() { close(m.stopAsked) })
		if r.URL.Query().Get("wait") != "" {
			tell(w, r, m.drained, "handed over")
		}
	})
	return mux
}

func tell(w http.ResponseWriter, r *http.Request, when <-chan struct{}, what string) {
	select {
	case <-when:
		_, _ = io.WriteString(w, what)
	case <-r.Context().Done():
	}
}

// Stop is what the hook before the end of a pod runs: it asks the mesh beside it to hand over, and may wait for that.
func Stop(ctx context.Context, port int, wait bool) error {
	url := fmt.Sprintf("http://127.0.0.1:%d/stop", port)
	if wait {
		url += "?wait=true"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return fmt.Errorf("ask the mesh to stop: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the mesh to stop: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<10)); err != nil {
		return fmt.Errorf("wait for the mesh to stop: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the mesh to stop: it answers %s", answer.Status)
	}
	return nil
}
