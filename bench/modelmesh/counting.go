// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/testkit"
)

// apiProxy stands between the manager and the API server, and counts.
type apiProxy struct {
	*testkit.Counter
	config *rest.Config // of the manager's account, through the proxy
}

func newAPIProxy(t testing.TB, cluster *testkit.Cluster, account *rest.Config) *apiProxy {
	t.Helper()
	p := &apiProxy{Counter: testkit.NewCounter(), config: rest.CopyConfig(account)}
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
	dir, ca := cluster.ServingCert(t)
	p.config.Host, p.config.CAData = "https://"+listener.Addr().String(), ca
	quiet := log.New(io.Discard, "", 0) // connections that are cut are part of the end
	front := &http.Server{
		Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport,
			FlushInterval: -1, ErrorLog: quiet},
		ErrorLog: quiet, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, ReadHeaderTimeout: time.Minute,
	}
	t.Cleanup(func() { _ = front.Close() })
	go func() { _ = front.ServeTLS(listener, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")) }()
	return p
}

// work is what was asked since then, without the signs of life of a leader, which follow the clock.
func (p *apiProxy) work(since testkit.Counts) testkit.Counts {
	out := p.Since(since)
	for call := range out {
		if call.Group == "coordination.k8s.io" {
			delete(out, call)
		}
	}
	return out
}

// meshProxy stands between the manager and the mesh, spreads calls over its processes, and counts them by method.
type meshProxy struct {
	address string
	to      []*grpc.ClientConn
	next    atomic.Int64

	mu    sync.Mutex
	calls map[string]int
}

func newMeshProxy(t testing.TB, to []*grpc.ClientConn) *meshProxy {
	t.Helper()
	p := &meshProxy{to: to, calls: map[string]int{}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = listener.Addr().String()
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(p.pass))
	t.Cleanup(server.Stop)
	go func() { _ = server.Serve(listener) }()
	return p
}

// pass hands on one question and its answer.
func (p *meshProxy) pass(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	p.mu.Lock()
	p.calls[method]++
	p.mu.Unlock()
	var question, answer raw
	if err := stream.RecvMsg(&question); err != nil {
		return err
	}
	headers, _ := metadata.FromIncomingContext(stream.Context())
	ctx := metadata.NewOutgoingContext(context.WithoutCancel(stream.Context()), headers)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	to := p.to[int(p.next.Add(1))%len(p.to)]
	if err := to.Invoke(ctx, method, &question, &answer, grpc.ForceCodecV2(codec{})); err != nil {
		return err
	}
	return stream.SendMsg(&answer)
}

// counted are the calls so far.
func (p *meshProxy) counted() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
