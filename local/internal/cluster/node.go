// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// The node's place in the network. Nothing here depends on the networks that the machine is in, so that
// a laptop may change them while the cluster runs.
const (
	nodeName  = "local"
	nodeIP    = "10.244.0.1"
	podRange  = "10.244.0.0/24"
	dnsIP     = "10.96.0.10"
	dnsDomain = "cluster.local"
)

// Names of the node's processes.
const (
	nameContainerd = "containerd"
	nameKubelet    = "kubelet"
	nameProxy      = "kube-proxy"
	nameDNS        = "coredns"
	nameAddons     = "addons"
)

// Names of the node's ports in the state file.
const (
	portKubelet       = "kubelet"
	portKubeletHealth = "kubelet-health"
	portProxyHealth   = "kube-proxy-health"
	portProxyMetrics  = "kube-proxy-metrics"
	portDNS           = "coredns"
	portDNSHealth     = "coredns-health"
	portDNSReady      = "coredns-ready"
	portAddonsHealth  = "addons-health"
	portAddonsMetrics = "addons-metrics"
)

// nodeState is what the state file remembers of the node: that there is one, and what down must put back.
type nodeState struct {
	// Forwarding is the kernel's setting before the node came.
	Forwarding string `json:"forwarding"`
	// Made are the directories outside of the state directory that did not exist before.
	Made []string `json:"made,omitempty"`
	// Snapshotter is how containerd stacks layers here; images that are unpacked depend on it.
	Snapshotter string `json:"snapshotter"`
}

// nodeFile is a path below the node's own part of the state directory.
func (c *Cluster) nodeFile(parts ...string) string {
	return filepath.Join(append([]string{c.Dir, "node"}, parts...)...)
}

// prepareNode makes the machine fit to be a node and writes the configuration of what will run on it.
func (b *bringUp) prepareNode(ctx context.Context) error {
	// First, because it puts back what the node below remembers as the state of the machine before any node.
	if err := b.endDeadOwner(ctx); err != nil {
		return err
	}
	if b.state.Node == nil {
		n, err := b.newNode()
		if err != nil {
			return err
		}
		b.state.Node = n
	}
	// Remembered before anything changes: an interrupted up must still be undone by down.
	if err := b.state.save(b.Dir); err != nil {
		return err
	}
	if err := b.ensureNetwork(ctx); err != nil {
		return fmt.Errorf("the node's network: %w", err)
	}
	return b.writeNodeFiles()
}

func (b *bringUp) newNode() (*nodeState, error) {
	forwarding, err := os.ReadFile(forwardingSetting)
	if err != nil {
		return nil, err
	}
	n := &nodeState{Forwarding: strings.TrimSpace(string(forwarding)), Snapshotter: b.snapshotter()}
	for _, dir := range outsideDirs {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			n.Made = append(n.Made, dir)
		}
	}
	return n, nil
}

// writeNodeFiles renews the configuration files. They are inputs of the processes that read them, which
// therefore start again when a file changes.
func (b *bringUp) writeNodeFiles() error {
	pause, err := pauseImage(b.Executable)
	if err != nil {
		return err
	}
	files := map[string]string{
		b.nodeFile("containerd.toml"):            b.containerdConfig(pause.name),
		b.nodeFile("cni", "modelplane.conflist"): b.cniConfig(),
		b.nodeFile("Corefile"):                   b.corefile(),
		b.nodeFile("images", "pause.archive"):    string(pause.archive),
	}
	for name, config := range map[string]any{"kubelet.yaml": b.kubeletConfig(), "kube-proxy.yaml": b.proxyConfig()} {
		text, err := yaml.Marshal(config)
		if err != nil {
			return err
		}
		files[b.nodeFile(name)] = string(text)
	}
	for path, text := range files {
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			continue
		}
		if err := writeFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// nodeSpecs are the processes of the node.
func (c *Cluster) nodeSpecs(p pki, st *state) []spec {
	tools := findTools()
	return []spec{{
		name: nameContainerd, path: tools["containerd"], env: []string{"PATH=" + toolPath},
		args:   []string{"--config=" + c.nodeFile("containerd.toml")},
		inputs: []string{c.nodeFile("containerd.toml")},
		probe:  probe{url: "unix://" + c.containerdSocket()},
	}, {
		name: nameKubelet, path: c.Executable, env: []string{"PATH=" + toolPath},
		args: []string{
			"--config=" + c.nodeFile("kubelet.yaml"),
			"--kubeconfig=" + c.componentKubeconfig(nameKubelet),
			"--root-dir=" + c.nodeFile("kubelet"),
			"--cert-dir=" + c.nodeFile("kubelet", "pki"),
			"--hostname-override=" + nodeName,
			"--node-ip=" + nodeIP,
		},
		inputs: []string{c.nodeFile("kubelet.yaml"), c.componentKubeconfig(nameKubelet), p.cert(certKubelet)},
		probe:  probe{url: st.local("http", portKubeletHealth) + "/healthz"},
	}, {
		name: nameProxy, path: c.Executable, env: []string{"PATH=" + toolPath},
		args:   []string{"--config=" + c.nodeFile("kube-proxy.yaml")},
		inputs: []string{c.nodeFile("kube-proxy.yaml"), c.componentKubeconfig(nameProxy)},
		probe:  probe{url: st.local("http", portProxyHealth) + "/livez"},
	}, {
		name: nameDNS, path: c.Executable,
		args:   []string{"--conf=" + c.nodeFile("Corefile")},
		inputs: []string{c.nodeFile("Corefile"), c.componentKubeconfig(nameDNS)},
		probe:  probe{url: st.local("http", portDNSReady) + "/ready"},
	}, {
		name: nameAddons, path: c.Executable,
		args: []string{
			"--kubeconfig=" + c.componentKubeconfig(nameAddons),
			"--volumes=" + filepath.Join(c.Dir, "volumes"),
			fmt.Sprintf("--health=127.0.0.1:%d", st.Ports[portAddonsHealth]),
			fmt.Sprintf("--metrics=%s:%d", nodeIP, st.Ports[portAddonsMetrics]),
			fmt.Sprintf("--kubelet=https://%s:%d", nodeIP, st.Ports[portKubelet]),
			"--tls-cert-file=" + p.cert(certAddons),
			"--tls-private-key-file=" + p.key(certAddons),
			"--requestheader-client-ca-file=" + p.cert(caFrontProxy),
		},
		inputs: []string{c.componentKubeconfig(nameAddons), p.cert(certAddons), p.cert(caFrontProxy)},
		probe:  probe{url: st.local("http", portAddonsHealth)},
	}}
}

// node starts what makes the machine a node, once the control plane and containerd run.
func (b *bringUp) node(ctx context.Context, specs map[string]spec) error {
	if err := b.load(ctx, b.nodeFile("images", "pause.archive")); err != nil {
		return err
	}
	if _, begun := b.early[nameAddons]; begun || !b.runs(nameDNS) {
		metrics, err := b.metricsManifests()
		if err != nil {
			return err
		}
		if _, err := b.apply(ctx, "DNS, volumes, metrics", []byte(b.dnsManifests()+"---\n"+AddonManifests()+"---\n"+metrics)); err != nil {
			return err
		}
	}
	if err := b.stage(ctx, specs, []string{nameKubelet, nameDNS, nameProxy, nameAddons}); err != nil {
		return err
	}
	return b.waitForNode(ctx)
}

// waitForNode waits until pods can be scheduled.
func (b *bringUp) waitForNode(ctx context.Context) error {
	start := time.Now()
	why := "it has not registered itself"
	client, err := b.adminClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	err = waitUntil(ctx, b.Timeout, func() bool {
		var ready bool
		ready, why = b.nodeReady(ctx, client)
		return ready
	})
	if err != nil {
		return fmt.Errorf("the node is not ready after %s: %s; see `modelplane-local logs kubelet`", elapsed(start), why)
	}
	if b.started > 0 {
		b.say("node", "ready in %s", elapsed(start))
	}
	return nil
}

func (c *Cluster) nodeProbe(st *state) probe {
	return probe{url: st.apiServerURL() + "/api/v1/nodes/" + nodeName, ca: caCluster, cert: certAdmin}
}

func (b *bringUp) adminClient() (*http.Client, error) { return b.nodeProbe(b.state).client(b.pki) }

// nodeReady asks the API server, and says in words what is missing.
func (b *bringUp) nodeReady(ctx context.Context, client *http.Client) (ready bool, why string) {
	body, err := b.nodeProbe(b.state).get(ctx, client)
	if err != nil {
		return false, err.Error()
	}
	return readyCondition(body)
}

// readyCondition reads the one condition that matters from a Node.
func readyCondition(node []byte) (ready bool, why string) {
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(node, &n); err != nil {
		return false, err.Error()
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True", c.Message
		}
	}
	return false, "it has no condition yet"
}
