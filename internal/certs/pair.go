// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"time"
)

// Pair is a serving certificate with its key and the roots that vouch for it, all in PEM, for servers that the manager
// looks after. The key of the authority is thrown away when it has signed: each pair has an authority of its own.
type Pair struct{ Roots, Certificate, Key []byte }

// pairLifetimes: whoever serves such a certificate has to be restarted for the next one, so it comes rarely.
var pairLifetimes = Lifetimes{Authority: 365 * 24 * time.Hour, Serving: 365 * 24 * time.Hour}.withDefaults()

// NewPair makes a pair for a subject and its hosts. Of the earlier roots the newest stays among the roots while it is
// valid: the server goes on with the earlier certificate until it was restarted, and clients must trust both meanwhile.
func NewPair(now time.Time, subject string, hosts []string, earlier []byte) (Pair, error) {
	signer, err := newAuthority(now, pairLifetimes, subject)
	if err != nil {
		return Pair{}, err
	}
	serving, err := signer.issue(now, pairLifetimes, subject, hosts)
	if err != nil {
		return Pair{}, err
	}
	key, err := encodeKey(serving.PrivateKey)
	if err != nil {
		return Pair{}, err
	}
	roots := []*x509.Certificate{signer.cert}
	if known, err := decodeCertificates(earlier); err == nil && now.Before(known[0].NotAfter) { // else nobody could trust it
		roots = append(roots, known[0])
	}
	return Pair{
		Roots: encodeCertificates(roots), Certificate: encodeCertificates([]*x509.Certificate{serving.Leaf}), Key: key,
	}, nil
}

// errNotForHosts says nothing about the key.
var errNotForHosts = errors.New("the certificate is not good for every name of the server")

// RenewAt is when the pair should be replaced. The error says why it cannot be used as it is.
func (p Pair) RenewAt(now time.Time, hosts []string) (time.Time, error) {
	roots, err := decodeCertificates(p.Roots)
	if err != nil {
		return time.Time{}, err
	}
	serving, err := decodeServing(p.Certificate, p.Key, roots, now)
	if err != nil {
		return time.Time{}, err
	}
	if !covers(serving.Leaf, hosts) {
		return time.Time{}, errNotForHosts
	}
	return renewAt(serving.Leaf, pairLifetimes.Serving), nil
}
