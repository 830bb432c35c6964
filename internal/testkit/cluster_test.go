// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit/guard"
)

func TestOneServerForAllTests(t *testing.T) {
	a, b := Start(t), Start(t)
	if a != b {
		t.Error("two calls of Start returned two clusters")
	}
	if got := a.Config().QPS; got >= 0 {
		t.Errorf("QPS = %v, want it off", got)
	}
	if one, other := a.Config(), a.Config(); one == other {
		t.Error("Config returned the same pointer twice; one test could change it for another")
	}
}

func TestMissingAssets(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	if _, err := findAssets(); err == nil || !strings.Contains(err.Error(), "make test") {
		t.Errorf("error = %v, want one that says to run make test", err)
	}
	cache := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("XDG_CACHE_HOME", cache)
	want := filepath.Join(cache, "modelplane", "local", "current")
	if _, err := findAssets(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want one that names %s", err, want)
	}
}

func TestNamespaceIsEmptiedAndRemoved(t *testing.T) {
	cluster := Start(t)
	ctx := t.Context()
	var name string
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"test.modelplane.io/held"}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "free"}}
	complaints := try(t, func(t testing.TB) {
		name = cluster.Namespace(t)
		config.Namespace, secret.Namespace = name, name
		for _, obj := range []client.Object{config, secret} {
			if err := cluster.Client().Create(ctx, obj); err != nil {
				t.Error(err)
			}
		}
	})
	if len(complaints) > 0 {
		t.Fatal(complaints)
	}
	for _, obj := range []client.Object{config, secret, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}} {
		if err := cluster.Client().Get(ctx, client.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
			t.Errorf("%T after its test: error = %v, want not found", obj, err)
		}
	}
}

func TestNamespaceName(t *testing.T) {
	for _, test := range []string{"TestX", "TestAll/with spaces_and/ümlaut", "Test" + strings.Repeat("Long/", 40)} {
		name := namespaceName(test)
		if len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("namespaceName(%q) = %q, not a label", test, name)
		}
		if again := namespaceName(test); again == name {
			t.Errorf("namespaceName(%q) gave %q twice", test, name)
		}
	}
}

func TestPodSecurityIsEnforced(t *testing.T) {
	cluster := Start(t)
	ns := &corev1.Namespace{}
	key := client.ObjectKey{Name: cluster.Namespace(t)}
	if err := cluster.Client().Get(t.Context(), key, ns); err != nil {
		t.Fatal(err)
	}
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	if err := cluster.Client().Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "lax"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none.example/none"}}},
	}
	if err := cluster.Client().Create(t.Context(), pod); !apierrors.IsForbidden(err) {
		t.Errorf("error = %v, want the lax pod forbidden", err)
	}
}

func TestServiceAccountIsBoundByRBAC(t *testing.T) {
	cluster := Start(t)
	namespace := cluster.Namespace(t)
	cfg := cluster.ServiceAccountConfig(t, namespace, "reader")
	as, err := client.New(cfg, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	list := func() error { return as.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace)) }
	if err := list(); !apierrors.IsForbidden(err) {
		t.Fatalf("before any grant: error = %v, want forbidden", err)
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "reader"}
	for _, obj := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reader"}},
		},
	} {
		if err := cluster.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	Eventually(t, 10*time.Second, "the grant to take effect", list)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no"}}
	if err := as.Create(t.Context(), secret); !apierrors.IsForbidden(err) {
		t.Errorf("creating a Secret: error = %v, want forbidden", err)
	}
}

func TestKubectl(t *testing.T) {
	cluster := Start(t)
	namespace := cluster.Namespace(t)
	manifest := "{apiVersion: v1, kind: ConfigMap, metadata: {name: from-stdin}, data: {a: b}}"
	if _, stderr, err := cluster.Kubectl(t, manifest, "-n", namespace, "apply", "-f", "-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, stderr)
	}
	stdout, _, err := cluster.Kubectl(t, "", "-n", namespace, "get", "configmap", "from-stdin", "-o", "jsonpath={.data.a}")
	if err != nil || stdout != "b" {
		t.Errorf("get = %q, %v, want b", stdout, err)
	}
	if _, stderr, err := cluster.Kubectl(t, "", "-n", namespace, "get", "configmap", "absent"); err == nil || !strings.Contains(stderr, "not found") {
		t.Errorf("get of an absent object: err = %v, stderr = %q", err, stderr)
	}
	limited := cluster.KubeconfigFor(t, cluster.ServiceAccountConfig(t, namespace, "nobody"))
	if _, stderr, err := cluster.Kubectl(t, "", "--kubeconfig", limited, "-n", namespace, "get", "secrets"); err == nil || !strings.Contains(stderr, "Forbidden") {
		t.Errorf("get as a service account without rights: err = %v, stderr = %q", err, stderr)
	}
}

// TestGuardEndsServersOfADeadProcess shows that the servers go when the pipe to
// the test process closes, which is all the guard can see of its death.
func TestGuardEndsServersOfADeadProcess(t *testing.T) {
	assets := t.TempDir()
	if err := os.WriteFile(filepath.Join(assets, "server"), []byte("#!/bin/sh\nexec sleep 30\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	procs, err := newProcesses(assets)
	if err != nil {
		t.Fatal(err)
	}
	launcher, err := procs.server("server")
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(launcher)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(guard.Records(), strconv.Itoa(server.Process.Pid))
	Eventually(t, 30*time.Second, "the process id of the server", func() error {
		pid, err := os.ReadFile(launcher + ".pid")
		if err == nil && len(pid) == 0 {
			err = errors.New("not written yet")
		}
		return err
	})
	if guard.Records() != "" {
		got, err := os.ReadFile(record)
		if want, _ := guard.Line(server.Process.Pid); err != nil || string(got) != want+"\n" {
			t.Errorf("the record says %q, want %q, %v", got, want, err)
		}
	}
	procs.end()
	_ = server.Wait()
	if _, err := os.Stat(record); guard.Records() != "" && !os.IsNotExist(err) {
		t.Errorf("the record of the server is still there: %v", err)
	}
	if status := server.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("the server ended with %v, want killed by the guard", server.ProcessState)
	}
	if _, err := os.Stat(procs.dir); !os.IsNotExist(err) {
		t.Errorf("the directory of the servers is still there: %v", err)
	}
}

func TestFailedStartIsExplained(t *testing.T) {
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		script := "#!/bin/sh\necho the reason of " + name + " >&2\nexit 3\n"
		if err := os.WriteFile(filepath.Join(assets, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	if _, err := startCluster(); err == nil || !strings.Contains(err.Error(), "the reason of etcd") {
		t.Errorf("error = %v, want one with the words of etcd", err)
	}
}

func deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none.example/none"}}},
			},
		},
	}
}
