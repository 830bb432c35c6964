// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const root = "../.."

// patience is how long is waited for what has to come in the end. A machine may be slow and have much else to do, and a limit
// costs nothing where all is well. kubectl is told the same.
const patience = 5 * time.Minute

// processes of the machine; the manager is in a pod.
var processes = []string{
	"etcd", "containerd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "addons", "coredns", "kube-proxy", "kubelet",
}

// cluster is one local cluster with Modelplane in it.
type cluster struct {
	*testing.T
	local, installer, images, dir string
	version                       *string // of the manager; empty: the chart's
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{
		T: t, local: os.Getenv("MODELPLANE_LOCAL"), installer: os.Getenv("MODELPLANE_UP"), images: os.Getenv("MODELPLANE_IMAGES"),
		dir: filepath.Join(t.TempDir(), "state"), version: new(string),
	}
	if c.local == "" || c.installer == "" || c.images == "" {
		t.Fatal("MODELPLANE_LOCAL, MODELPLANE_UP and MODELPLANE_IMAGES name what to test; `make e2e` builds it and sets them")
	}
	if dir := os.Getenv("MODELPLANE_DIR"); dir != "" {
		c.dir = dir // a cluster to look into while a part of the test is being written; it stays
		return c
	}
	// `make up` spares memory; here time is short.
	if err := os.Setenv("GOGC", "200"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := c.run(context.Background(), c.local, "logs", "-n", "20", "--dir", c.dir)
			t.Logf("logs:\n%s", logs)
		}
		if out, err := c.run(context.Background(), c.local, "down", "--dir", c.dir); err != nil {
			t.Errorf("down at the end: %v\n%s", err, out)
		}
	})
	return c
}

// in reports to a part of the test.
func (c cluster) in(t *testing.T) cluster {
	c.T = t
	return c
}

// run leaves out KUBECONFIG, so that a developer's own cluster is never touched.
func (c cluster) run(ctx context.Context, program string, args ...string) (string, error) {
	return c.runWith(ctx, nil, program, args...)
}

func (c cluster) runWith(ctx context.Context, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = root
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") }), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (c cluster) must(program string, args ...string) string {
	c.Helper()
	out, err := c.run(c.Context(), program, args...)
	if err != nil {
		c.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return out
}

func (c cluster) up() string {
	c.Helper()
	return c.must(c.installer, "--local", c.local, "--dir", c.dir, "--version", *c.version)
}

func (c cluster) kubectl(args ...string) (string, error) {
	return c.kubectlIn(c.Context(), args...)
}

// kubectlIn does not collect garbage: that is most of what a process costs that ends at once, and there are more than a thousand.
func (c cluster) kubectlIn(ctx context.Context, args ...string) (string, error) {
	out, err := c.runWith(ctx, []string{"GOGC=off"}, c.local, append([]string{"kubectl", "--kubeconfig", filepath.Join(c.dir, "kubeconfig")}, args...)...)
	return strings.TrimSpace(out), err
}

// mustKubectl is admittedKubectl that has to succeed.
func (c cluster) mustKubectl(args ...string) string {
	c.Helper()
	out, err := c.admittedKubectl(args...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// admittedKubectl tries again while there is no manager to admit a change: another row may have taken it away.
func (c cluster) admittedKubectl(args ...string) (out string, err error) {
	tried := c.inTheEnd("a manager that admits", func() (again error) {
		if out, err = c.kubectl(args...); err != nil && strings.Contains(out, "failed calling webhook") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if tried == nil && err != nil {
		return out, fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return out, tried
}

// eventually asks until the answer is good.
func (c cluster) eventually(what string, good func() error) {
	c.Helper()
	if err := c.inTheEnd(what, good); err != nil {
		c.Fatal(err)
	}
}

// inTheEnd asks until the answer is good, at first often and then more rarely: to ask costs a process, and what is waited for runs
// on the same few cores as those who ask.
func (c cluster) inTheEnd(what string, good func() error) error {
	const first, slowest = 200 * time.Millisecond, 2 * time.Second
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	for pause := first; ; pause = min(pause*5/4, slowest) {
		err := good()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, patience, err)
		case <-time.After(pause):
		}
	}
}

func (c cluster) pid(name string) int {
	c.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, "run", name+".json"))
	if err != nil {
		c.Fatal(err)
	}
	var rec struct{ PID int }
	if err := json.Unmarshal(data, &rec); err != nil || rec.PID <= 1 {
		c.Fatalf("record of %s: %v %s", name, err, data)
	}
	return rec.PID
}

// kill ends a process as a crash would.
func (c cluster) kill(name string) {
	c.Helper()
	if err := syscall.Kill(c.pid(name), syscall.SIGKILL); err != nil {
		c.Fatalf("killing %s: %v", name, err)
	}
}

// fresh makes a connection of its own for every question, so that each may reach another pod.
var fresh = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get asks a server in the cluster from this machine.
func (c cluster) get(url string) (string, error) {
	return answer(c.Context(), http.MethodGet, url, nil)
}

func (c cluster) post(url, file string) (string, error) {
	body, err := os.Open(filepath.Join(root, file))
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	return answer(c.Context(), http.MethodPost, url, body)
}

func answer(ctx context.Context, method, url string, question io.Reader) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, question)
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := fresh.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, body)
	}
	return strings.TrimSpace(string(body)), nil
}

// address is where a Service of the default namespace answers on this machine.
func (c cluster) address(service string) string {
	c.Helper()
	return c.addressIn("default", service)
}

func (c cluster) addressIn(namespace, service string) string {
	c.Helper()
	return "http://" + c.mustKubectl("get", "service", service, "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")
}
