// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(t, template)
	return a
}

func (a authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// client shows a certificate with the name.
func (a authority) client(t *testing.T, name string) *http.Client {
	t.Helper()
	cert, key := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	client := anyServer()
	client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	return client
}

func (a authority) write(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOnlyTheAPIServerMayAsk: with an authority for clients, admission is refused to all whose certificate it has not signed
// under one of the names. Conversion is not, because the API server shows no certificate for it.
func TestOnlyTheAPIServerMayAsk(t *testing.T) {
	known, other := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	known.write(t, file)
	s, url := serveHooks(t, Options{WebhookClientCA: file, WebhookClientNames: []string{"kube-apiserver"}})
	path := configMaps(nil).Admission[0].ValidatePath()
	ask := func(c *http.Client, path string) int {
		resp, err := c.Post(url+path, "application/json", strings.NewReader(
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE"}}`))
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		name   string
		client *http.Client
		path   string
		want   int
	}{
		{"the API server", known.client(t, "kube-apiserver"), path, http.StatusOK},
		{"nobody", anyServer(), path, http.StatusForbidden},
		{"another of the same authority", known.client(t, "kubelet"), path, http.StatusForbidden},
		{"the name from another authority", other.client(t, "kube-apiserver"), path, 0},
		{"conversion for nobody", anyServer(), "/convert", http.StatusOK},
	} {
		if got := ask(c.client, c.path); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}

	other.write(t, file)
	s.clients.mu.Lock()
	s.clients.loaded = time.Time{} // it is time to look again
	s.clients.mu.Unlock()
	if got := ask(other.client(t, "kube-apiserver"), path); got != http.StatusOK {
		t.Errorf("after the authority was replaced: %d", got)
	}
	if got := ask(known.client(t, "kube-apiserver"), path); got != 0 {
		t.Errorf("the earlier authority: %d, want a refused handshake", got)
	}
}
