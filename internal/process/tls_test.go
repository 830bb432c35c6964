// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issue writes a certificate for 127.0.0.1 with this serial number, and its key.
func issue(t *testing.T, dir string, serial int64) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	put(t, dir, "tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func put(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if _, err := LoadCertificate(dir, slog.Default()); err == nil {
		t.Error("a directory without a certificate is taken")
	}
	issue(t, dir, 1)
	c, err := LoadCertificate(dir, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := c.looked
	c.now = func() time.Time { return now }
	serial := func(want int64) {
		t.Helper()
		pair, err := c.Get(nil)
		if err != nil || pair.Leaf.SerialNumber.Int64() != want {
			t.Errorf("served %v, %v; want %d", pair.Leaf.SerialNumber, err, want)
		}
	}
	issue(t, dir, 2)
	serial(1) // nobody looks before it is time
	now = now.Add(reread)
	serial(2)
	put(t, dir, "tls.key", []byte("secret-half"))
	for range 3 {
		now = now.Add(reread)
		serial(2)
	}
	if told := strings.Count(out.String(), "cannot be read again"); told != 1 || strings.Contains(out.String(), "secret-half") {
		t.Errorf("told %d times:\n%s", told, &out)
	}
	issue(t, dir, 3)
	now = now.Add(reread)
	serial(3)
}

// TestKeyWithPassphrase: a key that nobody can read here is told from one that is broken.
func TestKeyWithPassphrase(t *testing.T) {
	for name, block := range map[string]*pem.Block{
		"PKCS 8": {Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("locked")},
		"older":  {Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("locked")},
	} {
		dir := t.TempDir()
		issue(t, dir, 1)
		put(t, dir, "tls.key", pem.EncodeToMemory(block))
		if _, err := LoadCertificate(dir, slog.Default()); err == nil || !strings.Contains(err.Error(), "is a key with a passphrase") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
