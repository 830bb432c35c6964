// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/pass"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// authorino is the real one, which does what the policy of a gateway says.
type authorino struct {
	*server
	cluster   *testkit.Cluster
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string // Kuadrant's
	policy    kuadrant.Auth
	keyFile   string
	checks    authv3.AuthorizationClient
}

var authConfigs = schema.GroupVersionResource{Group: "authorino.kuadrant.io", Version: "v1beta3", Resource: "authconfigs"}

// module is where Authorino is among the modules; it is built apart, so that what it needs stays out of ours.
func module(t testing.TB, args ...string) string {
	t.Helper()
	dir, err := checkout.Dir("internal", "maas", "kuadrant", "authorino")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", append(slices.Insert(args, 1, "-C", dir), "github.com/kuadrant/authorino")...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command.Args, " "), err, &complaints)
	}
	return strings.TrimSpace(string(out))
}

func startAuthorino(t *testing.T) *authorino {
	t.Helper()
	binary := module(t, "tool", "-n")
	a := &authorino{server: start(t, "sqlite://"+filepath.Join(t.TempDir(), "db")), cluster: testkit.Start(t)}
	config := a.cluster.Config()
	var err error
	if a.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if a.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module(t, "list", "-m", "-f", "{{.Dir}}"), "install", "crd", "authorino.kuadrant.io_authconfigs.yaml"))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err = errors.Join(err, yaml.Unmarshal(text, crd)); err != nil {
		t.Fatal(err)
	}
	a.cluster.InstallCRDs(t, crd)
	a.namespace = a.cluster.Namespace(t)
	trust := a.internalRoutes(t)
	a.run(t, binary, config, trust)
	return a
}

// internalRoutes are served as maas-api does; the file has what must be trusted of them.
func (a *authorino) internalRoutes(t testing.TB) (trust string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair, err := certs.NewPair(time.Now(), "maas-api", []string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.keyFile = file("key", []byte(pass.NewKey()))
	p := &Program{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), TenantName: tenantName, InternalKeyFile: a.keyFile,
		TLSCert: file("tls.crt", pair.Certificate), TLSKey: file("tls.key", pair.Key), TLSMinVersion: "1.2",
	}
	get, err := p.certificate()
	if err != nil {
		t.Fatal(err)
	}
	inner := httptest.NewUnstartedServer(a.api.Internal(InternalTrust{Pass: p.goodPass}.May))
	if inner.TLS, err = p.tls(get, ""); err != nil {
		t.Fatal(err)
	}
	inner.StartTLS()
	t.Cleanup(inner.Close)
	at, err := url.Parse(inner.URL)
	if err != nil {
		t.Fatal(err)
	}
	a.policy = kuadrant.Auth{Namespace: a.namespace, Gateway: "door", Name: "maas-gateway-auth", API: "https://localhost:" + at.Port(), KeyHeader: true, MetadataTTL: 60, AuthorizationTTL: 60}
	return file("ca.crt", pair.Roots)
}

// run starts Authorino, which trusts what its machine trusts.
func (a *authorino) run(t testing.TB, binary string, config *rest.Config, trust string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
			Token: config.BearerToken}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	command := exec.Command("unshare", append(a.asInPod(t, config), binary, "server", "--watch-namespace="+a.namespace, "--ext-auth-grpc-port="+port, "--ext-auth-http-port=0", "--oidc-http-port=0",
		"--metrics-addr=0", "--health-probe-addr=0", "--log-level=debug", "--timeout=10000")...)
	command.Env = []string{"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(), "KUBECONFIG=" + kubeconfig, "SSL_CERT_FILE=" + trust, "SSL_CERT_DIR=" + t.TempDir(), "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("Authorino says:\n%s", &log)
		}
	})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	a.checks = authv3.NewAuthorizationClient(conn)
}

// asInPod are the arguments with which unshare starts a program that finds an account where a pod has it: who reviews tokens wants that.
func (a *authorino) asInPod(t testing.TB, config *rest.Config) []string {
	t.Helper()
	token, user, _ := a.account(t, "authorino")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := a.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.client.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600), os.WriteFile(filepath.Join(dir, "ca.crt"), config.CAData, 0o600)); err != nil {
		t.Fatal(err)
	}
	const script = `mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && ln -s "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"`
	return []string{"--user", "--map-root-user", "--mount", "sh", "-c", script, dir}
}

// shows puts a pass of the key that maas-api has where Authorino looks for it, and gives the name of its Secret.
func (a *authorino) shows(t testing.TB, secret string) {
	t.Helper()
	text, err := os.ReadFile(a.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	known, err := pass.ParseKeys(string(text))
	if err != nil {
		t.Fatal(err)
	}
	period, _ := pass.Now(time.Now())
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}, StringData: map[string]string{kuadrant.PassKey: known[0].Of(tenantName, period)}}
	if _, err := a.client.CoreV1().Secrets(a.namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.policy.Pass = secret
}

// applies makes of the policy what Kuadrant makes of it for a route: the same rules, by the names that Authorino has for them.
// Predicates of the whole policy are evaluated by the gateway, before Authorino is asked.
func (a *authorino) applies(t testing.TB) {
	t.Helper()
	rules, _, err := unstructured.NestedMap(a.policy.Policy().Object, "spec", "defaults", "rules")
	if err != nil {
		t.Fatal(err)
	}
	success := rules["response"].(map[string]any)["success"].(map[string]any)
	success["dynamicMetadata"] = success["filters"]
	delete(success, "filters")
	rules["hosts"] = []any{"a-route"}
	config := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a-route"}, "spec": rules}}
	config.SetAPIVersion(authConfigs.GroupVersion().String())
	config.SetKind("AuthConfig")
	client := a.dynamic.Resource(authConfigs).Namespace(a.namespace)
	made, err := client.Apply(t.Context(), "a-route", config, metav1.ApplyOptions{FieldManager: "test", Force: true}, "")
	if err != nil {
		t.Fatalf("Authorino's definition does not take the rules: %v", err)
	}
	if stored, err := json.Marshal(made.Object); err != nil || strings.Contains(string(stored), "v1.") {
		t.Errorf("a pass is in the AuthConfig (%v)", err)
	}
}

// asks is a request for a model, as the gateway shows it to Authorino.
type asks struct {
	path    string
	headers map[string]string
}

func (a *authorino) check(ctx context.Context, asked asks) (*authv3.CheckResponse, error) {
	headers := map[string]string{}
	for name, value := range asked.headers {
		headers[strings.ToLower(name)] = value
	}
	return a.checks.Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{Id: "1", Method: "POST", Scheme: "https", Host: "a-route", Path: asked.path, Headers: headers},
	}}})
}

// answer is the status, and what is told to those behind the gateway, or to the client.
func (a *authorino) answer(t testing.TB, asked asks) (int32, map[string]string, *authv3.CheckResponse) {
	t.Helper()
	got, err := a.check(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	note := func(list []*corev3.HeaderValueOption) {
		for _, h := range list {
			// Authorino adds a reason of its own after that of the policy.
			if name := strings.ToLower(h.GetHeader().GetKey()); told[name] == "" {
				told[name] = h.GetHeader().GetValue()
			}
		}
	}
	if denied := got.GetDeniedResponse(); denied != nil {
		note(denied.GetHeaders())
		told["body"] = denied.GetBody()
		return int32(denied.GetStatus().GetCode()), told, got
	}
	note(got.GetOkResponse().GetHeaders())
	return 200, told, got
}

func (a *authorino) wants(t testing.TB, what string, code int32, asked asks, told ...string) {
	t.Helper()
	got, have, raw := a.answer(t, asked)
	if got != code {
		t.Errorf("%s: %d, not %d: %v", what, got, code, raw)
		return
	}
	for _, want := range told {
		name, value, _ := strings.Cut(want, ": ")
		if have[name] != value {
			t.Errorf("%s: %s is %q, not %q", what, name, have[name], value)
		}
	}
}

// becomes waits until the AuthConfig that was applied last is in force.
func (a *authorino) becomes(t testing.TB, code int32, asked asks) {
	t.Helper()
	testkit.Eventually(t, time.Minute, fmt.Sprintf("Authorino to answer %d", code), func() error {
		got, err := a.check(t.Context(), asked)
		if err != nil {
			return err
		}
		have := int32(200)
		if denied := got.GetDeniedResponse(); denied != nil {
			have = int32(denied.GetStatus().GetCode())
		}
		if have != code {
			return fmt.Errorf("it answers %v", got)
		}
		return nil
	})
}

// account has a token of the cluster.
func (a *authorino) account(t testing.TB, name string, audiences ...string) (token, user string, audience []string) {
	t.Helper()
	accounts := a.client.CoreV1().ServiceAccounts(a.namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Audience []string `json:"aud"`
	}
	middle, err := base64.RawURLEncoding.DecodeString(strings.Split(made.Status.Token, ".")[1])
	if err = errors.Join(err, json.Unmarshal(middle, &claims)); err != nil || len(claims.Audience) == 0 {
		t.Fatalf("a token for nobody: %v", err)
	}
	return made.Status.Token, "system:serviceaccount:" + a.namespace + ":" + name, claims.Audience
}

// ofAnotherTenant is a key that the same database has for another tenant.
func (a *authorino) ofAnotherTenant(t testing.TB) string {
	t.Helper()
	digester, err := keys.NewDigester([]byte("a pepper for the tests"))
	if err != nil {
		t.Fatal(err)
	}
	o := a.api.Options
	o.Tenant, o.Cache = "other", keys.NewCache(a.store, digester, keys.CacheOptions{Tenant: "other"})
	others := httptest.NewServer(New(o).Handler())
	t.Cleanup(others.Close)
	r := a.call("POST", others.URL+"/v1/api-keys", `{"name":"theirs"}`, "Authorization: Bearer "+ann).is(t, 201)
	return r.get("key")
}

// TestAuthorino: the real Authorino does with the rules of a gateway's policy what they are meant to do: it asks maas-api with its
// pass, lets through who has a key or a token and a subscription, and nobody else.
func TestAuthorino(t *testing.T) {
	if testing.Short() {
		t.Skip("Authorino is built")
	}
	a := startAuthorino(t)
	token, user, audience := a.account(t, "caller")
	elsewhere, _, _ := a.account(t, "elsewhere", "https://somewhere.else")
	a.policy.Audience = audience[0]
	id, key := a.make(ann, `{"name":"laptop"}`)
	const path = "/models/llama/v1/chat/completions"
	with := func(path string, headers ...string) asks {
		out := asks{path: path, headers: map[string]string{}}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			out.headers[name] = value
		}
		return out
	}
	good := with(path, "Authorization: Bearer "+key)
	a.shows(t, "first")
	a.applies(t)
	a.becomes(t, 200, good)

	a.wants(t, "a good key", 200, good, "x-maas-username: ann", "x-maas-group: [\"team\",\"system:authenticated\"]", "x-maas-subscription: gold")
	_, _, raw := a.answer(t, good)
	identity := raw.GetDynamicMetadata().GetFields()["identity"].GetStructValue().GetFields()
	for name, want := range map[string]string{"userid": "ann", "keyId": id, "keyName": "laptop", "selected_subscription": "gold", "selected_subscription_key": "maas/gold@models/llama", "subscription_error": ""} {
		if got := identity[name].GetStringValue(); got != want {
			t.Errorf("the identity's %s is %q, not %q", name, got, want)
		}
	}
	a.wants(t, "a good key in the other header", 200, with("/v1/messages", "X-Api-Key: "+key, "X-Gateway-Model-Name: publishers/models/models/llama"), "x-maas-username: ann")
	a.wants(t, "a good key for the tenant's API", 200, with("/v1/models", "Authorization: Bearer "+key), "x-maas-username: ann", "x-maas-subscription: gold")
	a.wants(t, "a good key for a model that no policy opens", 403, with("/models/falcon/v1/chat/completions", "Authorization: Bearer "+key))
	a.wants(t, "a good key for a model that there is not", 403, with("/models/none/v1/chat/completions", "Authorization: Bearer "+key), "x-ext-auth-reason: model_not_in_subscription", "content-type: text/plain")
	a.wants(t, "no credentials", 401, with(path))
	a.wants(t, "a wrong key", 403, with(path, "Authorization: Bearer "+key+"x"))
	a.wants(t, "a key of another tenant", 403, with(path, "Authorization: Bearer "+a.ofAnotherTenant(t)))
	a.wants(t, "nonsense for a token", 401, with(path, "Authorization: Bearer nonsense"))
	a.wants(t, "a forged name", 403, with(path, "Authorization: Bearer "+key, "X-MaaS-Username: root"))
	a.wants(t, "a forged group", 403, with(path, "Authorization: Bearer "+key, "X-MaaS-Group: [\"admins\"]"))
	a.wants(t, "a forged subscription beside a key", 200, with(path, "Authorization: Bearer "+key, "X-MaaS-Subscription: free"), "x-maas-subscription: gold")
	a.wants(t, "a token of the cluster", 200, with(path, "Authorization: Bearer "+token, "X-MaaS-Subscription: free"), "x-maas-username: "+user, "x-maas-subscription: free")
	a.wants(t, "a token of the cluster for another subscription", 403, with(path, "Authorization: Bearer "+token, "X-MaaS-Subscription: gold"), "x-ext-auth-reason: access_denied")
	a.wants(t, "a token for somebody else", 401, with(path, "Authorization: Bearer "+elsewhere))

	a.as(ann, "DELETE", "/v1/api-keys/"+id, "").is(t, 200)
	a.wants(t, "a revoked key", 403, good)
	a.rotates(t, path)
}

// rotates replaces the key of passes: with the former one beside it nothing changes, without it nobody is let through until the
// policy names a pass of the new one.
func (a *authorino) rotates(t *testing.T, path string) {
	t.Helper()
	_, key := a.make(ann, `{"name":"another"}`)
	good := asks{path: path, headers: map[string]string{"Authorization": "Bearer " + key}}
	former, err := os.ReadFile(a.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	next := pass.NewKey()
	write := func(text string) {
		if err := os.WriteFile(a.keyFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(next + "\n" + string(former))
	a.wants(t, "the former pass, for a while", 200, good)
	write(next)
	a.wants(t, "a pass that is no longer good", 403, good)
	a.shows(t, "second")
	a.applies(t)
	a.becomes(t, 200, good)
}
