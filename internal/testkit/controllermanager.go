// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ControllerManager runs kube-controller-manager until the test ends: garbage is
// collected, Deployments get ReplicaSets and Pods, namespaces get their default
// service account and disappear when deleted. It works on the whole cluster, so a
// test that uses it should not run in parallel with tests that rely on its
// absence. There is still no node: Pods stay pending.
func (c *Cluster) ControllerManager(t testing.TB) {
	t.Helper()
	args, err := c.controllerManagerArgs()
	if err != nil {
		t.Fatalf("preparing kube-controller-manager: %v", err)
	}
	launcher, err := c.processes.launcher("kube-controller-manager")
	if err != nil {
		t.Fatalf("preparing kube-controller-manager: %v", err)
	}
	cmd := exec.Command(launcher, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting kube-controller-manager: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = os.Remove(launcher + ".pid")
	})
	c.waitForControllers(t, ended)
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
func (c *Cluster) waitForControllers(t testing.TB, ended <-chan struct{}) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := c.Namespace(t)
	Eventually(t, time.Minute, "kube-controller-manager to work", func() error {
		select {
		case <-ended:
			t.Fatalf("kube-controller-manager ended at once:\n%s", c.processes.logTails())
		default:
		}
		if _, err := kube.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			return fmt.Errorf("the default service account of a new namespace: %w", err)
		}
		return nil
	})
}
