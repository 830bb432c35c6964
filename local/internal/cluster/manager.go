// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	// Webhooks is a file or a directory with the webhook configurations. The manager puts its own
	// address and authority into them, because there is no Service to reach it by.
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
		files, err := manifests(from)
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

// manager applies what the manager needs and starts it. While it already runs as it should, nothing is
// applied: the running manager has completed the webhook configurations, and applying the bare ones
// again would undo that for a moment.
func (b *bringUp) manager(ctx context.Context) error {
	s, err := b.managerSpec(b.state)
	if err != nil {
		return err
	}
	rec, err := readRecord(b.Dir, nameManager)
	if err != nil || !rec.alive() || rec.Digest != s.digest() {
		if _, err := stop(ctx, b.Dir, nameManager); err != nil {
			return err
		}
		if err := b.install(ctx); err != nil {
			return err
		}
	}
	return b.run(ctx, []spec{s})
}

// install puts definitions, namespace and webhook configurations into the cluster. The configurations
// are replaced rather than merged, since an earlier manager has rewritten how they are reached.
func (b *bringUp) install(ctx context.Context) error {
	m := b.Manager
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + m.Namespace + "\n"
	steps := []struct {
		say   string
		skip  bool
		stdin string
		args  []string
	}{
		{"definitions", m.CRDs == "", "", append([]string{"apply"}, source(m.CRDs)...)},
		{"definitions established", m.CRDs == "", "", []string{"wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"}},
		{"namespace", false, namespace, []string{"apply", "-f", "-"}},
		{"webhooks", m.Webhooks == "", "", append([]string{"replace", "--force"}, source(m.Webhooks)...)},
	}
	for _, step := range steps {
		if step.skip {
			continue
		}
		start := time.Now()
		out, err := b.kubectl(ctx, step.stdin, step.args...)
		if err != nil {
			return fmt.Errorf("%s: %w", step.say, err)
		}
		b.say(step.say, "%d applied in %s", strings.Count(out, "\n"), elapsed(start))
	}
	return nil
}

// kubectl runs the linked-in kubectl against this cluster only, whatever the environment says.
func (b *bringUp) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.Executable, append([]string{"kubectl", "--kubeconfig=" + b.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// source is how kubectl is told to read a path: a directory with a kustomization is built, others are
// read file by file.
func source(path string) []string {
	if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
		return []string{"-k", path}
	}
	return []string{"-f", path}
}

// manifests lists the files of a path in a fixed order.
func manifests(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var files []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; `make generate` writes the manifests", err)
	}
	return files, err
}
