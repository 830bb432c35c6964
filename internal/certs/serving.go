// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"
)

// ErrNoCertificate is what a client's handshake ends with before there is a certificate.
var ErrNoCertificate = errors.New("the serving certificate is not in place yet")

// served is what a replica serves, with the root that makes it trusted (nil when unknown).
type served struct {
	cert *tls.Certificate
	root *x509.Certificate
}

// slot holds what is being served. Readers are handshakes, many at a time; the one writer swaps it whole.
type slot struct{ now atomic.Pointer[served] }

func (s *slot) get() served {
	if current := s.now.Load(); current != nil {
		return *current
	}
	return served{}
}

// swap takes over the certificate and tells whether it is another than before.
func (s *slot) swap(next served) bool {
	before := s.get()
	s.now.Store(&next)
	certificateExpiry.Set(float64(next.cert.Leaf.NotAfter.Unix()))
	return before.cert == nil || !before.cert.Leaf.Equal(next.cert.Leaf)
}

// check tells what is wrong with what is being served.
func (s *slot) check(now time.Time) error {
	current := s.get()
	switch {
	case current.cert == nil:
		return ErrNoCertificate
	case now.After(current.cert.Leaf.NotAfter):
		return errors.New("the serving certificate has expired")
	}
	return nil
}
