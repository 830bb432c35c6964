// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestCrowd: while too much is held, no more is read, and it is told so; what is held is given back.
func TestCrowd(t *testing.T) {
	s := light(t)
	s.api.bodies.held.Store(heldBodies)
	s.as(ann, "POST", "/v1/api-keys/search", `{}`).is(s, 503, `{"error":"too many`)
	s.inside("POST", "/internal/v1/usage", `{}`).is(s, 503)
	s.as(ann, "GET", "/v1/api-keys/config", "").is(s, 200) // it has no body
	s.api.bodies.held.Store(0)
	for range 3 {
		s.as(ann, "POST", "/v1/api-keys/search", `{}`).is(s, 200)
		s.as(ann, "POST", "/v1/api-keys/search", `{`).is(s, 400)
	}
	if n := s.api.bodies.held.Load(); n != 0 {
		t.Errorf("%d bytes are held when nobody asks", n)
	}
}

type slow struct{}

func (slow) Read([]byte) (int, error) {
	return 0, fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
}

func TestSlowBody(t *testing.T) {
	s := light(t)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/api-keys/search", slow{})
	req.Header.Set("Authorization", "Bearer "+ann)
	w := httptest.NewRecorder()
	s.api.Handler().ServeHTTP(w, req)
	if w.Code != http.StatusRequestTimeout || !strings.Contains(w.Body.String(), `{"error":"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
