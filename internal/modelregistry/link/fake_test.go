// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// fakeRegistry keeps environments and inference services as a registry does. before may spoil an answer; after loses
// answers of what was carried out.
type fakeRegistry struct {
	mu           sync.Mutex
	before       func(*http.Request) int // a status, or 0
	after        func(*http.Request) int
	tokens       map[string]bool
	calls        map[string]int // by method
	environments []map[string]any
	services     []map[string]any
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{tokens: map[string]bool{}, calls: map[string]int{}}
}

func (f *fakeRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[r.Method]++
	f.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] = true
	if f.before != nil {
		if status := f.before(r); status != 0 {
			w.Header().Set("Location", "http://elsewhere.example/")
			w.WriteHeader(status)
			return
		}
	}
	status, answer := f.answer(r)
	if f.after != nil {
		if lost := f.after(r); lost != 0 {
			status, answer = lost, nil
		}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may go
}

func (f *fakeRegistry) answer(r *http.Request) (int, any) {
	body := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&body) // none of a GET
	path, q := strings.TrimPrefix(r.URL.Path, apiPath), r.URL.Query()
	id, byID := strings.CutPrefix(path, "/inference_services/")
	switch {
	case r.Method == http.MethodGet && path == "/serving_environment":
		return one(f.environments, map[string]any{"name": q.Get("name")})
	case r.Method == http.MethodPost && path == "/serving_environments":
		return create(&f.environments, body, map[string]any{"name": body["name"]})
	case r.Method == http.MethodGet && path == "/inference_service":
		return one(f.services, map[string]any{"name": q.Get("name"), "servingEnvironmentId": q.Get("parentResourceId")})
	case r.Method == http.MethodPost && path == "/inference_services":
		return create(&f.services, body, map[string]any{"name": body["name"], "servingEnvironmentId": body["servingEnvironmentId"]})
	case r.Method == http.MethodGet && byID:
		return one(f.services, map[string]any{"id": id})
	case r.Method == http.MethodPatch && byID:
		status, have := one(f.services, map[string]any{"id": id})
		for _, fixed := range []string{"id", "name", "registeredModelId", "servingEnvironmentId"} {
			if body[fixed] != nil {
				return http.StatusBadRequest, nil
			}
		}
		maps.Copy(have, body)
		return status, have
	}
	return http.StatusNotFound, nil
}

func one(all []map[string]any, want map[string]any) (int, map[string]any) {
	for _, e := range all {
		if fits(e, want) {
			return http.StatusOK, e
		}
	}
	return http.StatusNotFound, nil
}

func fits(e, want map[string]any) bool {
	for key, value := range want {
		if e[key] != value {
			return false
		}
	}
	return true
}

func create(all *[]map[string]any, body, unique map[string]any) (int, any) {
	if status, _ := one(*all, unique); status == http.StatusOK {
		return http.StatusConflict, nil
	}
	body["id"] = strconv.Itoa(len(*all) + 41)
	*all = append(*all, body)
	return http.StatusCreated, body
}

// service is the only one there is, as the registry has it.
func (f *fakeRegistry) service() (map[string]any, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.services) == 0 {
		return nil, 0
	}
	return maps.Clone(f.services[0]), len(f.services)
}

// spoil sets what goes wrong from now on.
func (f *fakeRegistry) spoil(before, after func(*http.Request) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *fakeRegistry) count() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}
