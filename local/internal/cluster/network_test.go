// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Addresses in the test's networks: a pod, a Service, and two machines that are neighbours.
const (
	testPod       = "10.244.0.9"
	testService   = "10.96.0.99"
	testMachine   = "192.0.2.1"
	testNeighbour = "192.0.2.2"
	testPort      = "8080"
)

// lab is a machine with a pod, and a neighbour, each in a network namespace of its own.
type lab struct {
	t                     *testing.T
	nft                   string
	machine, pod, another string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not tested: only root makes network namespaces")
	}
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("not tested: nft is not installed")
	}
	id := fmt.Sprintf("mp%d", os.Getpid())
	l := &lab{t: t, nft: nft, machine: id + "m", pod: id + "p", another: id + "n"}
	for _, ns := range []string{l.machine, l.pod, l.another} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("not tested: no network namespace can be made: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", ns).Run() }) // its interfaces go with it
	}
	l.run("", "ip", "-n", l.machine, "link", "add", "outside", "type", "veth", "peer", "name", "outside", "netns", l.another)
	l.run("", "ip", "-n", l.machine, "link", "add", "veth0a1b2c3d", "type", "veth", "peer", "name", "eth0", "netns", l.pod)
	l.run("", "ip", "-n", l.machine, "link", "add", link, "type", "bridge")
	for _, step := range []struct{ ns, args string }{
		{l.machine, "link set lo up"}, {l.machine, "link set outside up"}, {l.machine, "link set veth0a1b2c3d up"}, {l.machine, "link set " + link + " up"},
		{l.machine, "address add " + testMachine + "/24 dev outside"}, {l.machine, "address add " + nodeIP + "/32 dev " + link},
		{l.machine, "route add " + testPod + "/32 dev veth0a1b2c3d src " + nodeIP}, {l.machine, "route add " + serviceRange + " dev " + link + " src " + nodeIP},
		{l.another, "link set outside up"}, {l.another, "address add " + testNeighbour + "/24 dev outside"},
		{l.another, "route add " + podRange + " via " + testMachine}, {l.another, "route add " + serviceRange + " via " + testMachine},
		{l.pod, "link set lo up"}, {l.pod, "link set eth0 up"}, {l.pod, "address add " + testPod + "/32 dev eth0"},
		{l.pod, "route add " + nodeIP + "/32 dev eth0"}, {l.pod, "route add default via " + nodeIP},
	} {
		l.run("", "ip", append([]string{"-n", step.ns}, strings.Fields(step.args)...)...)
	}
	l.run("1\n", "ip", "netns", "exec", l.machine, "tee", forwardingSetting)
	// As kube-proxy would.
	l.load(fmt.Sprintf(`table ip proxy {
	chain in { type nat hook prerouting priority dstnat; ip daddr %[1]s dnat to %[2]s; }
	chain out { type nat hook output priority -100; ip daddr %[1]s dnat to %[2]s; }
}`, testService, testPod))
	return l
}

func (l *lab) run(stdin, name string, args ...string) {
	l.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func (l *lab) load(rules string) {
	l.t.Helper()
	l.run(rules, "ip", "netns", "exec", l.machine, l.nft, "-f", "-")
}

const (
	listenVariable = "MODELPLANE_TEST_LISTEN"
	dialVariable   = "MODELPLANE_TEST_DIAL"
)

// inside is this program in a namespace, as TestInside.
func (l *lab) inside(ctx context.Context, ns, variable, address string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", ns, os.Args[0], "-test.run=^TestInside$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+address)
	return cmd
}

// listen accepts connections until the test ends.
func (l *lab) listen(ns, address string) {
	l.t.Helper()
	cmd := l.inside(l.t.Context(), ns, listenVariable, address)
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Wait() }) // the end of the context killed it
	text := make([]byte, 1<<10)
	for seen := ""; !strings.Contains(seen, "listening"); {
		n, err := out.Read(text)
		if err != nil {
			l.t.Fatalf("%v after %q", err, seen)
		}
		seen += string(text[:n])
	}
}

func (l *lab) reaches(ns, address string) bool {
	return l.inside(l.t.Context(), ns, dialVariable, net.JoinHostPort(address, testPort)).Run() == nil
}

// TestInside is what runs in the namespaces.
func TestInside(t *testing.T) {
	if address := os.Getenv(dialVariable); address != "" {
		conn, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	address := os.Getenv(listenVariable)
	if address == "" {
		return
	}
	at, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, "listening")
	for {
		conn, err := at.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}

// TestNeighboursDoNotReachTheCluster: what another machine sends to the addresses of the cluster ends here; the machine and
// its pods reach each other and the world as before.
func TestNeighboursDoNotReachTheCluster(t *testing.T) {
	l := newLab(t)
	everywhere := net.JoinHostPort("0.0.0.0", testPort)
	for _, ns := range []string{l.machine, l.pod, l.another} {
		l.listen(ns, everywhere)
	}
	check := func(when string, neighbour bool) {
		t.Helper()
		for _, way := range []struct {
			from, to string
			want     bool
		}{
			{l.machine, testPod, true}, {l.machine, testService, true}, {l.machine, nodeIP, true}, {l.machine, "127.0.0.1", true},
			{l.pod, nodeIP, true},
			{l.another, testMachine, true}, {l.another, testPod, neighbour}, {l.another, testService, neighbour}, {l.another, nodeIP, neighbour},
		} {
			if got := l.reaches(way.from, way.to); got != way.want {
				t.Errorf("%s: %s reaches %s: %v", when, way.from, way.to, got)
			}
		}
	}
	check("without the rules", true)
	l.load(rules)
	check("with the rules", false)
	if !l.reaches(l.pod, testNeighbour) {
		t.Error("a pod does not reach what is outside")
	}
}
