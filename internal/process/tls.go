// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// TLS is how our servers speak it: HTTP/1.1 only, because CVE-2023-44487 lets a client exhaust an HTTP/2 server cheaply.
// Who needs HTTP/2 puts "h2" first in NextProtos.
func TLS(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get, NextProtos: []string{"http/1.1"}}
}

// reread is how often files are compared, at most: only a client that connects makes us look.
const reread = 10 * time.Second

// Certificate is what somebody else keeps in two files, such as those of a mounted Secret. They are read again when they
// have changed. Files that cannot be used are told of once, and the last good ones served.
type Certificate struct {
	certFile, keyFile string

	log *slog.Logger
	now func() time.Time

	mu              sync.Mutex
	pair            *tls.Certificate
	certPEM, keyPEM []byte
	looked          time.Time
	complaint       string
}

// LoadCertificate takes the files tls.crt and tls.key of a directory.
func LoadCertificate(dir string, log *slog.Logger) (*Certificate, error) {
	return LoadCertificateFiles(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), log)
}

// LoadCertificateFiles fails when the files cannot be used at the start.
func LoadCertificateFiles(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	c.looked = c.now()
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// Get fits tls.Config.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= reread {
		c.looked = now
		c.again()
	}
	return c.pair, nil
}

// again reads, and complains when that begins to fail.
func (c *Certificate) again() {
	before := c.pair
	err := c.read()
	switch {
	case err != nil && err.Error() != c.complaint:
		c.complaint = err.Error()
		c.log.Error("The serving certificate cannot be read again; the last good one is served", "err", c.complaint)
	case err == nil:
		c.complaint = ""
		if c.pair != before {
			c.log.Info("Serving a new certificate", "serial", c.pair.Leaf.SerialNumber.Text(16), "expires", c.pair.Leaf.NotAfter)
		}
	}
}

// read takes over the files when they belong together.
func (c *Certificate) read() error {
	certPEM, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Errorf("read the serving certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("read the serving key: %w", err)
	}
	if c.pair != nil && bytes.Equal(certPEM, c.certPEM) && bytes.Equal(keyPEM, c.keyPEM) {
		return nil
	}
	if locked(keyPEM) {
		return fmt.Errorf("%s is a key with a passphrase, which is not supported; replace it with one that has none", c.keyFile)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil { // says nothing of the key
		return fmt.Errorf("%s and %s cannot be read or do not belong together; replace both at once", c.certFile, c.keyFile)
	}
	c.pair, c.certPEM, c.keyPEM = &pair, certPEM, keyPEM
	return nil
}

// locked tells whether a key can be read with a passphrase only.
func locked(keyPEM []byte) bool {
	for block, rest := pem.Decode(keyPEM); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}
