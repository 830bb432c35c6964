// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates of clients.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t}
	a.cert, a.key = a.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		template.Subject = pkix.Name{CommonName: "an authority"}
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		a.Fatal(err)
	}
	return cert, key
}

func (a *authority) client(name string) *tls.Certificate {
	a.Helper()
	cert, key := a.issue(&x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (a *authority) write(path string) {
	a.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		a.Fatal(err)
	}
}

// TestClientCertificates: a certificate opens what its name opens, if the right authority signed it; authorities can be replaced.
func TestClientCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	ours.write(file)
	p := &Program{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), SelfSigned: true, Namespace: "maas", TLSMinVersion: "1.3"}
	get, err := p.certificate()
	if err != nil {
		t.Fatal(err)
	}
	config, err := p.tls(get, file)
	if err != nil {
		t.Fatal(err)
	}
	internalTrust, gatewayTrust := InternalTrust{Names: []string{"authorino.*"}}, GatewayTrust{Names: []string{"gateway.example"}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if internalTrust.May(req) == nil {
			w.Header().Set("Internal", "yes")
		}
		if gatewayTrust.Is(req) {
			w.Header().Set("Gateway", "yes")
		}
	}))
	server.TLS = config
	server.StartTLS()
	t.Cleanup(server.Close)
	opens := func(cert *tls.Certificate) string {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is the server that checks here
		if cert != nil {
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		}
		answered, err := (&http.Client{Transport: transport}).Get(server.URL) //nolint:noctx // a plain client
		if err != nil {
			return "nothing at all"
		}
		defer answered.Body.Close()
		return answered.Header.Get("Internal") + "/" + answered.Header.Get("Gateway")
	}
	check := func(want string, cert *tls.Certificate, what string) {
		t.Helper()
		if got := opens(cert); got != want {
			t.Errorf("%s opens %q, not %q", what, got, want)
		}
	}
	check("/", nil, "no certificate")
	check("yes/", ours.client("authorino.kuadrant"), "that of a checker")
	check("/yes", ours.client("gateway.example"), "that of the gateway")
	check("/", ours.client("somebody.example"), "that of somebody else")
	check("nothing at all", theirs.client("gateway.example"), "that of another authority")
	theirs.write(file)
	check("/yes", theirs.client("gateway.example"), "that of the new authority")
	check("nothing at all", ours.client("gateway.example"), "that of the old authority")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("/", theirs.client("gateway.example"), "one that nobody can check")
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"system:serviceaccount:maas:*", "system:serviceaccount:maas:api", true}, {"system:serviceaccount:maas:*", "system:serviceaccount:maas2:api", false},
		{"system:serviceaccount:*", "system:serviceaccount:maas:api", false}, {"*", "anybody", true}, {"a", "ab", false}, {"[", "[", false},
	} {
		if got := matches([]string{c.pattern}, c.name); got != c.want {
			t.Errorf("%s fits %s: %v", c.name, c.pattern, got)
		}
	}
}
