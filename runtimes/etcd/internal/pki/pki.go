// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of an etcd cluster: one authority, and one certificate each for the servers, for what
// they say to each other, and for clients. It decides what has to be made anew and stores nothing.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Names of what is kept, with .crt and .key behind them.
const (
	Authority = "ca"
	Server    = "server"
	Peer      = "peer"
	Client    = "client"
)

// PeerName is whom members must be to speak to each other. Clients have certificates of the same authority.
const PeerName = "modelplane etcd peer"

const (
	// etcd reads its authority once, so that a new one takes a restart of everything: it should outlive the cluster.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore the end of a leaf, whoever runs has time to notice the next one.
	renewBefore = leafLife / 3
	backdate    = time.Hour // clocks differ
)

type leaf struct {
	name, subject string
	usages        []x509.ExtKeyUsage
	hosts         bool
	life          time.Duration
}

var leaves = []leaf{
	{Server, "modelplane etcd", []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, true, leafLife},
	{Peer, PeerName, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, true, leafLife},
	// Clients read theirs when they start, and may run for years.
	{Client, "modelmesh", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, false, authorityLife},
}

// Renew tells what has to be stored: everything at first, later what ends soon, cannot be read, or lacks a host. A broken
// authority is not replaced behind the back of those who trust it.
func Renew(stored map[string][]byte, now time.Time, hosts []string) (map[string][]byte, error) {
	changes := map[string][]byte{}
	root, err := rootOf(stored, now, changes)
	if err != nil {
		return nil, err
	}
	for _, l := range leaves {
		names := hosts
		if !l.hosts {
			names = nil
		}
		if good(stored[l.name+".crt"], stored[l.name+".key"], root.cert, now, names) {
			continue
		}
		made, err := issue(root, l, now, names)
		if err != nil {
			return nil, err
		}
		if err := put(changes, l.name, made); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// rootOf reads the authority, or makes the first one.
func rootOf(stored map[string][]byte, now time.Time, changes map[string][]byte) (pair, error) {
	if len(stored[Authority+".crt"]) == 0 && len(stored[Authority+".key"]) == 0 {
		root, err := sign(&x509.Certificate{
			Subject:  pkix.Name{CommonName: "modelplane etcd authority"},
			NotAfter: now.Add(authorityLife), KeyUsage: x509.KeyUsageCertSign, IsCA: true, MaxPathLenZero: true,
		}, now, nil)
		if err != nil {
			return pair{}, err
		}
		return root, put(changes, Authority, root)
	}
	cert, err := parse(stored[Authority+".crt"])
	if err != nil {
		return pair{}, fmt.Errorf("ca.crt of the Secret with etcd's certificates: %w; remove all data of the Secret and restart the pods of etcd and of models, to begin anew", err)
	}
	key, err := parseKey(stored[Authority+".key"])
	if err != nil {
		return pair{}, fmt.Errorf("ca.key of the Secret with etcd's certificates: %w; remove all data of the Secret and restart the pods of etcd and of models, to begin anew", err)
	}
	return pair{cert, key}, nil
}

func issue(root pair, l leaf, now time.Time, hosts []string) (pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: l.subject}, NotAfter: now.Add(l.life), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.usages,
	}
	if template.NotAfter.After(root.cert.NotAfter) {
		template.NotAfter = root.cert.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(template, now, &root)
}

// sign makes a key and a certificate for it, which signs itself without a root.
func sign(template *x509.Certificate, now time.Time, root *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generate a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126)); err != nil {
		return pair{}, fmt.Errorf("generate a serial number: %w", err)
	}
	template.NotBefore, template.BasicConstraintsValid = now.Add(-backdate), true
	signer := pair{template, key}
	if root != nil {
		signer = *root
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	return pair{cert, key}, err
}

func put(changes map[string][]byte, name string, made pair) error {
	der, err := x509.MarshalPKCS8PrivateKey(made.key)
	if err != nil {
		return errors.New("a private key that cannot be stored")
	}
	changes[name+".crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.cert.Raw})
	changes[name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return nil
}

// good tells whether a certificate can be used for a while still.
func good(certPEM, keyPEM []byte, root *x509.Certificate, now time.Time, hosts []string) bool {
	cert, err := parse(certPEM)
	if err != nil {
		return false
	}
	key, err := parseKey(keyPEM)
	if err != nil || !cert.PublicKey.(*ecdsa.PublicKey).Equal(key.Public()) || cert.CheckSignatureFrom(root) != nil {
		return false
	}
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return now.Before(cert.NotAfter.Add(-renewBefore)) || cert.NotAfter.Equal(root.NotAfter)
}

func parse(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if _, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok {
		return nil, errors.New("it is of a kind that was not made here")
	}
	return cert, nil
}

// parseKey says nothing of the content.
func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is not a private key")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("it is of a kind that was not made here")
	}
	return key, nil
}
