// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
)

// pair writes a certificate that signs itself, and its key.
func pair(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mesh"}, DNSNames: []string{"modelmesh-serving.ns"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// secureMesh is a mesh that wants to know who asks.
func secureMesh(t *testing.T, certFile, keyFile string) int {
	t.Helper()
	own, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert})))
	pb.RegisterGRPCInferenceServiceServer(server, &mesh{ready: true})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().(*net.TCPAddr).Port
}

// running is a proxy as the command runs it, and how to end it.
func running(t *testing.T, o options) (string, func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // the proxy opens it again
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- o.serve(ctx, address, slog.New(slog.DiscardHandler)) }()
	return address, func() error { cancel(); return <-ended }
}

func small(s Settings) options {
	s.MaxMessage = tried
	return options{Settings: s, maxPending: 1 << 20, maxRequests: 10, clientTimeout: time.Minute, timeout: 10 * time.Second}
}

// get asks until there is somebody, or the test ends.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			if time.Now().After(deadline) || !strings.Contains(err.Error(), "refused") {
				return 0, err.Error()
			}
			continue
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
}

// TestTLS: the mesh must be the one with our certificate, and clients must show one when they have to.
func TestTLS(t *testing.T) {
	certFile, keyFile := pair(t)
	otherCert, otherKey := pair(t)
	port := secureMesh(t, certFile, keyFile)
	settings := Settings{MeshPort: port, MeshTLS: true, CertFile: certFile, KeyFile: keyFile, ClientAuth: "required", TrustFiles: []string{certFile}}
	address, stop := running(t, small(settings))
	own, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	trusting := func(certificates ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}}
	}
	if code, text := get(t, trusting(own), "https://"+address+"/v2/models/iris/ready"); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := get(t, trusting(), "https://"+address+"/v2/health/live"); code != 0 || !strings.Contains(text, "certificate required") {
		t.Errorf("a client without a certificate: %d %s", code, text)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		change func(*Settings)
		code   int
		text   string
	}{
		"a mesh with another certificate": {func(s *Settings) { s.CertFile, s.KeyFile, s.TrustFiles = otherCert, otherKey, []string{otherCert} }, 503, "neither this proxy's own nor trusted"},
		"one that is trusted":             {func(s *Settings) { s.CertFile, s.KeyFile = otherCert, otherKey }, 200, ""},
		"one that need not be right":      {func(s *Settings) { s.CertFile, s.KeyFile, s.TrustFiles, s.SkipVerify = otherCert, otherKey, nil, true }, 200, ""},
	} {
		s := settings
		s.ClientAuth = ""
		c.change(&s)
		address, stop := running(t, small(s))
		if code, text := get(t, trusting(), "https://"+address+"/v2/models/iris/ready"); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s", name, code, text)
		}
		if err := stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRootsAreReadAgain(t *testing.T) {
	first, _ := pair(t)
	second, _ := pair(t)
	now := time.Now()
	r := &roots{files: []string{first}, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }}
	if err := r.read(); err != nil {
		t.Fatal(err)
	}
	before := r.get()
	content, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		write   []byte
		changed bool
	}{{[]byte("nothing"), false}, {content, true}} {
		if err := os.WriteFile(first, step.write, 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(reread)
		if changed := !r.get().Equal(before); changed != step.changed {
			t.Errorf("changed: %v", changed)
		}
	}
}

func TestSettings(t *testing.T) {
	read := func(env map[string]string) (Settings, error) {
		return readSettings(func(name string) string { return env[name] })
	}
	got, err := read(nil)
	if diff := cmp.Diff(Settings{ListenPort: 8008, MeshPort: 8033, MaxMessage: 16777216}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got, err = read(map[string]string{
		"REST_PROXY_LISTEN_PORT": "1", "REST_PROXY_GRPC_PORT": "2", "REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES": "3", "REST_PROXY_USE_TLS": "true",
		"REST_PROXY_SKIP_VERIFY": "true", "MM_TLS_KEY_CERT_PATH": "c", "MM_TLS_PRIVATE_KEY_PATH": "k", "MM_TLS_CLIENT_AUTH": "REQUIRED", "MM_TLS_TRUST_CERT_PATH": "a,b",
	})
	want := Settings{ListenPort: 1, MeshPort: 2, MaxMessage: 3, MeshTLS: true, SkipVerify: true, CertFile: "c", KeyFile: "k", ClientAuth: "required", TrustFiles: []string{"a", "b"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, value := range map[string]string{
		"REST_PROXY_LISTEN_PORT": "x", "REST_PROXY_GRPC_PORT": "0", "REST_PROXY_USE_TLS": "maybe", "MM_TLS_KEY_CERT_PATH": "c",
		"MM_TLS_PRIVATE_KEY_PASSPHRASE": "secret", "MM_TLS_CLIENT_AUTH": "required", "REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES": "-1",
	} {
		if _, err := read(map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
