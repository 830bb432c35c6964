// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inference "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

const (
	home       = "maas-system" // the servers' own namespace
	modelSpace = "llm"         // that of the models
	account    = "payload-processing"
)

var scheme = func() *k8sruntime.Scheme {
	s := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types contradict each other
		}
	}
	return s
}()

// bed is where processes run: a real API server, a real PostgreSQL that is full of keys, and a server of the API for each number
// of subscriptions, as its Deployment starts it.
type bed struct {
	testing.TB
	self, binary string
	cluster      *testkit.Cluster
	kubeconfig   string
	// pair is the certificate of the servers, and token what the processor shows to them.
	pair    certs.Pair
	token   string
	servers []*server
	// database of the keys.
	database *postgres.Server
}

// server is one of the API.
type server struct {
	*testkit.Program
	subscriptions     int
	namespace         string
	internal, metrics string
}

// newBed starts what is not measured, and the servers of the API.
func (o options) newBed(t testing.TB, self, binary string) *bed {
	t.Helper()
	b := &bed{TB: t, self: self, binary: binary, cluster: testkit.StartOwn(t)}
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	b.cluster.InstallCRDs(t, slices.DeleteFunc(slices.Clone(crds), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group != v1alpha1.GroupVersion.Group && crd.Spec.Group != inference.GroupVersion.Group
	})...)
	if b.pair, err = certs.NewPair(time.Now(), "maas-api", []string{"localhost"}, nil); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(b.cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b.accounts(c)
	b.database = postgres.Start(t)
	b.database.Database(t, tenant)
	url := b.database.URI(tenant) + "?sslmode=disable"
	o.say("storing %d keys", o.keys)
	if err := seedKeys(t.Context(), url, o.keys, o.sizes[0]); err != nil {
		t.Fatal(err)
	}
	for _, n := range o.sizes {
		namespace := fmt.Sprintf("subscriptions-%d", n)
		b.create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		o.say("making %d subscriptions", n)
		if err := seedSubscriptions(t.Context(), c, namespace, n); err != nil {
			t.Fatal(err)
		}
		b.servers = append(b.servers, b.api(namespace, n, url))
	}
	return b
}

func (b *bed) create(c client.Client, o client.Object) {
	b.Helper()
	if err := c.Create(b.Context(), o); err != nil {
		b.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// accounts are that of the servers, and that of the processor, by which the servers know it.
func (b *bed) accounts(c client.Client) {
	b.Helper()
	b.create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})
	config := b.cluster.ServiceAccountConfig(b, home, account)
	b.create(c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: account}},
	})
	b.kubeconfig, b.token = b.cluster.KubeconfigFor(b, config), config.BearerToken
}

// file in a folder of its own.
func (b *bed) file(name string, content []byte) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// api starts a server for the subscriptions of a namespace.
func (b *bed) api(namespace string, subscriptions int, database string) *server {
	b.Helper()
	public, internal, metrics := testkit.FreePort(b), testkit.FreePort(b), testkit.FreePort(b)
	cmd := exec.Command(b.binary, "maas-api", "--kubeconfig="+b.kubeconfig, "--namespace="+home, "--subscription-namespace="+namespace, "--tenant-name="+tenant,
		"--secure", "--tls-cert="+b.file("tls.crt", b.pair.Certificate), "--tls-key="+b.file("tls.key", b.pair.Key),
		fmt.Sprintf("--address=localhost:%d", public), fmt.Sprintf("--internal-address=localhost:%d", internal), fmt.Sprintf("--metrics-port=%d", metrics),
		"--internal-accounts=system:serviceaccount:"+home+":"+account, "--log-level=warn", "--shutdown-delay=0s")
	cmd.Env = append(os.Environ(), "DB_CONNECTION_URL="+database)
	s := &server{
		Program: testkit.RunProgram(b, "maas-api-"+strconv.Itoa(subscriptions), cmd), subscriptions: subscriptions, namespace: namespace,
		internal: fmt.Sprintf("https://localhost:%d", internal), metrics: fmt.Sprintf("http://localhost:%d/metrics", metrics),
	}
	client := b.client(1)
	defer client.CloseIdleConnections()
	b.wait(s.Program, func(ctx context.Context) error {
		return get(ctx, client, fmt.Sprintf("https://localhost:%d/readyz", public))
	})
	return s
}

// client of the servers, with a connection for each that asks at the same time.
func (b *bed) client(connections int) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.pair.Roots)
	return newClient(connections, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
}

// wait for a program to be ready.
func (b *bed) wait(p *testkit.Program, check func(context.Context) error) {
	b.Helper()
	testkit.Eventually(b, 2*time.Minute, p.Name+" to be ready", func() error {
		select {
		case <-p.Ended():
			b.Fatalf("%s has ended:\n%s", p.Name, p.Output())
		default:
		}
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		return check(ctx)
	})
}

func get(ctx context.Context, client *http.Client, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", answer.Status, text)
	}
	return err
}

// metric of a program, by its name and labels as they are written.
func metric(ctx context.Context, address, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, errors.New("there is no " + name + " at " + address)
}

func (b *bed) metric(address, name string) float64 {
	b.Helper()
	v, err := metric(b.Context(), address, name)
	if err != nil {
		b.Fatal(err)
	}
	return v
}
