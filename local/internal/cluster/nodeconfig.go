// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// containerdSocket is short, because the name of a socket may not exceed 107 bytes.
func (c *Cluster) containerdSocket() string { return c.nodeFile("containerd.sock") }

func (c *Cluster) containerdState() string { return c.nodeFile("run") }

// containerdConfig keeps everything below the state directory that containerd lets one choose. Lowering
// oom_score_adj is forbidden on some machines, and a local cluster has no need of it.
func (b *bringUp) containerdConfig(pause string) string {
	return fmt.Sprintf(`version = 2
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart", "io.containerd.internal.v1.tracing"]

[grpc]
address = %[3]q

[debug]
level = "warn"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[4]q
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
enable_unprivileged_ports = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %[5]q
conf_dir = %[6]q

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = %[7]q
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = %[8]q
SystemdCgroup = false
`, b.nodeFile("containerd"), b.containerdState(), b.containerdSocket(), pause, cniPlugins, b.nodeFile("cni"),
		b.state.Node.Snapshotter, b.nodeFile("runc"))
}

// snapshotter prefers overlayfs, and copies whole layers where the file system of the state directory
// cannot be stacked upon.
func (b *bringUp) snapshotter() string {
	dir, err := os.MkdirTemp(b.Dir, "run-")
	if err != nil {
		return "native"
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sub := map[string]string{}
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		sub[name] = filepath.Join(dir, name)
		if err := os.Mkdir(sub[name], 0o700); err != nil {
			return "native"
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", sub["lower"], sub["upper"], sub["work"])
	if err := syscall.Mount("overlay", sub["merged"], "overlay", 0, options); err != nil {
		return "native"
	}
	if err := syscall.Unmount(sub["merged"], 0); err != nil {
		return "native"
	}
	return "overlayfs"
}

// cniConfig connects each pod to the machine by a cable of its own. Unlike with a bridge, also what two
// pods say to each other passes the machine's own rules, and so Services work without further settings.
func (b *bringUp) cniConfig() string {
	config := map[string]any{
		"cniVersion": "0.4.0",
		"name":       cniNetwork,
		"plugins": []any{map[string]any{
			"type": "ptp",
			"mtu":  smallestMTU(),
			"ipam": map[string]any{
				"type":    "host-local",
				"dataDir": b.nodeFile("addresses"),
				"ranges":  []any{[]any{map[string]any{"subnet": podRange, "gateway": nodeIP}}},
				"routes":  []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}
	text, _ := json.MarshalIndent(config, "", "  ") // of maps and strings only
	return string(text)
}

// smallestMTU lets what pods send out fit into every network that the machine is in.
func smallestMTU() int {
	mtu := 1500
	all, err := net.Interfaces()
	if err != nil {
		return mtu
	}
	const tooSmall = 576
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 && i.MTU >= tooSmall {
			mtu = min(mtu, i.MTU)
		}
	}
	return mtu
}

// kubeletConfig gives way to what else the machine does: no limit is taken for the node as a whole, the
// machine's own packet filter is left alone, and nothing is evicted or collected before the machine is nearly full, since images that were loaded from a
// file could not be pulled again.
func (b *bringUp) kubeletConfig() map[string]any {
	return map[string]any{
		"apiVersion":         "kubelet.config.k8s.io/v1beta1",
		"kind":               "KubeletConfiguration",
		"address":            nodeIP,
		"port":               b.state.Ports[portKubelet],
		"readOnlyPort":       0,
		"healthzBindAddress": "127.0.0.1",
		"healthzPort":        b.state.Ports[portKubeletHealth],
		"tlsCertFile":        b.pki.cert(certKubelet),
		"tlsPrivateKeyFile":  b.pki.key(certKubelet),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": b.pki.cert(caCluster)},
		},
		"authorization":                 map[string]any{"mode": "Webhook"},
		"clusterDNS":                    []string{dnsIP},
		"clusterDomain":                 dnsDomain,
		"resolvConf":                    resolvers(),
		"containerRuntimeEndpoint":      "unix://" + b.containerdSocket(),
		"cgroupDriver":                  "cgroupfs",
		"failCgroupV1":                  false,
		"failSwapOn":                    false,
		"enforceNodeAllocatable":        []string{},
		"evictionHard":                  map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		"imageGCHighThresholdPercent":   100,
		"imageGCLowThresholdPercent":    99,
		"localStorageCapacityIsolation": false,
		"makeIPTablesUtilChains":        false,
		"podLogsDir":                    b.nodeFile("pods"),
		"volumePluginDir":               b.nodeFile("kubelet", "volume-plugins"),
		"serializeImagePulls":           false,
	}
}

// resolvers is the list of name servers for pods that want the machine's own. The usual file names only a
// stub on the loopback interface where systemd resolves names, and pods cannot reach that.
func resolvers() string {
	const behindStub, usual = "/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"
	if _, err := os.Stat(behindStub); err == nil {
		return behindStub
	}
	return usual
}

// proxyConfig leaves the machine's connection tracking as it is.
func (b *bringUp) proxyConfig() map[string]any {
	return map[string]any{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"mode":               "nftables",
		"hostnameOverride":   nodeName,
		"clusterCIDR":        podRange,
		"clientConnection":   map[string]any{"kubeconfig": b.componentKubeconfig(nameProxy)},
		"healthzBindAddress": fmt.Sprintf("127.0.0.1:%d", b.state.Ports[portProxyHealth]),
		"metricsBindAddress": fmt.Sprintf("127.0.0.1:%d", b.state.Ports[portProxyMetrics]),
		"nodePortAddresses":  []string{"primary"},
		"conntrack": map[string]any{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	}
}

// corefile asks the machine's resolver for names outside of the cluster, if there is one.
func (b *bringUp) corefile() string {
	forward := ""
	if text, err := os.ReadFile("/etc/resolv.conf"); err == nil && strings.Contains("\n"+string(text), "\nnameserver") {
		forward = "    forward . /etc/resolv.conf\n"
	}
	return fmt.Sprintf(`.:%d {
    bind %s
    errors
    health 127.0.0.1:%d
    ready 127.0.0.1:%d
    kubernetes %s in-addr.arpa ip6.arpa {
        kubeconfig %q
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }
%s    cache 30
}
`, b.state.Ports[portDNS], nodeIP, b.state.Ports[portDNSHealth], b.state.Ports[portDNSReady], dnsDomain,
		b.componentKubeconfig(nameDNS), forward)
}

// dnsManifests are the Service by which pods find the name server, which runs on the node itself and not in
// a pod, and what the name server may read.
func (b *bringUp) dnsManifests() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns, kubernetes.io/name: CoreDNS}}
spec:
  clusterIP: %[1]s
  ports:
  - {name: dns, port: 53, protocol: UDP, targetPort: %[2]d}
  - {name: dns-tcp, port: 53, protocol: TCP, targetPort: %[2]d}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints:
- {addresses: [%[3]s], conditions: {ready: true}}
ports:
- {name: dns, port: %[2]d, protocol: UDP}
- {name: dns-tcp, port: %[2]d, protocol: TCP}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[4]q}
rules:
- {apiGroups: [""], resources: [services, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[4]q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[4]q}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[4]q}]
`, dnsIP, b.state.Ports[portDNS], nodeIP, dnsUser)
}
