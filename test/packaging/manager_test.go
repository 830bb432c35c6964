// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// TestManagerAsItsAccount installs the chart and runs the real binary with the arguments of its Deployment and a token
// of its account. It must come up, do its work and leave without ever being told that it may not.
func TestManagerAsItsAccount(t *testing.T) {
	cluster, program := testkit.Start(t), build(t)
	for _, c := range []struct {
		source string
		enable []any // nil: all domains
		// outside tells the manager that it is not in the cluster, so that it points the API server at itself.
		outside bool
		args    func(t *testing.T) []string
		// asked has the API server ask the manager.
		asked func(t *testing.T, cluster *testkit.Cluster, namespace string)
	}{
		{source: "self", outside: true, asked: func(t *testing.T, cluster *testkit.Cluster, namespace string) {
			t.Helper()
			checkAdmission(t, cluster, namespace)
			checkConversion(t, cluster, namespace)
		}},
		{source: "secret", enable: []any{"modelregistry"}, outside: true, args: certificates, asked: checkConversion},
		{source: "secret", enable: []any{"modelmesh"}, outside: true, args: certificates, asked: checkRuntimes},
		// cert-manager would point the API server at the manager, so that there is nothing to ask it.
		{source: "cert-manager", enable: []any{"modelregistry"}, args: certificates},
	} {
		t.Run(c.source, func(t *testing.T) {
			if c.source == "cert-manager" {
				cluster.Install(t, testkit.CertManager)
			}
			namespace := restricted(t, cluster)
			objects := install(t, cluster, namespace, c.source, c.enable)
			w := listen(t, cluster.ServiceAccountConfig(t, namespace, chart.DefaultRelease))
			m := newManager(t, program, namespace, container(t, objects))
			m.add("--kubeconfig=" + cluster.KubeconfigFor(t, w.config))
			if c.args != nil {
				m.add(c.args(t)...)
			}
			if c.outside {
				m.add("--webhook-url=https://" + m.webhook)
			}
			m.start(t)
			m.waitReady(t)
			if c.asked != nil {
				c.asked(t, cluster, namespace)
			}
			reader := checkMetrics(t, cluster, namespace, m.metrics)
			m.checkProfiles(t, reader)
			m.stop(t)
			refused, asked := w.seen()
			for _, r := range refused {
				t.Errorf("refused with %s", r)
			}
			for _, u := range unused(managerRules(t, objects), asked) {
				t.Logf("granted but not used in this test: %s", u)
			}
		})
	}
}

func install(t *testing.T, cluster *testkit.Cluster, namespace, source string, enable []any) []chart.Object {
	t.Helper()
	values := map[string]any{
		"webhook": map[string]any{"certificates": map[string]any{"source": source, "secretName": "certificates"}},
	}
	if enable != nil {
		values["enable"] = enable
	}
	objects := charttest.Render(t, chart.Release{Namespace: namespace, Values: values})
	removeAfter(t, cluster, objects)
	_, stderr, err := cluster.Kubectl(t, manifest(t, objects), "apply", "--server-side", "--force-conflicts", "-f", "-")
	if err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, stderr)
	}
	return objects
}

// certificates stands in for the mounted Secret.
func certificates(t *testing.T) []string {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"tls.crt": chain, "tls.key": key, "ca.crt": chain} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--webhook-cert-dir=" + dir}
}

// build makes the manager's binary. Looking at the sources tells go test that its result depends on them.
func build(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"../../cmd", "../../internal", "../../api"} {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			_, err := os.Stat(path)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return checkout.Program(t, "modelplane")
}

// running is the manager's process.
type running struct {
	cmd                      *exec.Cmd
	done                     chan error
	health, metrics, webhook string
}

// newManager prepares the process as the Deployment describes it, but for the addresses that it listens on.
func newManager(t *testing.T, program, namespace string, spec map[string]any) *running {
	t.Helper()
	m := &running{done: make(chan error, 1), health: address(t), metrics: address(t), webhook: address(t)}
	host, port, err := net.SplitHostPort(m.webhook)
	if err != nil {
		t.Fatal(err)
	}
	m.cmd = exec.Command(program)
	m.cmd.Env = append(os.Environ(), "POD_NAMESPACE="+namespace)
	for _, arg := range spec["args"].([]any) {
		m.add(fmt.Sprint(arg))
	}
	m.add("--health-probe-bind-address="+m.health, "--metrics-bind-address="+m.metrics,
		"--webhook-host="+host, "--webhook-port="+port, "--shutdown-delay=100ms")
	return m
}

func (m *running) add(args ...string) { m.cmd.Args = append(m.cmd.Args, args...) }

// start also sees to it that the process ends with the test and that a failed test shows the log.
func (m *running) start(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	m.cmd.Stderr = log
	if err := guard.Start(m.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { m.done <- guard.Wait(m.cmd); close(m.done) }()
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		for range m.done {
		}
		_ = log.Close()
		if content, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("the manager said:\n%s", content)
		}
	})
}

func address(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
}

func (m *running) waitReady(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, time.Minute, "the manager to be ready", func() error {
		select {
		case err := <-m.done:
			t.Fatalf("the manager ended: %v", err)
		default:
		}
		response, err := http.Get("http://" + m.health + "/readyz?verbose")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s %w", response.Status, body, err)
		}
		return nil
	})
}

func (m *running) stop(t *testing.T) {
	t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-m.done:
		if err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the manager did not end")
	}
}

// checkAdmission lets the API server ask the manager about good and bad objects.
func checkAdmission(t *testing.T, cluster *testkit.Cluster, namespace string) {
	t.Helper()
	const service = `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: digits}
spec:
  predictor:
    containers: [{name: kserve-container, image: digits, %s: IfNotPresent}]
`
	if _, stderr, err := cluster.Kubectl(t, fmt.Sprintf(service, "imagePullPolicy"), "create", "-n", namespace, "-f", "-"); err != nil {
		t.Errorf("a good object was refused: %s", stderr)
	}
	_, stderr, err := cluster.Kubectl(t, fmt.Sprintf(service, "imagePullPolice"), "create", "--validate=false", "-n", namespace, "-f", "-")
	if err == nil || !strings.Contains(stderr, "spec.predictor.containers[0].imagePullPolice") {
		t.Errorf("a misspelt field: %v\n%s", err, stderr)
	}
}

// checkRuntimes lets the API server ask about what users of multi-model serving create: rules of one object look at others.
func checkRuntimes(t *testing.T, cluster *testkit.Cluster, namespace string) {
	t.Helper()
	const objects = `
apiVersion: serving.kserve.io/v1alpha1
kind: %s
metadata: {name: %s}
spec:
  multiModel: true
  grpcDataEndpoint: port:8001
  supportedModelFormats: [{name: onnx, version: "1", autoSelect: true}]
  containers: [{name: %s, image: server}]
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: digits, annotations: {serving.kserve.io/deploymentMode: ModelMesh}}
spec: {predictor: {model: {modelFormat: {name: onnx}, storage: {path: digits}}}}
`
	name := namespace + "-runtime"
	defer func() {
		_, stderr, err := cluster.Kubectl(t, "", "delete", "clusterservingruntime", name)
		if err != nil {
			t.Error(stderr)
		}
	}()
	for _, kind := range []string{"ServingRuntime", "ClusterServingRuntime"} {
		if _, stderr, err := cluster.Kubectl(t, fmt.Sprintf(objects, kind, name, "server"), "apply", "--server-side", "-n", namespace, "-f", "-"); err != nil {
			t.Errorf("a good %s was refused: %s", kind, stderr)
		}
		_, stderr, err := cluster.Kubectl(t, fmt.Sprintf(objects, kind, "wrong", "mm"), "create", "-n", namespace, "-f", "-")
		if err == nil || !strings.Contains(stderr, "is the name of a container of the mesh") {
			t.Errorf("a %s with a container of the mesh: %v\n%s", kind, err, stderr)
		}
	}
}

// checkProfiles: nothing that the chart lets others reach shows what is in memory, not even to whoever may read metrics.
func (m *running) checkProfiles(t *testing.T, token string) {
	t.Helper()
	for _, listener := range []string{"http://" + m.health, "https://" + m.metrics, "https://" + m.webhook} {
		for _, path := range []string{"/debug/", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars"} {
			if status, _, err := get(listener+path, token); err != nil || status != http.StatusNotFound {
				t.Errorf("%s answers with %d, %v", listener+path, status, err)
			}
		}
	}
	if slices.ContainsFunc(m.cmd.Args, func(arg string) bool { return strings.HasPrefix(arg, "--profiling") }) {
		t.Errorf("the chart asks for profiles: %v", m.cmd.Args)
	}
}

// checkConversion reads an object in another version than it was written in.
func checkConversion(t *testing.T, cluster *testkit.Cluster, namespace string) {
	t.Helper()
	if _, stderr, err := cluster.Kubectl(t, "", "create", "-n", namespace, "-f", "../../examples/modelregistry/modelregistry.yaml"); err != nil {
		t.Fatalf("creating a ModelRegistry: %s", stderr)
	}
	stdout, stderr, err := cluster.Kubectl(t, "", "get", "-n", namespace, "modelregistries.v1alpha1.modelregistry.opendatahub.io",
		"-o", "jsonpath={.items[*].apiVersion}")
	if err != nil || stdout != "modelregistry.opendatahub.io/v1alpha1" {
		t.Errorf("reading the other version: %v %q\n%s", err, stdout, stderr)
	}
}

// checkMetrics asks with a token that may, one that may not, and none. It returns the one that may.
func checkMetrics(t *testing.T, cluster *testkit.Cluster, namespace, address string) string {
	t.Helper()
	reader := cluster.ServiceAccountConfig(t, namespace, "reader").BearerToken
	stranger := cluster.ServiceAccountConfig(t, namespace, "stranger").BearerToken
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: chart.DefaultRelease + "-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reader"}},
	}
	if err := cluster.Client().Create(context.Background(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Client().Delete(context.Background(), binding); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name, token string
		want        int
	}{{"reader", reader, http.StatusOK}, {"stranger", stranger, http.StatusForbidden}, {"nobody", "", http.StatusUnauthorized}} {
		testkit.Eventually(t, 10*time.Second, "metrics for "+c.name, func() error {
			status, body, err := scrape(address, c.token)
			if err == nil && status == http.StatusOK && !strings.Contains(body, "modelplane_build_info{") {
				err = errors.New("modelplane_build_info is missing")
			}
			if err == nil && status != c.want {
				err = fmt.Errorf("status %d, want %d", status, c.want)
			}
			return err
		})
	}
	return reader
}

func scrape(address, token string) (int, string, error) {
	return get("https://"+address+"/metrics", token)
}

func get(url, token string) (int, string, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// The certificate is for the Service, which is not there.
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: insecure, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// managerRules are the rules of the roles that the manager's account is bound to.
func managerRules(t *testing.T, objects []chart.Object) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, o := range objects {
		if o.Template != "rbac.yaml" || !strings.HasSuffix(o.GetKind(), "Role") {
			continue
		}
		role := &rbacv1.ClusterRole{} // a Role has the same shape
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		rules = append(rules, role.Rules...)
	}
	return rules
}
