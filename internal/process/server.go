// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Limits bound what one request may take. A zero field takes the default; a negative one means no limit.
type Limits struct {
	// Header is how long the head of a request may take (10 s), Read the whole request (30 s), Write the answer (60 s),
	// and Idle how long a connection may stay without a request (90 s).
	Header, Read, Write, Idle time.Duration
	// HeaderBytes and Body are the most bytes of a request's head (64 KiB) and body (1 MiB).
	HeaderBytes int
	Body        int64
}

// NewHTTPServer is a server that a slow or talkative client cannot hold.
func NewHTTPServer(handler http.Handler, l Limits) *http.Server {
	if body := cmp.Or(l.Body, 1<<20); body > 0 {
		handler = http.MaxBytesHandler(handler, body)
	}
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: cmp.Or(l.Header, 10*time.Second),
		ReadTimeout:       cmp.Or(l.Read, 30*time.Second),
		WriteTimeout:      cmp.Or(l.Write, time.Minute),
		IdleTimeout:       cmp.Or(l.Idle, 90*time.Second),
		MaxHeaderBytes:    max(cmp.Or(l.HeaderBytes, 64<<10), 0),
	}
}

// Off tells whether an address means that nothing is served: "0" or nothing at all.
func Off(address string) bool { return address == "" || address == "0" }

// Server is one address of a program and what answers there.
type Server struct {
	// Name is for logs and errors.
	Name string
	// Address is host:port; "0" or empty: not served.
	Address string
	Handler http.Handler
	// TLS is nil for a server without.
	TLS *tls.Config
	// H2C lets clients speak HTTP/2 without TLS, as those of gRPC do.
	H2C    bool
	Limits Limits
	// Dispensable is for a server without which the program is still of use: an address that cannot be opened is told of.
	Dispensable bool
}

// http is what serves the address.
func (s Server) http(handler http.Handler) *http.Server {
	server := NewHTTPServer(handler, s.Limits)
	if s.H2C {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	return server
}

// Listen opens the address.
func (s Server) Listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return nil, fmt.Errorf("open the address of %s: %w", s.Name, err)
	}
	if s.TLS != nil {
		listener = tls.NewListener(listener, s.TLS)
	}
	return listener, nil
}
