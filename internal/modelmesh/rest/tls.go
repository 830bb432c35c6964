// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/process"
)

// reread is how often files with certificates are compared, at most.
const reread = 10 * time.Second

// roots are certificates in files that somebody else keeps. Files that cannot be used leave the last good ones.
type roots struct {
	files []string
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	content []byte
	pool    *x509.CertPool
	looked  time.Time
}

func loadRoots(files []string, log *slog.Logger) (*roots, error) {
	r := &roots{files: files, log: log, now: time.Now}
	r.looked = r.now()
	if err := r.read(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *roots) get() *x509.CertPool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.looked) >= reread {
		r.looked = now
		if err := r.read(); err != nil {
			r.log.Error("Certificates to trust cannot be read again; the last good ones count", "err", err.Error())
		}
	}
	return r.pool
}

func (r *roots) read() error {
	var content []byte
	for _, name := range r.files {
		some, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read certificates to trust: %w", err)
		}
		content = append(append(content, some...), '\n')
	}
	if r.pool != nil && bytes.Equal(content, r.content) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return fmt.Errorf("there are no certificates in %v; put them there in PEM form", r.files)
	}
	r.content, r.pool = content, pool
	return nil
}

// serverTLS is how clients are met: nil without a certificate.
func serverTLS(s Settings, certificate *process.Certificate, log *slog.Logger) (*tls.Config, error) {
	if certificate == nil {
		return nil, nil
	}
	config := process.TLS(certificate.Get)
	if s.ClientAuth == "" {
		return config, nil
	}
	trusted, err := loadRoots(s.TrustFiles, log)
	if err != nil {
		return nil, err
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if s.ClientAuth == "optional" {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = trusted.get()
		return now, nil
	}
	return config, nil
}

// meshTLS is how the mesh in this pod is met. It has no name of its own here: it must show the certificate that we have
// as well, or one that is trusted.
func meshTLS(s Settings, certificate *process.Certificate, log *slog.Logger) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} // VerifyConnection looks instead
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate.Get(nil) }
	}
	if s.SkipVerify {
		return config, nil
	}
	var trusted *roots
	if len(s.TrustFiles) > 0 {
		var err error
		if trusted, err = loadRoots(s.TrustFiles, log); err != nil {
			return nil, err
		}
	}
	config.VerifyConnection = func(state tls.ConnectionState) error { return isMesh(state, certificate, trusted) }
	return config, nil
}

func isMesh(state tls.ConnectionState, certificate *process.Certificate, trusted *roots) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the mesh shows no certificate")
	}
	shown := state.PeerCertificates[0]
	if certificate != nil {
		if own, err := certificate.Get(nil); err == nil && bytes.Equal(own.Certificate[0], shown.Raw) {
			return nil
		}
	}
	options := x509.VerifyOptions{Intermediates: x509.NewCertPool()} // the system's roots
	if trusted != nil {
		options.Roots = trusted.get()
	}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := shown.Verify(options); err != nil {
		return errors.New("the mesh shows a certificate that is neither this proxy's own nor trusted; give both the same Secret, or set REST_PROXY_SKIP_VERIFY")
	}
	return nil
}
