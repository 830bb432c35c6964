// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// memory is what a server was told: events of payload logs, and models to load.
type memory struct {
	mu     sync.Mutex
	events []event
	models map[string]string // by name what is in its files
}

// event is what tests look at of a CloudEvent.
type event struct{ Type, ID, Service, Status, Body string }

const mostEvents = 10_000

// remember adds the ways in and out.
func remember(mux *http.ServeMux) {
	m := &memory{models: map[string]string{}}
	mux.HandleFunc("POST /{$}", m.receive)
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) { m.show(w, func() any { return m.events }) })
	mux.HandleFunc("GET /models", func(w http.ResponseWriter, _ *http.Request) { m.show(w, func() any { return m.models }) })
	mux.HandleFunc("POST /v2/repository/models/{name}/load", m.load)
	mux.HandleFunc("POST /v2/repository/models/{name}/unload", m.unload)
}

func (m *memory) show(w http.ResponseWriter, what func() any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = json.NewEncoder(w).Encode(what()) // a client that has gone needs nothing
}

func (m *memory) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	h := r.Header
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == mostEvents {
		w.WriteHeader(http.StatusInsufficientStorage)
		return
	}
	m.events = append(m.events, event{h.Get("Ce-Type"), h.Get("Ce-Id"), h.Get("Ce-Inferenceservicename"), h.Get("Ce-Statuscode"), string(body)})
}

// load reads whatever files a model has, as a server does that holds many.
func (m *memory) load(w http.ResponseWriter, r *http.Request) {
	name := filepath.Base(r.PathValue("name"))
	files, err := filepath.Glob(filepath.Join("/mnt/models", name, "weights*"))
	if err != nil || len(files) == 0 {
		http.Error(w, "there are no weights", http.StatusNotFound)
		return
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.models[name] = string(content)
}

func (m *memory) unload(_ http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.models, r.PathValue("name"))
}
