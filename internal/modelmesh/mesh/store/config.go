// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// mostConfig bounds the file that says where etcd is.
const mostConfig = 1 << 20

// Config says where etcd is and as whom it is asked.
type Config struct {
	Endpoints      []string
	User, Password string
	// RootPrefix comes before every key.
	RootPrefix string
	// TLS is nil when etcd is asked without.
	TLS *tls.Config
	// Authority replaces the host name of the endpoints for whoever sits in between.
	Authority string
}

// String names no secret, because configurations end up in logs.
func (c Config) String() string { return strings.Join(c.Endpoints, ",") + c.RootPrefix }

// file is the JSON of a Secret's key etcd_connection.
type file struct {
	Endpoints             string `json:"endpoints"`
	User                  string `json:"userid"`
	Password              string `json:"password"`
	RootPrefix            string `json:"root_prefix"`
	Certificate           string `json:"certificate"`
	CertificateFile       string `json:"certificate_file"`
	ClientKey             string `json:"client_key"`
	ClientKeyFile         string `json:"client_key_file"`
	ClientCertificate     string `json:"client_certificate"`
	ClientCertificateFile string `json:"client_certificate_file"`
	OverrideAuthority     string `json:"override_authority"`
}

// Parse understands the variable KV_STORE: etcd: and then a JSON file, or endpoints separated by commas.
func Parse(kvStore string) (Config, error) {
	kind, where, ok := strings.Cut(strings.TrimSpace(kvStore), ":")
	if !ok || kind != "etcd" || where == "" {
		return Config{}, errors.New("KV_STORE must be etcd: and then a file or an endpoint, for example etcd:/opt/kserve/mmesh/etcd/etcd_connection; no other store is supported")
	}
	if info, err := os.Stat(where); err == nil && !info.IsDir() {
		return read(where)
	}
	if !strings.Contains(where, ":") {
		return Config{}, fmt.Errorf("KV_STORE names the file %s, which does not exist; mount the Secret with etcd's connection there", where)
	}
	return file{Endpoints: where}.config("")
}

func read(path string) (Config, error) {
	opened, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("open etcd's connection: %w", err)
	}
	defer func() { _ = opened.Close() }()
	raw, err := io.ReadAll(io.LimitReader(opened, mostConfig))
	if err != nil {
		return Config{}, fmt.Errorf("read etcd's connection: %w", err)
	}
	return ParseFile(raw, filepath.Dir(path))
}

// ParseFile understands the JSON with etcd's connection. Relative names of files count from dir.
func ParseFile(raw []byte, dir string) (Config, error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil { // the error of the decoder could show a password
		return Config{}, errors.New("etcd's connection is no JSON object of strings; see the Secret model-serving-etcd")
	}
	return f.config(dir)
}

func (f file) config(dir string) (Config, error) {
	c := Config{User: f.User, Password: f.Password, RootPrefix: strings.TrimSuffix(f.RootPrefix, "/"), Authority: f.OverrideAuthority}
	if c.RootPrefix != "" && !strings.HasPrefix(c.RootPrefix, "/") {
		c.RootPrefix = "/" + c.RootPrefix
	}
	secure := false
	for endpoint := range strings.SplitSeq(f.Endpoints, ",") {
		if endpoint = strings.TrimSpace(endpoint); endpoint == "" {
			continue
		}
		if strings.Contains(endpoint, "://") {
			parsed, err := url.Parse(endpoint)
			if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
				return Config{}, fmt.Errorf("%q is no endpoint of etcd; write for example http://etcd:2379", endpoint)
			}
			secure = secure || parsed.Scheme == "https"
		}
		c.Endpoints = append(c.Endpoints, endpoint)
	}
	if len(c.Endpoints) == 0 {
		return Config{}, errors.New("etcd's connection has no endpoints; write for example {\"endpoints\":\"http://etcd:2379\"}")
	}
	authority, err := content(f.Certificate, f.CertificateFile, dir, "certificate")
	if err != nil {
		return Config{}, err
	}
	key, err := content(f.ClientKey, f.ClientKeyFile, dir, "client_key")
	if err != nil {
		return Config{}, err
	}
	certificate, err := content(f.ClientCertificate, f.ClientCertificateFile, dir, "client_certificate")
	if err != nil {
		return Config{}, err
	}
	if !secure && authority == nil && key == nil && certificate == nil {
		return c, nil
	}
	c.TLS, err = clientTLS(authority, certificate, key, f.OverrideAuthority)
	return c, err
}

// content takes a value or the file that has it.
func content(value, name, dir, what string) ([]byte, error) {
	switch {
	case value != "" && name != "":
		return nil, fmt.Errorf("etcd's connection has both %s and %s_file; keep one", what, what)
	case value != "":
		return []byte(value), nil
	case name == "":
		return nil, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read %s_file of etcd's connection: %w", what, err)
	}
	return raw, nil
}

func clientTLS(authority, certificate, key []byte, serverName string) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if authority != nil {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("certificate of etcd's connection has no certificate in PEM")
		}
	}
	if (certificate == nil) != (key == nil) {
		return nil, errors.New("etcd's connection has only one of client_certificate and client_key; give both")
	}
	if certificate != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil { // the error says nothing that helps and could say too much
			return nil, errors.New("client_certificate and client_key of etcd's connection cannot be read or do not belong together")
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
