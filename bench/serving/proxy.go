// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/testkit"
)

// proxy stands between the API server and who is measured, and counts. It knows
// nothing of the other side but its requests, so that any manager can be measured.
type proxy struct {
	*testkit.Counter
	address string
	ca      []byte
}

// newProxy passes requests on as they are, with the credentials they carry.
func newProxy(t testing.TB, cluster *testkit.Cluster, trace io.Writer) *proxy {
	t.Helper()
	p := &proxy{Counter: testkit.NewCounter()}
	server := rest.AnonymousClientConfig(cluster.Config())
	transport, err := rest.TransportFor(p.Wrap(server))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cluster.WebhookHost(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	p.address = "https://" + listener.Addr().String()
	dir, ca := cluster.ServingCert(t)
	p.ca = ca
	quiet := log.New(io.Discard, "", 0) // connections that are cut are part of a restart
	var pass http.Handler = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      quiet,
	}
	if trace != nil {
		pass = traced(trace, pass)
	}
	front := &http.Server{
		Handler:           pass,
		ErrorLog:          quiet,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
		ReadHeaderTimeout: time.Minute,
	}
	t.Cleanup(func() { _ = front.Close() })
	go func() { _ = front.ServeTLS(listener, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")) }()
	return p
}

// through returns the configuration with the proxy in place of the API server.
func (p *proxy) through(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.Host, out.CAData = p.address, p.ca
	return out
}

// work is what was counted since a snapshot without the signs of life of a
// leader, which follow the clock.
func (p *proxy) work(since testkit.Counts) testkit.Counts {
	out := p.Since(since)
	for call := range out {
		if call.Group == "coordination.k8s.io" {
			delete(out, call)
		}
	}
	return out
}

// settled waits until no request but watches has come for a while and returns
// when the last one came.
func (p *proxy) settled(t testing.TB, quiet, patience time.Duration) time.Time {
	t.Helper()
	start, last, before := time.Now(), time.Now(), -1
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		work := p.work(nil)
		if n := work.Total() - work.Of("watch", ""); n != before {
			before, last = n, time.Now()
		}
		if time.Since(last) > quiet {
			return last
		}
		if time.Since(start) > patience {
			t.Fatalf("the requests do not end; so far:\n%s", work)
		}
		<-tick.C
	}
}

// traced writes down each request with its body, to find out why it was sent.
func traced(to io.Writer, next http.Handler) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		fmt.Fprintf(to, "%s %s %s %q\n", time.Now().UTC().Format(traceTime), req.Method, req.URL.RequestURI(), body)
		mu.Unlock()
		next.ServeHTTP(w, req)
	})
}

const traceTime = "15:04:05.000"
