// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maas "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestMaaSServes starts the program against a real API server, as its Deployment does with variables and a Secret, and
// walks from a Kubernetes token to a key that is refused.
func TestMaaSServes(t *testing.T) {
	cluster := testkit.Start(t)
	define(t, cluster)
	namespace := cluster.Namespace(t)
	kube, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pair, err := certs.NewPair(time.Now(), "maas-api", []string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "maas-db-config"}, StringData: map[string]string{"DB_CONNECTION_URL": "sqlite://" + filepath.Join(dir, "keys.db")}}
	if _, err := kube.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := accountToken(t, kube, namespace, "caller")
	subscribe(t, cluster, namespace, "system:serviceaccounts:"+namespace)

	public, internal, metrics := testkit.FreePort(t), testkit.FreePort(t), testkit.FreePort(t)
	p := run(t, []string{
		"NAMESPACE=" + namespace, "MAAS_SUBSCRIPTION_NAMESPACE=" + namespace, "TENANT_NAME=acme", "SECURE=true", "TLS_CERT=" + filepath.Join(dir, "tls.crt"),
		"TLS_KEY=" + filepath.Join(dir, "tls.key"), fmt.Sprintf("ADDRESS=localhost:%d", public), fmt.Sprintf("INTERNAL_ADDRESS=localhost:%d", internal),
		fmt.Sprintf("METRICS_PORT=%d", metrics), "API_KEY_MAX_EXPIRATION_DAYS=30",
	}, "maas-api", "--kubeconfig="+cluster.Kubeconfig(), "--shutdown-delay=0s")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair.Roots)
	c := &caller{t: t, token: token, Client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	defer c.CloseIdleConnections()
	base, inner := fmt.Sprintf("https://localhost:%d", public), fmt.Sprintf("https://localhost:%d/internal/v1", internal)
	testkit.Eventually(t, patience, "the API to be ready", func() error {
		if code, text, err := c.try("GET", base+"/readyz", ""); err != nil || code != http.StatusOK {
			return errors.Join(err, fmt.Errorf("%d %s", code, text))
		}
		return nil
	})
	var made struct{ ID, Key, Subscription string }
	if err := json.Unmarshal([]byte(c.call("POST", base+"/v1/api-keys", `{"name":"mine"}`, http.StatusCreated)), &made); err != nil || made.Subscription != "gold" {
		t.Fatalf("the key is %+v (%v)", made.ID, err)
	}
	check := fmt.Sprintf(`{"key":%q}`, made.Key)
	if text := c.call("POST", inner+"/api-keys/validate", check, http.StatusOK); !strings.Contains(text, `"valid":true`) {
		t.Error(text)
	}
	if text := c.call("POST", inner+"/subscriptions/select", fmt.Sprintf(`{"username":"x","groups":["system:serviceaccounts:%s"],"requestedModel":"models/llama"}`, namespace), http.StatusOK); !strings.Contains(text, `"name":"gold"`) {
		t.Error(text)
	}
	c.call("GET", base+"/v1/tenants", "", http.StatusNotFound) // there is no Gateway
	c.call("DELETE", base+"/v1/api-keys/"+made.ID, "", http.StatusOK)
	if text := c.call("POST", inner+"/api-keys/validate", check, http.StatusOK); !strings.Contains(text, "key revoked or expired") {
		t.Error(text)
	}
	c.token = "nonsense"
	c.call("POST", inner+"/api-keys/validate", check, http.StatusUnauthorized)
	c.call("POST", base+"/internal/v1/api-keys/validate", check, http.StatusNotFound)
	if text := c.call("GET", fmt.Sprintf("http://localhost:%d/metrics", metrics), "", http.StatusOK); !strings.Contains(text, `maas_api_token_mint_total{result="success",tenant_name="acme"} 1`) {
		t.Error(text)
	}
	p.Signal(t, syscall.SIGTERM)
	if code := p.ExitCode(t, patience); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	if strings.Contains(p.Output(), made.Key) {
		t.Error("the log has the key in it")
	}
}

type caller struct {
	*http.Client
	t     *testing.T
	token string
}

func (c *caller) try(method, url, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	answer, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

func (c *caller) call(method, url, body string, want int) string {
	c.t.Helper()
	code, text, err := c.try(method, url, body)
	if err != nil || code != want {
		c.t.Fatalf("%s %s answers %d, not %d: %s %v", method, url, code, want, text, err)
	}
	return text
}

// accountToken makes an account and a token for it.
func accountToken(t *testing.T, kube kubernetes.Interface, namespace, name string) string {
	t.Helper()
	accounts := kube.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// subscribe makes a subscription for a group, as its controller leaves it.
func subscribe(t *testing.T, cluster *testkit.Cluster, namespace, group string) {
	t.Helper()
	scheme := cluster.Scheme()
	if err := maas.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &maas.MaaSSubscription{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gold"}}
	s.Spec.Owner.Groups = []maas.GroupRef{{Name: group}}
	s.Spec.ModelRefs = []maas.SubscribedModel{{ModelRef: maas.ModelRef{Namespace: "models", Name: "llama"}, TokenRateLimits: []maas.TokenRateLimit{{Limit: 1, Window: "1m"}}}}
	ctx := context.WithoutCancel(t.Context())
	if err := c.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	s.Status.Phase = maas.PhaseActive
	if err := c.Status().Update(ctx, s); err != nil {
		t.Fatal(err)
	}
}
