// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// Names of the processes, which are also the names of their logs and records.
const (
	nameEtcd              = "etcd"
	nameAPIServer         = "kube-apiserver"
	nameControllerManager = "kube-controller-manager"
	nameScheduler         = "kube-scheduler"
)

// Names of the ports in the state file.
const (
	portEtcd              = "etcd"
	portAPIServer         = "kube-apiserver"
	portControllerManager = "kube-controller-manager"
	portScheduler         = "kube-scheduler"
)

// processNames lists every process that a cluster may have, in starting order; ending goes backwards.
var processNames = []string{
	nameEtcd, nameContainerd, nameAPIServer, nameControllerManager, nameScheduler,
	nameAddons, nameDNS, nameProxy, nameKubelet,
}

// controlPlaneStages says what may start together once the stage before is ready. containerd is only there
// with a node; it needs nobody, so starting it early costs no time.
var controlPlaneStages = [][]string{{nameEtcd, nameContainerd}, {nameAPIServer}, {nameControllerManager, nameScheduler}}

const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
	issuer       = "https://kubernetes.default.svc.cluster.local"
)

// spec is a process as it should run.
type spec struct {
	name string
	path string
	args []string
	env  []string
	// inputs are files whose content the process reads only once, when it starts.
	inputs []string
	probe  probe
}

// digest identifies the process's whole configuration: a running process with another digest is out of
// date. The executable counts by size and time, which change whenever it is built.
func (s spec) digest() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q\n", s.path, s.args, s.env)
	if info, err := os.Stat(s.path); err == nil {
		fmt.Fprintf(sum, "%d %d\n", info.Size(), info.ModTime().UnixNano())
	}
	for _, path := range s.inputs {
		// A missing input is reported by the process that needs it, in its own words.
		data, _ := os.ReadFile(path)
		fmt.Fprintf(sum, "%q %d %s\n", path, len(data), data)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:16]
}

func (s *state) local(scheme, port string) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, s.Ports[port])
}

// apiServerHost is an address that pods reach too when there is a node for them, and that no other machine
// reaches in any case.
func (s *state) apiServerHost() string {
	if s.Node != nil {
		return nodeIP
	}
	return "127.0.0.1"
}

func (s *state) apiServerURL() string {
	return fmt.Sprintf("https://%s:%d", s.apiServerHost(), s.Ports[portAPIServer])
}

// specs describes every process for this directory, these keys and these ports.
func (c *Cluster) specs(p pki, st *state) map[string]spec {
	specs := map[string]spec{}
	for _, s := range []spec{
		c.etcd(p, st), c.apiServer(p, st), c.controllerManager(p, st), c.scheduler(p, st),
	} {
		s.path = c.Executable
		specs[s.name] = s
	}
	if st.Node != nil {
		for _, s := range c.nodeSpecs(p, st) {
			specs[s.name] = s
		}
	}
	return specs
}

// etcd does not wait for the disk: what survives a killed process is enough for a local cluster. The
// peer address is never dialled with a single member; port 0 keeps it from colliding with anything.
func (c *Cluster) etcd(p pki, st *state) spec {
	client, peer := st.local("https", portEtcd), "https://127.0.0.1:0"
	return spec{
		name: nameEtcd,
		args: []string{
			"--name=local",
			"--data-dir=" + filepath.Join(c.Dir, "etcd"),
			"--unsafe-no-fsync",
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=local=" + peer,
			"--client-cert-auth",
			"--trusted-ca-file=" + p.cert(caEtcd),
			"--cert-file=" + p.cert(certEtcd),
			"--key-file=" + p.key(certEtcd),
			"--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + p.cert(caEtcd),
			"--peer-cert-file=" + p.cert(certEtcd),
			"--peer-key-file=" + p.key(certEtcd),
			"--auto-compaction-mode=periodic",
			"--auto-compaction-retention=5m",
			"--log-level=warn",
		},
		inputs: []string{p.cert(caEtcd), p.cert(certEtcd)},
		probe:  probe{url: client + "/readyz", ca: caEtcd, cert: certEtcdClient},
	}
}

// apiServer publishes its own address as the endpoints of the kubernetes Service only when there is a node:
// without one it listens on the loopback interface, which is no valid endpoint.
func (c *Cluster) apiServer(p pki, st *state) spec {
	reconciler := "none"
	if st.Node != nil {
		reconciler = "lease"
	}
	return spec{
		name: nameAPIServer,
		// It keeps what describes every kind, some hundred MiB; as much again in garbage is more than a small machine has.
		// Who sets GOGC has other needs.
		env: []string{"GOGC=" + cmp.Or(os.Getenv("GOGC"), "50")},
		args: []string{
			"--bind-address=" + st.apiServerHost(),
			"--advertise-address=" + st.apiServerHost(),
			"--endpoint-reconciler-type=" + reconciler,
			fmt.Sprintf("--secure-port=%d", st.Ports[portAPIServer]),
			"--tls-cert-file=" + p.cert(certAPIServer),
			"--tls-private-key-file=" + p.key(certAPIServer),
			"--client-ca-file=" + p.cert(caCluster),
			"--etcd-servers=" + st.local("https", portEtcd),
			"--etcd-cafile=" + p.cert(caEtcd),
			"--etcd-certfile=" + p.cert(certEtcdClient),
			"--etcd-keyfile=" + p.key(certEtcdClient),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--service-cluster-ip-range=" + serviceRange,
			"--service-account-issuer=" + issuer,
			"--service-account-key-file=" + p.key(keyServiceAccounts),
			"--service-account-signing-key-file=" + p.key(keyServiceAccounts),
			"--requestheader-client-ca-file=" + p.cert(caFrontProxy),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + p.cert(certFrontProxy),
			"--proxy-client-key-file=" + p.key(certFrontProxy),
			"--kubelet-certificate-authority=" + p.cert(caCluster),
			"--kubelet-client-certificate=" + p.cert(certKubeletClient),
			"--kubelet-client-key=" + p.key(certKubeletClient),
			"--kubelet-preferred-address-types=InternalIP",
			"--profiling=false",
		},
		inputs: []string{
			p.cert(caCluster), p.cert(certAPIServer), p.cert(caEtcd), p.cert(certKubeletClient), p.key(keyServiceAccounts),
		},
		probe: probe{url: st.apiServerURL() + "/readyz", ca: caCluster, cert: certAdmin},
	}
}

// controllerManager answers /healthz before it has built a single controller, and ends itself when it
// cannot build one. A check named after a controller appears only once all of them are built.
func (c *Cluster) controllerManager(p pki, st *state) spec {
	s := c.client(nameControllerManager, portControllerManager, certControllerManager, p, st)
	s.args = append(s.args,
		"--use-service-account-credentials",
		"--service-account-private-key-file="+p.key(keyServiceAccounts),
		"--root-ca-file="+p.cert(caCluster),
		"--cluster-signing-cert-file="+p.cert(caCluster),
		"--cluster-signing-key-file="+p.key(caCluster),
	)
	s.inputs = append(s.inputs, p.key(keyServiceAccounts))
	s.probe.url += "/healthz?verbose"
	s.probe.want = "[+]serviceaccount-controller ok"
	return s
}

func (c *Cluster) scheduler(p pki, st *state) spec {
	s := c.client(nameScheduler, portScheduler, certScheduler, p, st)
	s.probe.url += "/readyz"
	return s
}

// client is what the components that work against the API server have in common. There is one of each,
// so none has to be elected.
func (c *Cluster) client(name, port, cert string, p pki, st *state) spec {
	config := c.componentKubeconfig(name)
	return spec{
		name: name,
		args: []string{
			"--kubeconfig=" + config,
			"--authentication-kubeconfig=" + config,
			"--authorization-kubeconfig=" + config,
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", st.Ports[port]),
			"--tls-cert-file=" + p.cert(cert),
			"--tls-private-key-file=" + p.key(cert),
			"--profiling=false",
		},
		inputs: []string{config, p.cert(cert)},
		probe:  probe{url: st.local("https", port), ca: caCluster, cert: certAdmin},
	}
}
