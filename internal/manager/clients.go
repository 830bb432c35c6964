// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// clients are those who may ask for admission: whoever shows a certificate of these authorities. Anybody may connect, since
// the API server shows none when it asks for a conversion.
type clients struct {
	file  string
	names []string // empty: any

	mu     sync.Mutex
	pool   *x509.CertPool
	loaded time.Time
}

// rereadAfter is how soon a file that was replaced is noticed.
const rereadAfter = 10 * time.Second

func readPool(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// ask makes a server ask for a certificate and verify one that is shown.
func (c *clients) ask(config *tls.Config) {
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := c.authorities()
		if err != nil {
			return nil, err
		}
		mine := base.Clone()
		mine.ClientCAs, mine.ClientAuth = pool, tls.VerifyClientCertIfGiven
		// A resumed session was verified by what held before.
		mine.SessionTicketsDisabled = true
		return mine, nil
	}
}

// authorities reads the file again after a while, as it is replaced when an authority is. The earlier ones hold while it
// cannot be read.
func (c *clients) authorities() (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pool != nil && time.Since(c.loaded) < rereadAfter {
		return c.pool, nil
	}
	pool, err := readPool(c.file)
	if err != nil && c.pool == nil {
		return nil, err
	}
	if err == nil {
		c.pool = pool
	}
	c.loaded = time.Now()
	return c.pool, nil
}

// only lets through those who have shown a certificate. It looks before a byte of the body is read.
func (c *clients) only(next http.Handler) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !c.may(req.TLS) {
			w.Header().Set("Connection", "close")
			http.Error(w, "only the API server may ask; it shows no client certificate that --webhook-client-ca and --webhook-client-names accept", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func (c *clients) may(state *tls.ConnectionState) bool {
	if state == nil || len(state.VerifiedChains) == 0 {
		return false
	}
	leaf := state.VerifiedChains[0][0]
	return len(c.names) == 0 || slices.ContainsFunc(append(leaf.DNSNames, leaf.Subject.CommonName), func(name string) bool {
		return slices.Contains(c.names, name)
	})
}
