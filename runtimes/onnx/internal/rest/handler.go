// SPDX-License-Identifier: Apache-2.0

// Package rest speaks HTTP: the open inference protocol v2 with its binary data, the v1 predict protocol, health and
// metrics. It turns bodies into tensors and back and leaves everything else to package inference.
package rest

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

type server struct {
	service *inference.Service
	version string // of the server
}

// Handler answers for the service. The version is that of this program.
func Handler(service *inference.Service, version string) http.Handler {
	s := &server{service, version}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.alive)
	mux.HandleFunc("GET /v2/health/live", s.live)
	mux.HandleFunc("GET /v2/health/ready", s.ready)
	mux.HandleFunc("GET /v2", s.metadata)
	mux.HandleFunc("GET /v2/models", s.models)
	for _, path := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		mux.HandleFunc("GET "+path, s.modelMetadata)
		mux.HandleFunc("GET "+path+"/ready", s.modelReady)
		mux.HandleFunc("POST "+path+"/infer", s.measured("v2", s.infer))
	}
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /v1/models/{model}", s.modelState)
	mux.HandleFunc("POST /v1/models/{action}", s.measured("v1", s.predict))
	mux.Handle("GET /metrics", promhttp.HandlerFor(service.Metrics.Registry, promhttp.HandlerOpts{}))
	return mux
}

var statuses = map[inference.Kind]int{
	inference.Internal:    http.StatusInternalServerError,
	inference.Invalid:     http.StatusBadRequest,
	inference.NotFound:    http.StatusNotFound,
	inference.TooLarge:    http.StatusRequestEntityTooLarge,
	inference.Busy:        http.StatusTooManyRequests,
	inference.Unavailable: http.StatusServiceUnavailable,
	inference.Late:        http.StatusGatewayTimeout,
	inference.Cancelled:   499,
	inference.Unsupported: http.StatusNotImplemented,
	inference.Unfit:       http.StatusConflict,
}

// answer is the body of a successful reply.
type answer struct {
	kind   string
	header map[string]string
	parts  [][]byte
}

// measured counts what f does and writes its answer or error. What a request takes is given back when its answer is out,
// and not before: a client that reads slowly holds it.
func (s *server) measured(protocol string, f func(*http.Request, *inference.Share) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		share := s.service.Budget.Share()
		defer share.Release()
		a, err := f(r, share)
		code := http.StatusOK
		if err != nil {
			code = fail(w, r, err)
		} else {
			a.write(w, s.service.ClientTimeout)
		}
		s.service.Metrics.Answered(protocol, strconv.Itoa(code), time.Since(began))
	}
}

// piece is how much a client must read within the timeout.
const piece = 256 << 10

func (a *answer) write(w http.ResponseWriter, timeout time.Duration) {
	size := 0
	for _, p := range a.parts {
		size += len(p)
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Length", strconv.Itoa(size))
	for key, value := range a.header {
		h.Set(key, value)
	}
	control := http.NewResponseController(w)
	for _, p := range a.parts {
		for chunk := range slices.Chunk(p, piece) {
			// Where no deadline can be set, as in tests, nobody is slow.
			_ = control.SetWriteDeadline(time.Now().Add(timeout))
			if _, err := w.Write(chunk); err != nil {
				return // the client went away, or does not read
			}
		}
	}
	_ = control.SetWriteDeadline(time.Now().Add(timeout)) // for what is still in buffers
}

// fail writes an error in the form that both protocols use.
func fail(w http.ResponseWriter, r *http.Request, err error) int {
	code := statuses[inference.KindOf(err)]
	if code == http.StatusInternalServerError {
		slog.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
	}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, code, map[string]string{"error": err.Error()})
	return code
}

func reply(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // only plain structs and maps come here
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that went away hears nothing
}

func (s *server) alive(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{"status": "alive"})
}

func (s *server) live(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]bool{"live": true})
}

func (s *server) ready(w http.ResponseWriter, _ *http.Request) {
	reply(w, s.readiness(), map[string]bool{"ready": s.service.Ready()})
}

func (s *server) readiness() int {
	if s.service.Ready() {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (s *server) metadata(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{"name": inference.ServerName, "version": s.version, "extensions": inference.Extensions})
}

func (s *server) models(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string][]string{"models": s.service.Names()})
}

func (s *server) find(r *http.Request) (*inference.Model, func(), error) {
	return s.service.Use(r.PathValue("model"), r.PathValue("version"))
}

type tensorMetadata struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

func describe(specs []tensor.Spec) []tensorMetadata {
	all := make([]tensorMetadata, len(specs))
	for i, s := range specs {
		all[i] = tensorMetadata{s.Name, string(s.Type), s.Shape}
	}
	return all
}

func (s *server) modelMetadata(w http.ResponseWriter, r *http.Request) {
	m, done, err := s.find(r)
	if err != nil {
		fail(w, r, err)
		return
	}
	defer done()
	reply(w, http.StatusOK, struct {
		Name     string           `json:"name"`
		Versions []string         `json:"versions"`
		Platform string           `json:"platform"`
		Inputs   []tensorMetadata `json:"inputs"`
		Outputs  []tensorMetadata `json:"outputs"`
	}{m.Name, []string{inference.Version}, inference.Platform, describe(m.Inputs), describe(m.Outputs)})
}

func (s *server) modelReady(w http.ResponseWriter, r *http.Request) {
	m, done, err := s.find(r)
	if err != nil {
		fail(w, r, err)
		return
	}
	defer done()
	reply(w, s.readiness(), map[string]any{"name": m.Name, "ready": s.service.Ready()})
}

// modelState answers clients of the v1 protocol.
func (s *server) modelState(w http.ResponseWriter, r *http.Request) { s.modelReady(w, r) }

// body reads a request for a model within the limits. While it comes in, which may take long, it does not keep the model
// from being unloaded.
func (s *server) body(r *http.Request, share *inference.Share, model string) ([]byte, error) {
	_, done, err := s.service.Use(model, "")
	if err != nil {
		return nil, err
	}
	done()
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, inference.Invalidf("Content-Encoding %q is not supported; send the body as it is", encoding)
	}
	return share.Read(r.Body, r.ContentLength)
}
