// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// link is the interface that carries the node's address. It is a bridge with nothing on it, because
	// every kernel that runs containers has bridges.
	link = "modelplane0"
	// table holds the rules that let pods reach what is outside of the cluster, and nobody there reach them.
	table = "modelplane-local"
	// proxyTable is the table that kube-proxy makes, in both families; its name is fixed.
	proxyTable        = "kube-proxy"
	cniNetwork        = "modelplane-local"
	forwardingSetting = "/proc/sys/net/ipv4/ip_forward"
)

// ensureNetwork gives the node its address, and pods a way out. Doing it again changes nothing, so that it
// also repairs what a restart of the machine took away.
func (b *bringUp) ensureNetwork(ctx context.Context) error {
	if err := b.claimLink(ctx); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", link, "up", "alias", b.Dir},
		{"address", "replace", nodeIP + "/32", "dev", link},
		// Without it, a machine that is offline has no route to a Service.
		{"route", "replace", serviceRange, "dev", link, "src", nodeIP},
		// The address of a pod that is gone must not lead out of the machine.
		{"route", "replace", "unreachable", podRange},
	} {
		if _, err := tool(ctx, "", "ip", args...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(forwardingSetting, []byte("1\n"), 0o644); err != nil {
		return err
	}
	_, err := tool(ctx, rules, "nft", "-f", "-")
	return err
}

// rules make the whole table anew in one step.
//
// A machine that forwards packets for pods also forwards those of its neighbours: whoever is in the same network and sends
// the cluster's addresses here would reach pods, Services and the node. Such packets are dropped where they come in, before
// kube-proxy replaces the address of a Service. Answers to what pods asked outside still have the machine's own address
// then, and what the machine itself sends does not come in at all.
var rules = fmt.Sprintf(`table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
	chain incoming {
		type filter hook prerouting priority mangle; policy accept;
		iifname "lo" accept
		iifname "%[4]s" accept
		iifname "veth*" accept
		ip daddr { %[2]s, %[3]s } drop
	}
	chain outgoing {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[2]s ip daddr != { %[2]s, %[3]s } masquerade
	}
}
`, table, podRange, serviceRange, link)

// claimLink makes the interface. Its description names the cluster it belongs to: a machine can be the node
// of one cluster only, because kube-proxy's rules and the pods' control groups have fixed names.
func (b *bringUp) claimLink(ctx context.Context) error {
	_, err := linkOwner()
	if errors.Is(err, os.ErrNotExist) {
		_, err = tool(ctx, "", "ip", "link", "add", link, "type", "bridge")
		return err
	}
	if err != nil {
		return err
	}
	if owner := b.nodeOf(); owner != "" {
		return fmt.Errorf("this machine is the node of the cluster in %[1]s already; end that one first: modelplane-local down --dir %[1]s", owner)
	}
	return nil
}

func linkOwner() (string, error) {
	alias, err := os.ReadFile(filepath.Join("/sys/class/net", link, "ifalias"))
	return strings.TrimSpace(string(alias)), err
}

// removeNetwork takes away what ensureNetwork and kube-proxy made.
func (c *Cluster) removeNetwork(ctx context.Context, n *nodeState) error {
	var failed error
	if _, err := linkOwner(); err == nil {
		_, err := tool(ctx, "", "ip", "link", "delete", link)
		failed = errors.Join(failed, err)
		// The routes over the interface went with it.
		_, _ = tool(ctx, "", "ip", "route", "delete", "unreachable", podRange)
	}
	for _, t := range []string{"ip " + table, "ip " + proxyTable, "ip6 " + proxyTable} {
		// Deleting through a declaration is no error when there is none.
		_, err := tool(ctx, fmt.Sprintf("table %[1]s\ndelete table %[1]s\n", t), "nft", "-f", "-")
		failed = errors.Join(failed, err)
	}
	if n.Forwarding == "0" {
		failed = errors.Join(failed, os.WriteFile(forwardingSetting, []byte("0\n"), 0o644))
	}
	return failed
}

// tool runs a program of the machine and returns what it printed.
func tool(ctx context.Context, stdin, name string, args ...string) (string, error) {
	path := findTools()[name]
	if path == "" {
		return "", fmt.Errorf("%s is not installed", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "PATH="+toolPath)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}
