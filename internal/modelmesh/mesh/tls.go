// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/modelplane/modelplane/internal/process"
)

// tlsSettings are the files of a mounted Secret.
type tlsSettings struct {
	cert, key  string
	clientAuth tls.ClientAuthType
	trust      []string
	internal   []string
}

func (e *environment) tls() tlsSettings {
	t := tlsSettings{
		cert: e.text("MM_TLS_KEY_CERT_PATH", e.get("MM_SVC_GRPC_CA_CERT_PATH")), key: e.text("MM_TLS_PRIVATE_KEY_PATH", e.get("MM_SVC_GRPC_PRIVATE_KEY_PATH")),
		trust: list(e.get("MM_TLS_TRUST_CERT_PATH"), ","), internal: list(e.get("MM_INTERNAL_TRUST_CERTS"), ","),
	}
	switch strings.ToUpper(e.get("MM_TLS_CLIENT_AUTH")) {
	case "", "NONE":
	case "REQUIRED", "REQUIRE":
		t.clientAuth = tls.RequireAndVerifyClientCert
	case "OPTIONAL":
		t.clientAuth = tls.VerifyClientCertIfGiven
	default:
		e.fail(errors.New("MM_TLS_CLIENT_AUTH must be REQUIRED, OPTIONAL or NONE"))
	}
	if (t.cert == "") != (t.key == "") {
		e.fail(errors.New("only one of MM_TLS_KEY_CERT_PATH and MM_TLS_PRIVATE_KEY_PATH is set; give both or none"))
	}
	if e.get("MM_TLS_PRIVATE_KEY_PASSPHRASE") != "" {
		e.fail(errors.New("MM_TLS_PRIVATE_KEY_PASSPHRASE is set, and keys with a passphrase are not supported; mount the key without one"))
	}
	return t
}

func (e *environment) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// certificates are what this instance shows, and whom it trusts. Files are read again when they change.
type certificates struct {
	set   tlsSettings
	own   *process.Certificate // nil without TLS
	trust *trustFiles
	peers *trustFiles
}

func loadCertificates(set tlsSettings, log *slog.Logger) (*certificates, error) {
	c := &certificates{set: set}
	if set.cert == "" {
		return c, nil
	}
	var err error
	if c.own, err = process.LoadCertificateFiles(set.cert, set.key, log); err != nil {
		return nil, err
	}
	c.trust = &trustFiles{paths: set.trust, log: log}
	// Peers have the same Secret, so its certificate and its authorities are whom they trust.
	c.peers = &trustFiles{paths: append(append([]string{set.cert}, set.trust...), set.internal...), log: log}
	if _, err := c.peers.pool(); err != nil {
		return nil, err
	}
	if len(set.trust) > 0 {
		_, err = c.trust.pool()
	}
	return c, err
}

// server is how clients are spoken to.
func (c *certificates) server() credentials.TransportCredentials {
	if c.own == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			out := process.TLS(c.own.Get)
			out.NextProtos, out.ClientAuth = []string{"h2"}, c.set.clientAuth
			if c.set.clientAuth == tls.NoClientCert {
				return out, nil
			}
			var err error
			out.ClientCAs, err = c.trust.pool()
			return out, err
		},
	})
}

// peerServer is how peers are let in: each shows the certificate that all of them have.
func (c *certificates) peerServer() credentials.TransportCredentials {
	if c.own == nil {
		return insecure.NewCredentials()
	}
	config := process.TLS(c.own.Get)
	config.NextProtos, config.ClientAuth, config.VerifyConnection = []string{"h2"}, tls.RequireAnyClientCert, c.verify
	return credentials.NewTLS(config)
}

// peerClient is how peers are called. They are called by address, which no certificate names: who they are follows from the
// authority that signed for them.
func (c *certificates) peerClient() credentials.TransportCredentials {
	if c.own == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		InsecureSkipVerify:   true, //nolint:gosec // verify does it, by authority instead of by name
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.own.Get(nil) },
		VerifyConnection:     c.verify,
	})
}

func (c *certificates) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("a peer showed no certificate")
	}
	pool, err := c.peers.pool()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		between.AddCert(certificate)
	}
	if _, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("a peer is not trusted: %w", err)
	}
	return nil
}

// trustFiles are authorities in files. What was trusted before a change is trusted for as long as the process runs, so that
// peers which see a change at different times understand each other.
type trustFiles struct {
	paths []string
	log   *slog.Logger

	mu     sync.Mutex
	all    *x509.CertPool
	read   string
	looked time.Time
}

func (t *trustFiles) pool() (*x509.CertPool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all != nil && time.Since(t.looked) < 10*time.Second {
		return t.all, nil
	}
	t.looked = time.Now()
	var text strings.Builder
	for _, path := range t.paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			if t.all != nil {
				t.log.Error("A file with authorities cannot be read again; the last good ones are trusted", "file", path)
				return t.all, nil
			}
			return nil, fmt.Errorf("read authorities: %w", err)
		}
		text.Write(raw)
		text.WriteByte('\n')
	}
	if text.String() == t.read {
		return t.all, nil
	}
	next := x509.NewCertPool()
	if t.all != nil {
		next = t.all.Clone()
	}
	if !next.AppendCertsFromPEM([]byte(text.String())) && t.all == nil {
		return nil, fmt.Errorf("there is no certificate in PEM in %s", strings.Join(t.paths, ", "))
	}
	t.all, t.read = next, text.String()
	return t.all, nil
}

// selfSigned is for metrics, where scrapers expect HTTPS and check nothing.
func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "modelmesh-metrics"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	pair, err := tls.X509KeyPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	if err != nil {
		return nil, fmt.Errorf("use a certificate: %w", err)
	}
	return &pair, nil
}
