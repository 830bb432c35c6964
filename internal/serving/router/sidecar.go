// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Where the proxy of a service mesh in the same pod answers, how long it may take, and how soon it is asked again.
const (
	sidecarAddress = "http://localhost:15000"
	sidecarTime    = 3 * time.Second
	sidecarAgain   = 2 * time.Second
)

// sidecar is the proxy of a service mesh. Where there is one it does the encryption, so that services are called without.
// It may start after the router.
type sidecar struct{ present atomic.Bool }

// address is where a service is called.
func (s *sidecar) address(url string) string {
	if rest, encrypted := strings.CutPrefix(url, "https://"); encrypted && s.present.Load() {
		return "http://" + rest
	}
	return url
}

// look asks once.
func (s *sidecar) look(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, sidecarTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return // nobody there
	}
	defer response.Body.Close()
	s.present.Store(response.StatusCode == http.StatusOK)
}

// watch asks until there is one. What was found stays.
func (s *sidecar) watch(ctx context.Context, address string, again time.Duration) {
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for !s.present.Load() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.look(ctx, address)
		}
	}
}
