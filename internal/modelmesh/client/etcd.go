// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Etcd is where the records of all meshes are. It has no way to be printed.
type Etcd struct {
	endpoints, user, password   string
	root                        string
	authority, certificate, key string
	name                        string
	// home is the namespace whose records are directly below the root.
	home, service string
}

// String keeps passwords out of logs.
func (e *Etcd) String() string { return "etcd" }

// GoString too.
func (e *Etcd) GoString() string { return "etcd" }

// MarshalJSON too.
func (e *Etcd) MarshalJSON() ([]byte, error) { return []byte(`"etcd"`), nil }

// connectionKey of the Secret has the connection as JSON.
const connectionKey = "etcd_connection"

// secretForm is that JSON.
type secretForm struct {
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

// ReadEtcd understands the Secret with the connection to etcd. Files that it names are other keys of the Secret, beside
// which they are mounted. Home is the manager's namespace, and service what meshes are called.
func ReadEtcd(secret map[string][]byte, home, service string) (*Etcd, error) {
	raw, ok := secret[connectionKey]
	if !ok {
		return nil, errors.New("it has no key " + connectionKey)
	}
	f := secretForm{}
	if err := json.Unmarshal(raw, &f); err != nil { // the decoder's words could show a password
		return nil, errors.New(connectionKey + " is no JSON object of strings")
	}
	e := &Etcd{
		endpoints: f.Endpoints, user: f.User, password: f.Password, root: rooted(f.RootPrefix), name: f.OverrideAuthority,
		authority:   either(f.Certificate, secret[path.Base(f.CertificateFile)]),
		certificate: either(f.ClientCertificate, secret[path.Base(f.ClientCertificateFile)]),
		key:         either(f.ClientKey, secret[path.Base(f.ClientKeyFile)]),
		home:        home, service: service,
	}
	_, err := e.config()
	return e, err
}

func rooted(prefix string) string {
	if prefix = strings.Trim(prefix, "/"); prefix == "" {
		return ""
	}
	return "/" + prefix
}

func either(text string, file []byte) string {
	if text != "" {
		return text
	}
	return string(file)
}

// config is all that is needed to connect.
func (e *Etcd) config() (clientv3.Config, error) {
	const patience, alive = 5 * time.Second, 30 * time.Second
	c := clientv3.Config{
		Username: e.user, Password: e.password, DialTimeout: patience, DialKeepAliveTime: alive, DialKeepAliveTimeout: patience,
		Logger: zap.NewNop(), MaxCallRecvMsgSize: 64 << 20,
	}
	secure := e.authority != "" || e.certificate != ""
	for endpoint := range strings.SplitSeq(e.endpoints, ",") {
		endpoint = strings.TrimSpace(endpoint)
		if u, err := url.Parse(endpoint); strings.Contains(endpoint, "://") && (err != nil || u.Host == "") {
			return c, errors.New("endpoints of " + connectionKey + " has one that is no address; write for example http://etcd:2379")
		}
		if endpoint != "" {
			secure = secure || strings.HasPrefix(endpoint, "https://")
			c.Endpoints = append(c.Endpoints, endpoint)
		}
	}
	if len(c.Endpoints) == 0 {
		return c, errors.New("endpoints of " + connectionKey + " is empty; write for example http://etcd:2379")
	}
	if e.name != "" {
		c.DialOptions = append(c.DialOptions, grpc.WithAuthority(e.name))
	}
	if !secure {
		return c, nil
	}
	var err error
	c.TLS, err = e.tls()
	return c, err
}

func (e *Etcd) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.name}
	if e.authority != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(e.authority)) {
			return nil, errors.New("certificate of " + connectionKey + " has no certificate in PEM")
		}
	}
	if (e.certificate == "") != (e.key == "") {
		return nil, errors.New(connectionKey + " has only one of client_certificate and client_key; give both")
	}
	if e.certificate != "" {
		pair, err := tls.X509KeyPair([]byte(e.certificate), []byte(e.key))
		if err != nil { // says too much or too little
			return nil, errors.New("client_certificate and client_key of " + connectionKey + " cannot be read or do not belong together")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (e *Etcd) connect() (*clientv3.Client, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	kv, err := clientv3.New(config)
	if err != nil { // may name a user
		return nil, errors.New("etcd cannot be connected to. Check the Secret with its connection, and that it runs")
	}
	return kv, nil
}

// Where records are: <root>[/mm_ns/<namespace>]/mm/<service>/<table>/<id>.
const (
	others   = "/mm_ns/"
	kvPrefix = "mm"
	vmodels  = "vmodels"
	registry = "registry"
)

// table is the prefix of a table's keys.
func (e *Etcd) table(namespace, table string) string {
	root := e.root
	if namespace != e.home {
		root += others + namespace
	}
	return fmt.Sprintf("%s/%s/%s/%s/", root, kvPrefix, e.service, table)
}

// prefixes are those below which all records of all namespaces are.
func (e *Etcd) prefixes() []string {
	return []string{e.root + "/" + kvPrefix + "/" + e.service + "/", e.root + others}
}

// place tells what a key is of.
func (e *Etcd) place(key string) (namespace, table, id string, ok bool) {
	rest, ok := strings.CutPrefix(key, e.root+"/")
	if !ok {
		return "", "", "", false
	}
	namespace = e.home
	if in, elsewhere := strings.CutPrefix("/"+rest, others); elsewhere {
		namespace, rest, ok = strings.Cut(in, "/")
	}
	parts := strings.SplitN(rest, "/", 4)
	if !ok || len(parts) != 4 || parts[0] != kvPrefix || parts[1] != e.service {
		return "", "", "", false
	}
	return namespace, parts[2], parts[3], parts[3] != ""
}
