// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/pass"
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

// TestPasses: a pass of the tenant opens what is asked about each request, and nothing else; its keys can be replaced while
// the server runs, and where they cannot be read no pass is good.
func TestPasses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	text := pass.NewKey()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	known, err := pass.ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	p := &Program{Log: slog.New(slog.NewTextHandler(&logged, nil)), TenantName: tenantName, InternalKeyFile: file}
	period, _ := pass.Now(time.Now())
	good := known[0].Of(tenantName, period)
	trust := InternalTrust{Pass: p.goodPass}
	code := func(trust InternalTrust, method, path string, shown ...string) int {
		t.Helper()
		req := httptest.NewRequest(method, path, nil)
		for _, s := range shown {
			req.Header.Add(pass.Header, s)
		}
		err := trust.May(req)
		if refused, is := errors.AsType[*problem](err); is {
			return refused.code
		} else if err != nil {
			t.Fatal(err)
		}
		return http.StatusOK
	}
	check := func(want int, what string, got int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, not %d", what, got, want)
		}
	}
	check(200, "validate", code(trust, "POST", pathValidate, good))
	check(200, "select", code(trust, "POST", pathSelect, good))
	check(403, "clean up", code(trust, "POST", "/internal/v1/api-keys/cleanup", good))
	check(403, "revoke", code(trust, "DELETE", "/internal/v1/tenants/"+tenantName+"/api-keys", good))
	check(403, "add usage", code(trust, "POST", metering.PathAdd, good))
	check(403, "a path that is written otherwise", code(trust, "POST", "/internal/v1/api-keys/cleanup/../validate", good))
	check(401, "that of another tenant", code(trust, "POST", pathValidate, known[0].Of("other", period)))
	check(401, "that of two periods before", code(trust, "POST", pathValidate, known[0].Of(tenantName, period-2)))
	check(401, "none", code(trust, "POST", pathValidate))
	check(401, "an empty one", code(trust, "POST", pathValidate, ""))
	check(401, "two", code(trust, "POST", pathValidate, good, good))
	check(401, "one where nobody checks passes", code(InternalTrust{}, "POST", pathValidate, good))
	next := pass.NewKey()
	write(next + "\n" + text + "\n")
	check(200, "that of the former key, which stays for a while", code(trust, "POST", pathValidate, good))
	write(next)
	check(401, "that of the former key", code(trust, "POST", pathValidate, good))
	for _, broken := range []string{"", "short"} {
		write(broken)
		check(401, "any, without keys", code(trust, "POST", pathValidate, good))
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check(401, "any, without a file", code(trust, "POST", pathValidate, good))
	if strings.Contains(logged.String(), good) || strings.Contains(logged.String(), text) {
		t.Error("a secret is in the log")
	}
}

// TestPassesOpenNothingElse: a pass is as if it were not there wherever people ask.
func TestPassesOpenNothingElse(t *testing.T) {
	s := start(t, "sqlite://"+filepath.Join(t.TempDir(), "db"))
	known, err := pass.ParseKeys(pass.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	period, _ := pass.Now(time.Now())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.public+"/v1/api-keys/config", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(pass.Header, known[0].Of(tenantName, period))
	answered, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answered.Body.Close()
	if answered.StatusCode != http.StatusUnauthorized {
		t.Errorf("it answers %s", answered.Status)
	}
}
