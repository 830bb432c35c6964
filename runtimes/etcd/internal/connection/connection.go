// SPDX-License-Identifier: Apache-2.0

// Package connection reads and writes the JSON by which ModelMesh and its controller are told of an etcd: the key
// etcd_connection of a Secret.
package connection

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Key is where in the Secret the JSON is.
const Key = "etcd_connection"

// Config is the JSON. What ends in _file names a file beside it.
type Config struct {
	Endpoints             string `json:"endpoints"`
	UserID                string `json:"userid,omitempty"`
	Password              string `json:"password,omitempty"`
	RootPrefix            string `json:"root_prefix,omitempty"`
	Certificate           string `json:"certificate,omitempty"`
	CertificateFile       string `json:"certificate_file,omitempty"`
	ClientKey             string `json:"client_key,omitempty"`
	ClientKeyFile         string `json:"client_key_file,omitempty"`
	ClientCertificate     string `json:"client_certificate,omitempty"`
	ClientCertificateFile string `json:"client_certificate_file,omitempty"`
	OverrideAuthority     string `json:"override_authority,omitempty"`
}

// Encode is the same for the same content, so that nothing is written twice.
func (c Config) Encode() ([]byte, error) { return json.MarshalIndent(c, "", "  ") }

// Open reads a file and connects. Nothing of what it holds is in an error.
func Open(path string) (*clientv3.Client, Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, Config{}, err
	}
	var c Config
	if json.Unmarshal(raw, &c) != nil {
		return nil, c, fmt.Errorf("%s is not the JSON of an etcd connection", path)
	}
	settings, err := c.client(filepath.Dir(path))
	if err != nil {
		return nil, c, fmt.Errorf("%s: %w", path, err)
	}
	client, err := clientv3.New(settings)
	return client, c, err
}

func (c Config) client(dir string) (clientv3.Config, error) {
	out := clientv3.Config{Username: c.UserID, Password: c.Password, DialTimeout: 10 * time.Second, Logger: zap.NewNop(), MaxCallRecvMsgSize: 64 << 20}
	secure := false
	for endpoint := range strings.SplitSeq(c.Endpoints, ",") {
		endpoint = strings.TrimSpace(endpoint)
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" {
			return out, errors.New("endpoints must be addresses such as https://etcd.example:2379, with commas between them")
		}
		secure = secure || u.Scheme == "https"
		out.Endpoints = append(out.Endpoints, endpoint)
	}
	if !secure {
		return out, nil
	}
	out.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.OverrideAuthority}
	roots, err := content(dir, c.Certificate, c.CertificateFile)
	if err != nil {
		return out, err
	}
	if len(roots) > 0 {
		out.TLS.RootCAs = x509.NewCertPool()
		if !out.TLS.RootCAs.AppendCertsFromPEM(roots) {
			return out, errors.New("certificate has no certificate in PEM")
		}
	}
	return out, c.identify(dir, out.TLS)
}

// identify shows a certificate of one's own, where there is one.
func (c Config) identify(dir string, into *tls.Config) error {
	cert, err := content(dir, c.ClientCertificate, c.ClientCertificateFile)
	if err != nil {
		return err
	}
	key, err := content(dir, c.ClientKey, c.ClientKeyFile)
	if err != nil || len(cert) == 0 && len(key) == 0 {
		return err
	}
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return errors.New("client_certificate and client_key do not belong together, or are not PEM")
	}
	into.Certificates = []tls.Certificate{own}
	return nil
}

func content(dir, text, file string) ([]byte, error) {
	if text != "" || file == "" {
		return []byte(text), nil
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	return os.ReadFile(file)
}
