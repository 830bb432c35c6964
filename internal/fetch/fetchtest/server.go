// SPDX-License-Identifier: Apache-2.0

// Package fetchtest has servers for tests of downloads: they answer as real ones do, and fail in the ways real ones do.
package fetchtest

import (
	"bytes"
	"crypto/md5" // a tag, no secret
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Content is reproducible and does not compress.
func Content(size int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(size))) // content of test files
	out := make([]byte, size)
	for i := 0; i+8 <= size; i += 8 {
		v := random.Uint64()
		for j := range 8 {
			out[i+j] = byte(v >> (8 * j))
		}
	}
	return out
}

// Fault spoils one answer. Zero values spoil nothing.
type Fault struct {
	// Status instead of the content.
	Status int
	Header http.Header
	// CutAfter so many bytes of the body the connection is closed.
	CutAfter int
	// Silent keeps the connection open without an answer until the client goes.
	Silent bool
	// Flip changes one bit of the body.
	Flip bool
}

// Server has files and faults.
type Server struct {
	*httptest.Server
	// NoRanges sends everything always; NoLength does not say how much.
	NoRanges, NoLength, NoTags bool
	// Header is added to each answer with content.
	Header http.Header

	mu       sync.Mutex
	files    map[string][]byte
	faults   []Fault
	requests []*http.Request
	active   int
	most     int
}

// New starts a server with files by path.
func New(t testing.TB, files map[string][]byte) *Server {
	s := &Server{files: files, Header: http.Header{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// Spoil makes the next answers fail, one by one.
func (s *Server) Spoil(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Set replaces a file.
func (s *Server) Set(path string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = content
}

// Requests are all that came.
func (s *Server) Requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.requests...)
}

// Most is how many requests were under way at the same time.
func (s *Server) Most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// ServeHTTP answers, or fails as it was told to.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, ok := s.files[r.URL.Path]
	s.requests = append(s.requests, r)
	s.active++
	s.most = max(s.most, s.active)
	var fault Fault
	if len(s.faults) > 0 {
		fault, s.faults = s.faults[0], s.faults[1:]
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.active--
		s.mu.Unlock()
	}()
	for name, values := range fault.Header {
		w.Header()[name] = values
	}
	switch {
	case fault.Silent:
		<-r.Context().Done()
	case fault.Status != 0:
		w.WriteHeader(fault.Status)
	case !ok:
		http.NotFound(w, r)
	default:
		s.send(w, r, content, fault)
	}
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, content []byte, fault Fault) {
	sum := md5.Sum(content) // as above
	if !s.NoTags {
		w.Header().Set("ETag", strconv.Quote(hex.EncodeToString(sum[:])))
	}
	for name, values := range s.Header {
		w.Header()[name] = values
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	if fault.Flip {
		content = bytes.Clone(content)
		content[len(content)/2] ^= 1
	}
	if fault.CutAfter > 0 {
		w = &cutter{ResponseWriter: w, left: fault.CutAfter}
	}
	if !s.NoRanges {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		return
	}
	if !s.NoLength {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	}
	if s.NoLength {
		w.(http.Flusher).Flush() // a server's always can
	}
	_, _ = io.Copy(w, bytes.NewReader(content)) // the client may go
}

// cutter breaks the connection after some bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Flush() {
	c.ResponseWriter.(http.Flusher).Flush() // a server's always can
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	if _, err := c.ResponseWriter.Write(p[:c.left]); err != nil {
		return 0, err
	}
	c.Flush()
	panic(http.ErrAbortHandler)
}
