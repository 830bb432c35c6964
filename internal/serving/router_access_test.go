// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/serving/router"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestRouterAsksWhoMayCall: a router that checks tokens asks a real API server, as an account that may do nothing else, and lets
// those in who may get the graph of its name.
func TestRouterAsksWhoMayCall(t *testing.T) {
	c := testkit.Start(t)
	ns := c.Namespace(t)
	server := c.ServiceAccountConfig(t, ns, "router")
	account := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "ServiceAccount", Name: name, Namespace: ns}
	}
	delegates := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-router"}, Subjects: []rbacv1.Subject{account("router")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "callers"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"serving.kserve.io"}, Resources: []string{"inferencegraphs"}, ResourceNames: []string{"graph"}, Verbs: []string{"get"}}},
	}
	reads := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "callers"}, Subjects: []rbacv1.Subject{account("caller")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	for _, err := range []error{c.Client().Create(t.Context(), delegates), c.Client().Create(t.Context(), role), c.Client().Create(t.Context(), reads)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = c.Client().Delete(t.Context(), delegates) })
	dir := t.TempDir()
	for name, content := range map[string][]byte{"token": []byte(server.BearerToken), "ca.crt": server.CAData, "namespace": []byte(ns)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	access, err := router.NewAccess("https://"+strings.TrimPrefix(server.Host, "https://"), dir, "graph")
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) }))
	defer service.Close()
	graph, err := router.Parse(`{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"` + service.URL + `"}]}}}`)
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(graph, "", router.Limits{Body: 1 << 20, Pending: 1 << 24, Requests: 10}, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	front := httptest.NewServer(r.Guard(access))
	defer front.Close()
	for credentials, want := range map[string]string{
		"":                "401 No credentials were provided",
		"Basic YTpi":      "401 Only Bearer tokens are supported",
		"Bearer nonsense": "401 The provided token is unauthenticated",
		"Bearer " + c.ServiceAccountConfig(t, ns, "stranger").BearerToken: "401 Access to the InferenceGraph is not allowed",
		"Bearer " + c.ServiceAccountConfig(t, ns, "caller").BearerToken:   "200 ",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, strings.NewReader("[1]"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", credentials)
		response, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Status[:4] + response.Header.Get("X-Forbidden-Reason"); got != want {
			t.Errorf("with %.10q: %s, not %s", credentials, got, want)
		}
	}
}
