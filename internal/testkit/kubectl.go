// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubectl runs kubectl as the administrator, with stdin as its standard input.
func (c *Cluster) Kubectl(t testing.TB, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args = append([]string{"--kubeconfig", c.kubeconfig, "--cache-dir", filepath.Join(t.TempDir(), "kubectl")}, args...)
	cmd := exec.CommandContext(ctx, c.processes.binary("kubectl"), args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	// Neither a kuberc file nor a kubeconfig of the person who runs the tests may take part.
	cmd.Env = append(os.Environ(), "KUBECONFIG=", "KUBERC=off")
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// Kubeconfig returns the path of the administrator's kubeconfig file, for
// commands that read one.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// KubeconfigFor writes a kubeconfig file that holds the address and the
// credentials of cfg and returns its path.
func (c *Cluster) KubeconfigFor(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf(cfg), path); err != nil {
		t.Fatalf("writing a kubeconfig: %v", err)
	}
	return path
}

func (c *Cluster) writeKubeconfig(name string, cfg *rest.Config) (string, error) {
	path := filepath.Join(c.processes.dir, name+".kubeconfig")
	return path, clientcmd.WriteToFile(kubeconfigOf(cfg), path)
}

func kubeconfigOf(cfg *rest.Config) clientcmdapi.Config {
	const name = "testkit"
	file := *clientcmdapi.NewConfig()
	file.CurrentContext = name
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cfg.CertData,
		ClientKeyData:         cfg.KeyData,
		Token:                 cfg.BearerToken,
	}
	return file
}

// ServiceAccountConfig returns the configuration of a service account, which is
// created when it does not exist, with a token from the server. It may do what
// RBAC grants it: at first next to nothing.
func (c *Cluster) ServiceAccountConfig(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	cfg, err := c.serviceAccountConfig(namespace, name)
	if err != nil {
		t.Fatalf("service account %s/%s: %v", namespace, name, err)
	}
	return cfg
}

func (c *Cluster) serviceAccountConfig(namespace, name string) (*rest.Config, error) {
	ctx := context.Background()
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	accounts := kube.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token: %w", err)
	}
	cfg := rest.AnonymousClientConfig(c.admin)
	cfg.QPS = -1
	cfg.BearerToken = token.Status.Token
	return cfg, nil
}
