// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret. The first three are those of a kubernetes.io/tls Secret, so that other tools can read it.
const (
	keyRoots    = "ca.crt"
	keyServing  = corev1.TLSCertKey
	keyPrivate  = corev1.TLSPrivateKeyKey
	keySigner   = "ca.key"
	keyRotation = "rotation.json"
)

// maxRoots bounds the bundle however often the Secret is tampered with: the API server parses it on every change.
const maxRoots = 8

// Lifetimes says how long certificates live and how long a rotation waits between its steps. A zero field takes the
// default.
type Lifetimes struct {
	Authority time.Duration // an authority; the next one joins after two thirds of it
	Serving   time.Duration // a serving certificate; renewed after two thirds of it
	Backdate  time.Duration // how far back validity begins, for machines whose clocks run late
	Settle    time.Duration // from roots confirmed to a certificate of the new authority being served
	Grace     time.Duration // from that certificate being seen in the Secret to the old authority leaving the roots
}

func (l Lifetimes) withDefaults() Lifetimes {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&l.Authority, 365 * 24 * time.Hour},
		{&l.Serving, 90 * 24 * time.Hour},
		{&l.Backdate, time.Hour},
		{&l.Settle, time.Minute},
		{&l.Grace, 24 * time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return l
}

// renewAt is when a third of the lifetime is left.
func renewAt(cert *x509.Certificate, lifetime time.Duration) time.Time {
	return cert.NotAfter.Add(-lifetime / 3)
}

// state is the Secret as far as it can be used. What cannot be used is absent.
type state struct {
	roots   []*x509.Certificate // what the API server shall trust
	signer  *authority          // signs the next serving certificate; its certificate is among the roots
	serving *tls.Certificate    // valid now and signed by one of the roots
	trusted time.Time           // since when every webhook configuration trusts the signer; zero: not yet
	served  time.Time           // since when the Secret surely holds the serving certificate; zero: not known
}

// rotation is what rotation.json holds. The fingerprint ties it to one signer: replaced by hand, the new signer starts
// from the beginning.
type rotation struct {
	Signer  string    `json:"signer"`
	Trusted time.Time `json:"trustedSince,omitzero"`
	Served  time.Time `json:"servedSince,omitzero"`
}

// decode reads the Secret's data and leaves out what cannot be used. The error names each unusable part, for the log;
// the state is good either way.
func decode(data map[string][]byte, now time.Time) (state, error) {
	var s state
	var problems []error
	report := func(key string, err error) {
		if err != nil && len(data[key]) > 0 {
			problems = append(problems, fmt.Errorf("%s: %w", key, err))
		}
	}

	roots, err := decodeCertificates(data[keyRoots])
	report(keyRoots, err)
	s.roots = roots

	key, err := decodeKey(data[keySigner])
	report(keySigner, err)
	if err == nil {
		i := slices.IndexFunc(roots, func(c *x509.Certificate) bool { return c.IsCA && samePublicKey(c, key) })
		switch {
		case i < 0:
			report(keySigner, errors.New("belongs to no certificate of "+keyRoots))
		case now.After(roots[i].NotAfter):
			report(keySigner, errors.New("belongs to an expired certificate"))
		default:
			s.signer = &authority{cert: roots[i], key: key}
		}
	}

	s.serving, err = decodeServing(data[keyServing], data[keyPrivate], roots, now)
	report(keyServing, err)

	var r rotation
	report(keyRotation, json.Unmarshal(data[keyRotation], &r))
	if s.signer != nil && r.Signer == fingerprint(s.signer.cert) {
		s.trusted, s.served = r.Trusted, r.Served
	}
	return s, errors.Join(problems...)
}

func decodeServing(certPEM, keyPEM []byte, roots []*x509.Certificate, now time.Time) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, errors.New("certificate and key cannot be read or do not belong together")
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, errors.New("expired")
	}
	if issuerOf(pair.Leaf, roots, now) == nil {
		return nil, errors.New("not signed by a certificate of " + keyRoots)
	}
	return &pair, nil
}

// encode writes the state as the Secret's data. A serving certificate that does not exist yet is empty rather than
// absent, because a kubernetes.io/tls Secret must have the keys.
func (s state) encode() (map[string][]byte, error) {
	data := map[string][]byte{keyRoots: encodeCertificates(s.roots), keyServing: {}, keyPrivate: {}}
	var err error
	if data[keySigner], err = encodeKey(s.signer.key); err != nil {
		return nil, err
	}
	if s.serving != nil {
		data[keyServing] = encodeCertificates([]*x509.Certificate{s.serving.Leaf})
		if data[keyPrivate], err = encodeKey(s.serving.PrivateKey); err != nil {
			return nil, err
		}
	}
	r := rotation{Signer: fingerprint(s.signer.cert), Trusted: s.trusted.UTC(), Served: s.served.UTC()}
	if data[keyRotation], err = json.Marshal(r); err != nil {
		return nil, err
	}
	return data, nil
}

// step is what has to be done next; each is one write of the Secret.
type step string

const (
	stepNone    step = ""
	stepReplace step = "replace-authority" // a new authority joins the roots
	stepTrust   step = "confirm-trust"     // the roots are in every webhook configuration
	stepIssue   step = "issue-certificate" // a serving certificate of the signer
	stepServe   step = "confirm-serving"   // every replica can see that certificate from now on
	stepRetire  step = "retire-authority"  // roots that nobody needs leave
)

// next decides what has to be done now or, when that is nothing, at which time to decide again.
func (s state) next(now time.Time, l Lifetimes, hosts []string) (step, time.Time) {
	if s.signer == nil {
		return stepReplace, now
	}
	wake := renewAt(s.signer.cert, l.Authority)
	if !now.Before(wake) {
		return stepReplace, now
	}
	if s.trusted.IsZero() {
		return stepTrust, now
	}
	if due := s.issueAt(now, l, hosts); !now.Before(due) {
		return stepIssue, now
	} else if due.Before(wake) {
		wake = due
	}
	if s.served.IsZero() && len(s.roots) > 1 && s.servesSigner(now) {
		return stepServe, now
	}
	for _, root := range s.roots {
		due, ok := s.retireAt(root, l)
		if ok && !now.Before(due) {
			return stepRetire, now
		}
		if ok && due.Before(wake) {
			wake = due
		}
	}
	return stepNone, wake
}

// issueAt waits for the API servers only while there is a usable certificate to serve meanwhile.
func (s state) issueAt(now time.Time, l Lifetimes, hosts []string) time.Time {
	switch {
	case s.serving == nil:
		return now
	case !s.servesSigner(now):
		return s.trusted.Add(l.Settle)
	case !covers(s.serving.Leaf, hosts):
		return now
	default:
		return renewAt(s.serving.Leaf, l.Serving)
	}
}

// servesSigner tells whether the serving certificate is one of the signer, that is, the old authority is not needed.
func (s state) servesSigner(now time.Time) bool {
	return s.serving != nil && issuerOf(s.serving.Leaf, []*x509.Certificate{s.signer.cert}, now) != nil
}

// retireAt is when a root may leave: at its end, or once every replica surely serves a certificate of the signer.
func (s state) retireAt(root *x509.Certificate, l Lifetimes) (time.Time, bool) {
	if root.Equal(s.signer.cert) {
		return time.Time{}, false
	}
	if s.served.IsZero() || s.serving == nil || s.serving.Leaf.CheckSignatureFrom(s.signer.cert) != nil {
		return root.NotAfter, true
	}
	if due := s.served.Add(l.Grace); due.Before(root.NotAfter) {
		return due, true
	}
	return root.NotAfter, true
}

// replaceAuthority lets a new authority join. Roots that are still good stay, the newest first, and so does what is
// being served.
func (s state) replaceAuthority(now time.Time, l Lifetimes) (state, error) {
	signer, err := newAuthority(now, l, webhookSubject)
	if err != nil {
		return state{}, err
	}
	kept := s.roots[:0:0]
	for _, root := range s.roots {
		if now.Before(root.NotAfter) {
			kept = append(kept, root)
		}
	}
	slices.SortStableFunc(kept, func(a, b *x509.Certificate) int { return b.NotAfter.Compare(a.NotAfter) })
	if s.serving != nil {
		issuer := issuerOf(s.serving.Leaf, kept, now)
		slices.SortStableFunc(kept, func(a, b *x509.Certificate) int {
			return btoi(b.Equal(issuer)) - btoi(a.Equal(issuer))
		})
	}
	if len(kept) > maxRoots-1 {
		kept = kept[:maxRoots-1]
	}
	return state{roots: append([]*x509.Certificate{signer.cert}, kept...), signer: signer, serving: s.serving}, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// issue keeps the names of the certificate it replaces when these are the reason to replace it: two replicas with
// different settings, as during an upgrade, would otherwise take turns. When the certificate can be seen by others is not
// known before it has been written, which may take any time.
func (s state) issue(now time.Time, l Lifetimes, hosts []string) (state, error) {
	if s.serving != nil && !covers(s.serving.Leaf, hosts) {
		hosts = append(slices.Clone(hosts), hostsOf(s.serving.Leaf)...)
	}
	hosts = slices.Clone(hosts)
	slices.Sort(hosts)
	serving, err := s.signer.issue(now, l, webhookSubject, slices.Compact(hosts))
	if err != nil {
		return state{}, err
	}
	s.serving, s.served = serving, time.Time{}
	return s, nil
}

// retire drops the roots whose time has come.
func (s state) retire(now time.Time, l Lifetimes) state {
	roots := s.roots
	s.roots = nil
	for _, root := range roots {
		if due, ok := s.retireAt(root, l); !ok || now.Before(due) {
			s.roots = append(s.roots, root)
		}
	}
	return s
}

// carry adds what this replica serves to a state that has nothing to serve, so that whoever emptied the Secret does
// not interrupt the webhooks.
func (s state) carry(serving *tls.Certificate, root *x509.Certificate, now time.Time) (state, bool) {
	if s.serving != nil || serving == nil || root == nil || issuerOf(serving.Leaf, []*x509.Certificate{root}, now) == nil {
		return s, false
	}
	s.serving = serving
	if !contains(s.roots, root) {
		s.roots = append(slices.Clone(s.roots), root)
	}
	return s, true
}
