// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/modelplane/modelplane/internal/testkit/freeport"
)

// WebhookHost is the address at which the API server reaches a webhook that the
// test process serves. Certificates must be valid for it.
func (c *Cluster) WebhookHost() string { return "127.0.0.1" }

// WebhookURL is the address of a webhook as a clientConfig names it.
func (c *Cluster) WebhookURL(port int, path string) string {
	return "https://" + net.JoinHostPort(c.WebhookHost(), strconv.Itoa(port)) + "/" + strings.TrimPrefix(path, "/")
}

// PointWebhook turns a clientConfig that names a Service, which nobody could
// reach without a network of pods, to the same path on a port of this process.
func (c *Cluster) PointWebhook(config *admissionregistrationv1.WebhookClientConfig, port int, ca []byte) {
	path := ""
	if config.Service != nil && config.Service.Path != nil {
		path = *config.Service.Path
	}
	url := c.WebhookURL(port, path)
	config.Service, config.URL, config.CABundle = nil, &url, ca
}

// Serve runs a webhook server for the rest of the test, and waits until it listens on its port.
func (c *Cluster) Serve(t testing.TB, server interface{ Start(context.Context) error }, port int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the webhook server ended with %v", err)
		}
	})
	Eventually(t, 10*time.Second, "the webhook server to listen", func() error {
		conn, err := tls.Dial("tcp", net.JoinHostPort(c.WebhookHost(), strconv.Itoa(port)), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// FreePort returns a port of the loopback address that nobody listens on, and
// never the same one twice; see package freeport.
func FreePort(t testing.TB) int {
	t.Helper()
	return freeport.At(t, "127.0.0.1")
}

// ServingCert writes tls.crt and tls.key of a fresh self-signed certificate for
// the webhook host to a directory of the test, and returns the directory and the
// certificate as the bundle to trust.
func (c *Cluster) ServingCert(t testing.TB) (dir string, ca []byte) {
	t.Helper()
	cert, key, err := selfSigned(c.WebhookHost())
	if err != nil {
		t.Fatalf("making a serving certificate: %v", err)
	}
	dir = t.TempDir()
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, cert
}

func selfSigned(host string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "modelplane tests"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		IPAddresses:           []net.IP{net.ParseIP(host)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("signing: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
