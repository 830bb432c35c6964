// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Manager is the Modelplane manager that runs against the local control plane, as a process outside of
// it. What it needs in the cluster is applied with kubectl, in the way a person would.
type Manager struct {
	// Binary is the modelplane executable.
	Binary string
	// CRDs is a file or a directory with the definitions of every kind.
	CRDs string
	// Webhooks is a file or a directory with the webhook configurations.
	Webhooks string
	// Namespace is where the manager keeps its own objects.
	Namespace string
	// Enable picks domains, as the manager's flag of the same name does; empty means its default.
	Enable string
}

// managerSpec is the manager's process. The manifests count as its inputs, so that a changed schema or
// webhook is applied again and the manager starts anew with it.
func (c *Cluster) managerSpec(st *state) (spec, error) {
	m := c.Manager
	path, err := filepath.Abs(m.Binary)
	if err != nil {
		return spec{}, err
	}
	if _, err := os.Stat(path); err != nil {
		return spec{}, fmt.Errorf("the manager is not built: %w; `make build` builds it", err)
	}
	inputs := []string{c.Kubeconfig()}
	for _, from := range []string{m.CRDs, m.Webhooks} {
		files, err := manifestFiles(from)
		if err != nil {
			return spec{}, err
		}
		inputs = append(inputs, files...)
	}
	args := []string{
		"manager",
		"--kubeconfig=" + c.Kubeconfig(),
		"--namespace=" + m.Namespace,
		"--leader-elect=false",
		"--shutdown-delay=0s",
		"--webhook-host=127.0.0.1",
		fmt.Sprintf("--webhook-port=%d", st.Ports[portWebhook]),
		"--webhook-url=" + st.local("https", portWebhook),
		fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", st.Ports[portMetrics]),
		fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", st.Ports[portHealth]),
	}
	if m.Enable != "" {
		args = append(args, "--enable="+m.Enable)
	}
	return spec{name: nameManager, path: path, args: args, inputs: inputs, probe: managerProbe(st)}, nil
}

func managerProbe(st *state) probe { return probe{url: st.local("http", portHealth) + "/readyz"} }

// manager applies what the manager needs and starts it. Manifests are inputs of the manager's process, so
// nothing needs to be applied while it runs as it should.
func (b *bringUp) manager(ctx context.Context, specs map[string]spec) error {
	if !b.runs(nameManager) {
		if err := b.install(ctx); err != nil {
			return err
		}
	}
	return b.stage(ctx, specs, []string{nameManager})
}

// install puts definitions, namespace and webhook configurations into the cluster.
func (b *bringUp) install(ctx context.Context) error {
	url := b.state.local("https", portWebhook)
	definitions, err := localManifests(b.Manager.CRDs, url)
	if err != nil {
		return err
	}
	webhooks, err := localManifests(b.Manager.Webhooks, url)
	if err != nil {
		return err
	}
	namespace := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n", b.Manager.Namespace)
	if err := b.applyDefinitions(ctx, definitions); err != nil {
		return err
	}
	if _, err := b.apply(ctx, "namespace", []byte(namespace)); err != nil {
		return err
	}
	_, err = b.apply(ctx, "webhooks", webhooks)
	return err
}

// applyDefinitions also waits for new definitions to be served, since the manager looks for them.
func (b *bringUp) applyDefinitions(ctx context.Context, manifests []byte) error {
	changed, err := b.apply(ctx, "definitions", manifests)
	if err != nil || changed == 0 {
		return err
	}
	_, err = b.kubectl(ctx, manifests, "wait", "--for=condition=Established", "--timeout=60s", "-f", "-")
	return err
}

// apply returns how many objects were new or different.
func (b *bringUp) apply(ctx context.Context, what string, manifests []byte) (int, error) {
	if len(manifests) == 0 {
		return 0, nil
	}
	start := time.Now()
	out, err := b.kubectl(ctx, manifests, "apply", "-f", "-")
	if err != nil {
		return 0, fmt.Errorf("applying %s: %w", what, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	changed := 0
	for _, line := range lines {
		if !strings.HasSuffix(line, " unchanged") {
			changed++
		}
	}
	b.say(what, "%d applied (%d changed) in %s", len(lines), changed, elapsed(start))
	return changed, nil
}

// kubectl runs the linked-in kubectl against this cluster only, whatever the environment says.
func (b *bringUp) kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.Executable, append([]string{"kubectl", "--kubeconfig=" + b.Kubeconfig()}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
