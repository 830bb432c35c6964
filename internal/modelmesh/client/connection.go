// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// Mesh is one of a namespace: where it is, and how it is spoken to.
type Mesh struct {
	Namespace, Service string
	// Addresses of its pods, each with a port, sorted.
	Addresses []string
	// TLS is nil where it speaks in plain text.
	TLS *TLS
	// Etcd is where its records are; nil where that is not known.
	Etcd *Etcd
	// Alone says that they are in an etcd of the namespace. Nobody watches these, so the mesh is asked now and then.
	Alone bool
}

// Pods tells one set of pods from another.
func (m Mesh) Pods() string {
	if len(m.Addresses) == 0 {
		return ""
	}
	const letters = 12
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(m.Addresses)), ",")))
	return hex.EncodeToString(sum[:])[:letters]
}

// TLS is what a Secret says of certificates. It has no way to be printed.
type TLS struct {
	roots, certificate, key string
}

// NewTLS takes the certificates that are trusted, and those with which the control plane proves itself where it must, in PEM.
func NewTLS(roots []byte, certificate, key []byte) *TLS {
	return &TLS{roots: string(roots), certificate: string(certificate), key: string(key)}
}

// String keeps keys out of logs.
func (t *TLS) String() string { return "TLS" }

// GoString too.
func (t *TLS) GoString() string { return "TLS" }

// MarshalJSON too.
func (t *TLS) MarshalJSON() ([]byte, error) { return []byte(`"TLS"`), nil }

func (t *TLS) config(name string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name, RootCAs: x509.NewCertPool(), NextProtos: []string{"h2"}}
	if !c.RootCAs.AppendCertsFromPEM([]byte(t.roots)) {
		return nil, errors.New("the Secret of tls.secretName has no certificate in PEM. Correct it in the manager's namespace")
	}
	if t.certificate != "" {
		pair, err := tls.X509KeyPair([]byte(t.certificate), []byte(t.key))
		if err != nil { // says too much or too little
			return nil, errors.New("tls.crt and tls.key of the Secret of tls.secretName cannot be read or do not belong together. Correct it in the manager's namespace")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

type dialer func(ctx context.Context, address string) (net.Conn, error)

// connection is the one to the mesh of a namespace.
type connection struct {
	*grpc.ClientConn
	tls       *TLS
	service   string
	addresses []string
	resolver  *manual.Resolver
	used      time.Time
}

// Bounds of connections.
const (
	idle       = 5 * time.Minute
	unused     = time.Hour
	maxAnswer  = 4 << 20
	longestTry = 10 * time.Second
)

// connect is the connection to a mesh, made anew when how it is spoken to has changed. Pods that come and go only change
// where it leads.
func (c *Client) connect(m Mesh) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeUnused()
	have := c.meshes[m.Namespace]
	if have != nil && (have.service != m.Service || !same(have.tls, m.TLS)) {
		c.drop(m.Namespace)
		have = nil
	}
	if have == nil {
		made, err := c.newConnection(m)
		if err != nil {
			return nil, err
		}
		have = made
		c.meshes[m.Namespace] = have
	}
	if !slices.Equal(have.addresses, m.Addresses) {
		have.addresses = slices.Clone(m.Addresses)
		have.resolver.UpdateState(stateOf(m.Addresses))
	}
	have.used = c.now()
	return have, nil
}

func same(a, b *TLS) bool { return a == b || a != nil && b != nil && *a == *b }

func stateOf(addresses []string) resolver.State {
	s := resolver.State{}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	return s
}

func (c *Client) newConnection(m Mesh) (*connection, error) {
	name := m.Service + "." + m.Namespace
	transport := insecure.NewCredentials()
	if m.TLS != nil {
		config, err := m.TLS.config(name)
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	pace := backoff.DefaultConfig
	pace.MaxDelay = longestTry
	r := manual.NewBuilderWithScheme("mesh")
	r.InitialState(stateOf(m.Addresses))
	options := []grpc.DialOption{
		grpc.WithResolvers(r), grpc.WithTransportCredentials(transport), grpc.WithAuthority(name), grpc.WithIdleTimeout(idle),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pace, MinConnectTimeout: longestTry}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: idle, Timeout: longestTry}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)), grpc.WithUserAgent("modelplane"),
	}
	if c.dial != nil {
		options = append(options, grpc.WithContextDialer(c.dial))
	}
	conn, err := grpc.NewClient("mesh:///"+name, options...)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the mesh: %w", err)
	}
	return &connection{ClientConn: conn, tls: m.TLS, service: m.Service, addresses: slices.Clone(m.Addresses), resolver: r}, nil
}

// closeUnused closes connections to meshes that nobody has asked for a while, such as those of namespaces that are gone.
func (c *Client) closeUnused() {
	for namespace, conn := range c.meshes {
		if c.now().Sub(conn.used) > unused {
			c.drop(namespace)
		}
	}
}

func (c *Client) drop(namespace string) {
	if conn := c.meshes[namespace]; conn != nil {
		_ = conn.Close() // it is not used again
		delete(c.meshes, namespace)
	}
}

// Connected tells whether there is a connection to the mesh of a namespace.
func (c *Client) Connected(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.meshes[namespace] != nil
}

// leave ends the connection to the mesh of a namespace that has none any more.
func (c *Client) leave(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(namespace)
}
