// SPDX-License-Identifier: Apache-2.0

package cluster

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
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Names of the key pairs. Three authorities are kept apart, because each answers another question: who
// may talk to the API server, who may talk to its store, and who may speak for others in a header.
const (
	caCluster    = "ca"
	caEtcd       = "etcd-ca"
	caFrontProxy = "front-proxy-ca"

	certAPIServer         = "kube-apiserver"
	certEtcd              = "etcd"
	certEtcdClient        = "etcd-client"
	certFrontProxy        = "front-proxy-client"
	certControllerManager = "kube-controller-manager"
	certScheduler         = "kube-scheduler"
	certAdmin             = "admin"
	certKubelet           = "kubelet"
	certKubeletClient     = "kube-apiserver-kubelet-client"
	certProxy             = "kube-proxy"
	certDNS               = "coredns"
	certAddons            = "addons"

	keyServiceAccounts = "service-accounts"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	certLifetime = 365 * 24 * time.Hour
	// renewBefore leaves a kept cluster enough validity for as long as it may stay up.
	renewBefore = 90 * 24 * time.Hour
)

// certSpec says who a certificate is for. Every component gets one certificate for both directions.
type certSpec struct {
	name   string
	ca     string
	common string
	groups []string
	hosts  []string
}

// Who the name server and the addons are to the API server.
const (
	dnsUser    = "modelplane-local:coredns"
	addonsUser = "modelplane-local:addons"
)

var loopback = []string{"localhost", "127.0.0.1"}

var certSpecs = []certSpec{
	{certEtcd, caEtcd, "etcd", nil, loopback},
	{certEtcdClient, caEtcd, "kube-apiserver", nil, nil},
	{certAPIServer, caCluster, "kube-apiserver", nil, append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", serviceIP, nodeIP,
	}, loopback...)},
	{certFrontProxy, caFrontProxy, "front-proxy-client", nil, nil},
	{certControllerManager, caCluster, "system:kube-controller-manager", nil, loopback},
	{certScheduler, caCluster, "system:kube-scheduler", nil, loopback},
	{certAdmin, caCluster, "modelplane-local-admin", []string{"system:masters"}, nil},
	{certKubelet, caCluster, "system:node:" + nodeName, []string{"system:nodes"}, append([]string{nodeName, nodeIP}, loopback...)},
	{certKubeletClient, caCluster, "kube-apiserver-kubelet-client", []string{"system:masters"}, nil},
	{certProxy, caCluster, "system:kube-proxy", nil, nil},
	{certDNS, caCluster, dnsUser, nil, nil},
	{certAddons, caCluster, addonsUser, nil, []string{nameAddons + ".kube-system.svc"}},
}

// pki is a directory of key pairs.
type pki struct{ dir string }

func (p pki) cert(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p pki) key(name string) string  { return filepath.Join(p.dir, name+".key") }

// ensurePKI makes whatever is missing or about to expire and leaves the rest untouched, because running
// components and exported kubeconfigs depend on it.
func ensurePKI(dir string, now time.Time) (pki, error) {
	p := pki{dir: dir}
	authorities := map[string]tls.Certificate{}
	for _, name := range []string{caCluster, caEtcd, caFrontProxy} {
		pair, err := p.authority(name, now)
		if err != nil {
			return p, fmt.Errorf("authority %s: %w", name, err)
		}
		authorities[name] = pair
	}
	for _, s := range certSpecs {
		if p.valid(s, authorities[s.ca], now) {
			continue
		}
		if err := p.issue(s, authorities[s.ca], now); err != nil {
			return p, fmt.Errorf("certificate %s: %w", s.name, err)
		}
	}
	if _, err := os.Stat(p.key(keyServiceAccounts)); !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	return p, p.writeKey(keyServiceAccounts, key)
}

func (p pki) load(name string) (tls.Certificate, error) {
	return tls.LoadX509KeyPair(p.cert(name), p.key(name))
}

func (p pki) authority(name string, now time.Time) (tls.Certificate, error) {
	if pair, err := p.load(name); err == nil && now.Add(renewBefore).Before(pair.Leaf.NotAfter) {
		return pair, nil
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "modelplane-local " + name},
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if err := p.sign(name, template, nil, now); err != nil {
		return tls.Certificate{}, err
	}
	return p.load(name)
}

// valid tells whether the pair on disk is still the one that issue would make.
func (p pki) valid(s certSpec, ca tls.Certificate, now time.Time) bool {
	pair, err := p.load(s.name)
	if err != nil || pair.Leaf.CheckSignatureFrom(ca.Leaf) != nil || pair.Leaf.Subject.CommonName != s.common {
		return false
	}
	for _, host := range s.hosts {
		if pair.Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return now.Add(renewBefore).Before(pair.Leaf.NotAfter)
}

func (p pki) issue(s certSpec, ca tls.Certificate, now time.Time) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.common, Organization: s.groups},
		NotAfter:    now.Add(certLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range s.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	return p.sign(s.name, template, &ca, now)
}

// sign completes the template, signs it with the authority (or with its own key when there is none)
// and writes the pair, key first: a certificate on disk always has its key.
func (p pki) sign(name string, template *x509.Certificate, ca *tls.Certificate, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return err
	}
	template.NotBefore = now.Add(-time.Hour)
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	if err := p.writeKey(name, key); err != nil {
		return err
	}
	return writeFile(p.cert(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func (p pki) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(p.key(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// client trusts one authority and shows one certificate.
func (p pki) client(ca, cert string) (*tls.Config, error) {
	pair, err := p.load(cert)
	if err != nil {
		return nil, err
	}
	authority, err := p.load(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
