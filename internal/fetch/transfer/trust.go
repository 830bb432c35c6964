// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Trust says whose certificates are good enough.
type Trust struct {
	// Files with certificates beside those of the system.
	Files []string
	// PEM are certificates themselves.
	PEM []byte
	// Anyone turns the check off.
	Anyone bool
	// Certificate and Key show who we are, where a server wants to know; both in PEM form.
	Certificate, Key []byte
}

func (t Trust) transport(parallel int) (*http.Transport, error) {
	pool, err := t.pool()
	if err != nil {
		return nil, err
	}
	var own []tls.Certificate
	if len(t.Certificate) > 0 {
		pair, err := tls.X509KeyPair(t.Certificate, t.Key)
		if err != nil { // the error could show a part of the key
			return nil, errors.New("the client certificate of the secret and its key do not fit together or are not in PEM form; correct them")
		}
		own = append(own, pair)
	}
	dialer := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: dialer.DialContext,
		TLSClientConfig: &tls.Config{
			RootCAs: pool, Certificates: own, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: t.Anyone, // only where a user says so
		},
		TLSHandshakeTimeout: 15 * time.Second,
		// One connection per stream: several in one would share a window and be slower.
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxConnsPerHost:     parallel + 1, // one for signers
		MaxIdleConnsPerHost: parallel,
		MaxIdleConns:        4 * parallel,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		ReadBufferSize:      64 << 10,
		// Answers are headers, too; this bounds them.
		MaxResponseHeaderBytes: 256 << 10,
	}, nil
}

func (t Trust) pool() (*x509.CertPool, error) {
	if len(t.Files) == 0 && len(t.PEM) == 0 {
		return nil, nil // the system's
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, name := range t.Files {
		content, err := os.ReadFile(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("the file %s with certificates to trust is not there; check the ConfigMap that it comes from", name)
		case err != nil:
			return nil, fmt.Errorf("the file with certificates to trust cannot be read: %w", err)
		case !pool.AppendCertsFromPEM(content):
			return nil, fmt.Errorf("the file %s with certificates to trust has none; put them there in PEM form", name)
		}
	}
	if len(t.PEM) > 0 && !pool.AppendCertsFromPEM(t.PEM) {
		return nil, errors.New("the certificate in the storage configuration is not in PEM form; correct it")
	}
	return pool, nil
}
