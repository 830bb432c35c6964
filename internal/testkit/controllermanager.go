// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ControllerManager runs kube-controller-manager until the test ends: garbage is
// collected, Deployments get ReplicaSets and Pods, namespaces get their default
// service account and disappear when deleted. It works on the whole cluster, so a
// test that uses it should not run in parallel with tests that rely on its
// absence. There is still no node: Pods stay pending; see Scheduler.
func (c *Cluster) ControllerManager(t testing.TB) {
	t.Helper()
	args, err := c.controllerManagerArgs()
	if err != nil {
		t.Fatalf("preparing kube-controller-manager: %v", err)
	}
	p := c.Program(t, "kube-controller-manager", nil, c.processes.binary("kube-controller-manager"), args...)
	c.waitForControllers(t, p)
}

func (c *Cluster) controllerManagerArgs() ([]string, error) {
	ca := filepath.Join(c.processes.dir, "root-ca.crt")
	if err := os.WriteFile(ca, c.admin.CAData, 0o600); err != nil {
		return nil, err
	}
	return []string{
		"--kubeconfig=" + c.kubeconfig,
		"--root-ca-file=" + ca,
		"--service-account-private-key-file=" + filepath.Join(c.plane.APIServer.CertDir, "sa-signer.key"),
		"--use-service-account-credentials=false",
		"--leader-elect=false",
		// It serves nothing that a test would ask for.
		"--secure-port=0",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}, nil
}

// waitForControllers takes the default service account of a fresh namespace as
// the sign that the controllers work.
func (c *Cluster) waitForControllers(t testing.TB, p *Program) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := c.Namespace(t)
	Eventually(t, time.Minute, "kube-controller-manager to work", func() error {
		select {
		case <-p.Ended():
			t.Fatalf("kube-controller-manager ended at once:\n%s", p.Output())
		default:
		}
		if _, err := kube.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			return fmt.Errorf("the default service account of a new namespace: %w", err)
		}
		return nil
	})
}
