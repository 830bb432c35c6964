// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	certificateBlock = "CERTIFICATE"
	privateKeyBlock  = "PRIVATE KEY"

	// webhookSubject is whom the certificates of webhooks and metrics are made out to.
	webhookSubject = "modelplane webhook"
)

// authority is a certificate authority that can sign: its certificate and its key.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes a self-signed authority for certificates of a subject. Its name carries a part of the serial number,
// because two roots in one bundle with the same name would leave the verifier guessing.
func newAuthority(now time.Time, l Lifetimes, subject string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the authority's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s authority %x", subject, serial.Bytes()[:4])},
		NotBefore:             now.Add(-l.Backdate),
		NotAfter:              now.Add(l.Authority),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the authority's certificate: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// issue makes a serving certificate of the subject for the hosts. It never outlives the authority, so that whoever looks at the
// serving certificate alone sees the true end.
func (a *authority) issue(now time.Time, l Lifetimes, subject string, hosts []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the serving key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	notAfter := now.Add(l.Serving)
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: subject},
		NotBefore:             now.Add(-l.Backdate),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// newSerial sets the top bit of the first byte's lower half, so that the number is positive and always as long.
func newSerial() (*big.Int, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return nil, fmt.Errorf("generate a serial number: %w", err)
	}
	raw[0] = raw[0]&0x7f | 0x40
	return new(big.Int).SetBytes(raw), nil
}

// hostsOf lists the names and addresses a certificate is good for.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// covers tells whether the certificate is good for every host.
func covers(cert *x509.Certificate, hosts []string) bool {
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// issuerOf finds the root that signed the certificate; nil when none did or the certificate is not valid at that time.
func issuerOf(cert *x509.Certificate, roots []*x509.Certificate, now time.Time) *x509.Certificate {
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	chains, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now})
	if err != nil {
		return nil
	}
	return chains[0][len(chains[0])-1]
}

// contains tells whether the very same certificate is among the roots.
func contains(roots []*x509.Certificate, cert *x509.Certificate) bool {
	return slices.ContainsFunc(roots, cert.Equal)
}

func fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// encodeCertificates writes certificates one after the other in PEM.
func encodeCertificates(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: cert.Raw}))
	}
	return out.Bytes()
}

// decodeCertificates reads every certificate of a bundle. A bundle that cannot be read to its end is refused whole:
// trust that silently lost a root would surface much later.
func decodeCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := data; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return nil, errors.New("not PEM")
		}
		if block.Type != certificateBlock {
			return nil, fmt.Errorf("PEM block %q where a certificate belongs", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if !contains(certs, cert) {
			certs = append(certs, cert)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("empty")
	}
	return certs, nil
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, errors.New("a private key of a kind that cannot be stored")
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: der}), nil
}

// decodeKey reads a PKCS #8 key. Errors say nothing about the content.
func decodeKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("not a PKCS #8 private key")
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("a private key that cannot sign")
	}
	return signer, nil
}

// samePublicKey matches a certificate to a key.
func samePublicKey(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}
