// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/modelplane/modelplane/internal/modelmesh/client/meshtest"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
)

var withPrefix = clientv3.WithPrefix()

// pair is a certificate that signs itself, in PEM.
func pair(t *testing.T, names ...string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "mesh"}, DNSNames: names, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// TestMutualTLS: the mesh is recognised by the name of its Service, we by the same Secret, and another Secret is used from
// the next question on.
func TestMutualTLS(t *testing.T) {
	b := newBench(t)
	certificate, key := pair(t, service+".home")
	served, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	secure := meshtest.Start(t, b.etcd.Client, "/root/mm/"+service, grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{served}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})))
	q := Question{Mesh: b.mesh(t, "home"), Model: modelOf("iris", "a", model.FromPredictor)}
	q.Mesh.Addresses = []string{secure.Address()}
	other, otherKey := pair(t, "elsewhere")
	for what, c := range map[string]struct {
		tls *TLS
		ok  bool
	}{
		"plain text":             {nil, false},
		"without a certificate":  {NewTLS(certificate, nil, nil), false},
		"another authority":      {NewTLS(other, certificate, key), false},
		"a stranger":             {NewTLS(certificate, other, otherKey), false},
		"the Secret of the mesh": {NewTLS(certificate, certificate, key), true},
		"no PEM":                 {NewTLS([]byte("x"), nil, nil), false},
		"what is no pair":        {NewTLS(certificate, certificate, otherKey), false},
	} {
		q.Mesh.TLS = c.tls
		err := b.call(t, CallStatus, model.FromPredictor, q)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && (strings.Contains(err.Error(), "PRIVATE") || !strings.HasSuffix(err.Error(), ".") && !strings.Contains(err.Error(), "Correct")) {
			t.Errorf("%s: no sentence, or too much: %v", what, err)
		}
	}
}

// TestSecretsAreNotPrinted: questions end up in logs and plans.
func TestSecretsAreNotPrinted(t *testing.T) {
	certificate, key := pair(t, "a")
	e, err := ReadEtcd(map[string][]byte{
		"etcd_connection": []byte(`{"endpoints":"https://a:1,https://b:2","userid":"u","password":"hidden","certificate_file":"ca.crt","client_key_file":"/x/k","client_certificate_file":"c"}`),
		"ca.crt":          certificate, "k": key, "c": certificate,
	}, "home", service)
	if err != nil {
		t.Fatal(err)
	}
	q := Question{Mesh: Mesh{Namespace: "n", Service: service, TLS: NewTLS(certificate, certificate, key), Etcd: e}, Model: modelOf("iris", "a", model.FromPredictor)}
	raw, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(raw), q.String(), fmt.Sprintf("%v", q.Mesh), fmt.Sprintf("%+v", q.Mesh), fmt.Sprintf("%#v", q.Mesh)} {
		if strings.Contains(text, "hidden") || strings.Contains(text, "PRIVATE") {
			t.Errorf("a secret is shown: %s", text)
		}
	}
	if config, err := e.config(); err != nil || config.TLS == nil || len(config.TLS.Certificates) != 1 || config.Password != "hidden" || len(config.Endpoints) != 2 {
		t.Errorf("%+v, %v", config.Endpoints, err)
	}
}

func TestReadEtcd(t *testing.T) {
	for content, words := range map[string]string{
		`{"password":"hidden" oops`: "no JSON object", `{"password":"hidden"}`: "is empty", `{"endpoints":"http://"}`: "no address",
		`{"endpoints":"https://a","client_key":"hidden"}`:                            "give both",
		`{"endpoints":"https://a","client_certificate":"x"}`:                         "give both",
		`{"endpoints":"https://a","certificate":"hidden"}`:                           "no certificate in PEM",
		`{"endpoints":"https://a","client_certificate":"x","client_key":"hidden"}`:   "do not belong together",
		`{"endpoints":"a:1, b:2","root_prefix":"/x/y/","override_authority":"name"}`: "",
	} {
		e, err := ReadEtcd(map[string][]byte{"etcd_connection": []byte(content)}, "home", service)
		if words == "" && strings.Contains(content, "root_prefix") {
			if err != nil || e.table("home", vmodels) != "/x/y/mm/modelmesh-serving/vmodels/" || e.table("a", registry) != "/x/y/mm_ns/a/mm/modelmesh-serving/registry/" {
				t.Errorf("%s: %v", content, err)
			}
			continue
		}
		if err == nil && words != "" || err != nil && (!strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%s: %v, want %q", content, err, words)
		}
	}
	if _, err := ReadEtcd(nil, "home", service); err == nil {
		t.Error("a Secret without the key is taken")
	}
}

// TestPlace: keys that are none of ours are left alone.
func TestPlace(t *testing.T) {
	e := &Etcd{root: "/r", home: "home", service: service}
	for key, want := range map[string]string{
		"/r/mm/" + service + "/vmodels/a":                 "home vmodels a",
		"/r/mm/" + service + "/registry/a/b":              "home registry a/b",
		"/r/mm_ns/ns/mm/" + service + "/registry/a":       "ns registry a",
		"/r/mm_ns/ns/litelinks/x/y":                       "",
		"/r/mm_ns/ns":                                     "",
		"/r/mm/other/vmodels/a":                           "",
		"/r/mm/" + service + "/vmodels/":                  "",
		"/x/mm/" + service + "/vmodels/a":                 "",
		"/r/mm_ns/ns/mm_ns/x/mm/" + service + "/vmodels/": "",
	} {
		namespace, table, id, ok := e.place(key)
		if got := strings.TrimSpace(namespace + " " + table + " " + id); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", key, got, ok)
		}
	}
}
