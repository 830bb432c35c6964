// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The headers by which probes are known, whatever their path.
const (
	probeHeader = "K-Network-Probe"
	hashHeader  = "K-Network-Hash"
	probeQueue  = "queue"
	probeOwn    = "probe"
)

// front answers probes and hands the rest on. It knows when the last request came, by which an end waits for the last client.
type front struct {
	next  http.Handler
	ready func(context.Context) error

	leaving atomic.Bool
	mu      sync.Mutex
	last    time.Time
}

func (f *front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	kubelet := fromKubelet(req.UserAgent())
	value := req.Header.Get(probeHeader)
	switch {
	case !kubelet && value != probeOwn:
		f.touch()
		if f.leaving.Load() && req.ProtoMajor < 2 {
			w.Header().Set("Connection", "close") // the next request goes to another pod
		}
		f.next.ServeHTTP(w, req)
	case f.leaving.Load():
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
	case kubelet:
		f.answer(w, req, value)
	default:
		hash := req.Header.Get(hashHeader)
		if hash == "" {
			http.Error(w, "a probe has header "+hashHeader, http.StatusBadRequest)
			return
		}
		w.Header().Set(hashHeader, hash)
	}
}

func fromKubelet(agent string) bool {
	return strings.HasPrefix(agent, "kube-probe/") || strings.HasPrefix(agent, "Knative-Activator-Probe")
}

// answer tells the kubelet whether the model server is ready.
func (f *front) answer(w http.ResponseWriter, req *http.Request, value string) {
	if value != probeQueue {
		http.Error(w, "unexpected probe header value: "+value, http.StatusBadRequest)
		return
	}
	if f.ready(req.Context()) != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte(probeQueue))
}

func (f *front) touch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now()
}

// drain fails probes from now on and returns when no request came for that long, or the context ends.
func (f *front) drain(ctx context.Context, quiet time.Duration) {
	f.leaving.Store(true)
	f.touch()
	for {
		f.mu.Lock()
		left := time.Until(f.last.Add(quiet))
		f.mu.Unlock()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// forwarded tells servers that know the standard header only what the others say.
func forwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Forwarded") == "" {
			if value := forwardedBy(req.Header); value != "" {
				req.Header.Set("Forwarded", value)
			}
		}
		next.ServeHTTP(w, req)
	})
}

// forwardedBy puts the chain of addresses together; host and scheme are those of the first.
func forwardedBy(h http.Header) string {
	var first []string
	for _, pair := range [][2]string{{"host", "X-Forwarded-Host"}, {"proto", "X-Forwarded-Proto"}} {
		if value := h.Get(pair[1]); value != "" && token(value) {
			first = append(first, pair[0]+"="+value)
		}
	}
	var elements []string
	for _, list := range h.Values("X-Forwarded-For") {
		for address := range strings.SplitSeq(list, ",") {
			if address = strings.TrimSpace(address); address != "" && token(address) {
				elements = append(elements, "for="+node(address))
			}
		}
	}
	if len(elements) == 0 {
		return strings.Join(first, ";")
	}
	elements[0] = strings.Join(append([]string{elements[0]}, first...), ";")
	return strings.Join(elements, ", ")
}

// token keeps a client from adding elements of its own.
func token(value string) bool { return !strings.ContainsAny(value, "\"\\;,= \t") }

// node is an address as the standard wants it: one of version 6 in brackets and quotes.
func node(address string) string {
	if ip := net.ParseIP(address); ip != nil && strings.Contains(address, ":") {
		return `"[` + address + `]"`
	}
	if strings.Contains(address, ":") {
		return `"` + address + `"`
	}
	return address
}
