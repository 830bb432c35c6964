// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// TestTLS: clients are spoken to with the certificate of the Secret, those without one of their own are refused where it is
// required, and peers trust each other by the same Secret.
func TestTLS(t *testing.T) {
	t.Parallel()
	pair, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	raw, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, false, "MM_TLS_KEY_CERT_PATH="+cert, "MM_TLS_PRIVATE_KEY_PATH="+key, "MM_TLS_CLIENT_AUTH=REQUIRED", "MM_TLS_TRUST_CERT_PATH="+cert)
	pods := c.start("pod-a", "pod-b")
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	dial := func(p *pod, certificates ...tls.Certificate) *pod {
		conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", p.port), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newRawCodec())),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: certificates, MinVersion: tls.VersionTLS12})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return &pod{cluster: p.cluster, name: p.name, conn: conn}
	}
	a, b := dial(pods[0], *pair), dial(pods[1], *pair)
	a.register("one", "", "", true, true)
	if first, second := a.mustCall("one"), b.mustCall("one"); first != second {
		t.Errorf("answered by %s and %s, though only one has it", first, second)
	}
	if _, _, _, err := dial(pods[0]).call(within(t, patience), "hello", "mm-model-id", "one"); err == nil {
		t.Error("a client without a certificate is answered")
	}
}
