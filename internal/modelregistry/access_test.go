// SPDX-License-Identifier: Apache-2.0

package modelregistry_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/modelregistry/access"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestOnlyReadersOfTheServiceMayCall: a server without a proxy asks the API server itself, as a service account that may do
// nothing else.
func TestOnlyReadersOfTheServiceMayCall(t *testing.T) {
	c := testkit.Start(t)
	ns := c.Namespace(t)
	bind := func(name string, role rbacv1.RoleRef) rbacv1.ClusterRoleBinding {
		return rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name}, RoleRef: role,
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: ns}},
		}
	}
	delegates := bind("server", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"})
	role := rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "registry-user-models"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{"models"}, Verbs: []string{"get"}}},
	}
	reads := rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: ns}},
	}
	for _, name := range []string{"server", "reader", "stranger"} {
		if err := c.Client().Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{c.Client().Create(t.Context(), &delegates), c.Client().Create(t.Context(), &role), c.Client().Create(t.Context(), &reads)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = c.Client().Delete(t.Context(), &delegates) })
	reviewer, err := access.New(c.ServiceAccountConfig(t, ns, "server"), ns+"/models")
	if err != nil {
		t.Fatal(err)
	}
	reached := 0
	handler := reviewer.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }),
		func(req *http.Request) bool { return req.URL.Path == "/readyz/health" },
		func(w http.ResponseWriter, code int, message string) { http.Error(w, message, code) },
		func(err error) { t.Errorf("the API server could not be asked: %v", err) })
	for _, call := range []struct {
		path, header string
		want         int
	}{
		{"/", "Bearer " + c.ServiceAccountConfig(t, ns, "reader").BearerToken, http.StatusOK},
		{"/", "Bearer " + c.ServiceAccountConfig(t, ns, "stranger").BearerToken, http.StatusForbidden},
		{"/", "Bearer nonsense", http.StatusUnauthorized},
		{"/", "Basic YTpi", http.StatusUnauthorized},
		{"/", "", http.StatusUnauthorized},
		{"/readyz/health", "", http.StatusOK},
	} {
		for range 2 { // the second time without asking
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, call.path, http.NoBody)
			if call.header != "" {
				req.Header.Set("Authorization", call.header)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if w.Code != call.want {
				t.Errorf("%s with %.10q answers %d, not %d: %s", call.path, call.header, w.Code, call.want, w.Body)
			}
		}
	}
	if reached != 4 {
		t.Errorf("%d requests were let through, not 4", reached)
	}
}
