// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/modelplane/modelplane/internal/testkit"
)

// TestCluster: a real API server tells who somebody is and what they may.
func TestCluster(t *testing.T) {
	cluster := testkit.Start(t)
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := cluster.Namespace(t)
	c := NewCluster(Cluster{Client: client, Namespace: namespace}, 10)
	tokens := map[string]string{}
	for _, name := range []string{"plain", "boss"} {
		if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		made, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = made.Status.Token
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "boss"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{"maas.opendatahub.io"}, Resources: []string{"maasauthpolicies"}}}}
	if _, err := client.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "boss"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "boss"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "boss", Namespace: namespace}},
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, token := range tokens {
		who, err := c.Review(t.Context(), token)
		if err != nil || who == nil || who.Username != fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name) {
			t.Fatalf("%s is %+v (%v)", name, who, err)
		}
		if name == "plain" {
			if admin, err := c.Admin(t.Context(), *who); err != nil || admin {
				t.Errorf("plain is an administrator (%v)", err)
			}
			continue
		}
		testkit.Eventually(t, time.Minute, "the boss to be an administrator", func() error { // the API server learns of a binding a moment later
			if admin, err := NewCluster(*c, 10).Admin(t.Context(), *who); err != nil || !admin {
				return errors.Join(err, errors.New("not yet"))
			}
			return nil
		})
		if who, may, err := c.Known(t.Context(), token); err != nil || !may || who == nil {
			t.Errorf("%s may not ask about itself: %v %v", name, who, err)
		}
	}
	if who, err := c.Review(t.Context(), "nonsense"); who != nil || err != nil {
		t.Errorf("nonsense is %+v (%v)", who, err)
	}
	if admin, err := c.Admin(t.Context(), Caller{}); admin || err != nil {
		t.Errorf("nobody is an administrator (%v)", err)
	}
}

// TestMemory: the same is asked once, however many want to know at once; failures are asked for again; it stays small.
func TestMemory(t *testing.T) {
	m := newMemory[int](3)
	now := time.Unix(0, 0)
	m.now = func() time.Time { return now }
	var asked atomic.Int64
	release := make(chan struct{})
	ask := func(context.Context) (int, time.Duration, error) { asked.Add(1); <-release; return 7, time.Second, nil }
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if v, err := m.get(t.Context(), "x", ask); v != 7 || err != nil {
				t.Errorf("it is %d (%v)", v, err)
			}
		})
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := m.get(gone, "x", ask); err == nil {
		t.Error("who went away gets an answer")
	}
	close(release)
	all.Wait()
	before := asked.Load()
	if _, err := m.get(t.Context(), "x", ask); err != nil || asked.Load() != before {
		t.Errorf("what is known is asked for again (%v)", err)
	}
	now = now.Add(time.Second)
	if _, err := m.get(t.Context(), "x", ask); err != nil || asked.Load() != before+1 {
		t.Errorf("it is believed for too long (%v)", err)
	}
	fails := func(context.Context) (int, time.Duration, error) {
		asked.Add(1)
		return 0, time.Hour, errors.New("away")
	}
	for range 2 {
		if _, err := m.get(t.Context(), "y", fails); err == nil {
			t.Error("a failure is an answer")
		}
	}
	if asked.Load() != before+3 {
		t.Error("a failure is remembered")
	}
	for i := range 10 {
		if _, err := m.get(t.Context(), fmt.Sprint(i), ask); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.known) != 3 {
		t.Errorf("%d answers are remembered", len(m.known))
	}
}

func TestGatewayOf(t *testing.T) {
	listener := func(protocol, host string, port int64) any {
		return map[string]any{"name": "l", "protocol": protocol, "hostname": host, "port": port}
	}
	gateway := func(address string, listeners ...any) *unstructured.Unstructured {
		o := map[string]any{"metadata": map[string]any{"name": "g", "namespace": "n"}, "spec": map[string]any{"listeners": listeners}}
		if address != "" {
			o["status"] = map[string]any{"addresses": []any{map[string]any{"value": address}}}
		}
		return &unstructured.Unstructured{Object: o}
	}
	for want, g := range map[Gateway]*unstructured.Unstructured{
		{"g", "n", "", "", 0}:                                  gateway(""),
		{"g", "n", "HTTPS", "https://models.example", 443}:     gateway("10.0.0.1", listener("HTTP", "", 80), listener("HTTPS", "models.example", 443)),
		{"g", "n", "HTTPS", "https://apps.example:8443", 8443}: gateway("", listener("HTTPS", "*.apps.example", 8443), listener("HTTP", "", 80)),
		{"g", "n", "HTTP", "http://10.0.0.1", 80}:              gateway("10.0.0.1", listener("HTTP", "", 80)),
	} {
		if diff := cmp.Diff(want, gatewayOf(g)); diff != "" {
			t.Error(diff)
		}
	}
}
