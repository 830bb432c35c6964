// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/etcd"
)

// bed is a mesh of our own: a real etcd, and processes of the mesh with a runtime beside each.
type bed struct {
	etcd       *etcd.Server
	options    bedOptions
	connection string // file that says where etcd is
	nodes      []*node
}

// node is what a pod would be.
type node struct {
	id, probes    string
	mesh, runtime *testkit.Program
	// calls and direct are connections to the mesh and, past it, to the runtime.
	calls, direct *grpc.ClientConn
}

// Every model weighs the same.
const (
	modelBytes = 1 << 20
	loadTime   = 5 * time.Millisecond
)

// bedOptions are how a mesh is to be.
type bedOptions struct {
	processes int
	// service is the name of the mesh, root where its keys begin in etcd, and models how many a runtime holds.
	service, root string
	models        int
	// round is how often the leader looks after all models; 0: as often as in a pod.
	round time.Duration
}

// newBed starts everything; self is this program, which is also the runtime.
func newBed(t testing.TB, self, binary string, o bedOptions) *bed {
	t.Helper()
	b := &bed{etcd: etcd.Start(t), options: o, connection: filepath.Join(t.TempDir(), "etcd_connection")}
	if err := os.WriteFile(b.connection, b.etcd.Secret(o.root)["etcd_connection"], 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range o.processes {
		b.nodes = append(b.nodes, b.start(t, self, binary, n))
	}
	for _, n := range b.nodes {
		n.waitReady(t)
	}
	return b
}

func (b *bed) start(t testing.TB, self, binary string, number int) *node {
	t.Helper()
	port := func() string { return strconv.Itoa(testkit.FreePort(t)) }
	n := &node{id: fmt.Sprintf("bench0-%05d", number), probes: port()}
	runtime, calls := port(), port()

	beside := exec.Command(self)
	beside.Env = append(os.Environ(), fmt.Sprintf("%s=%d@127.0.0.1:%s", runtimeVariable, b.options.models, runtime))
	if _, err := beside.StdinPipe(); err != nil { // it ends when this closes
		t.Fatal(err)
	}
	n.runtime = testkit.RunProgram(t, fmt.Sprint("runtime-", number), beside)

	mesh := exec.Command(binary, "mesh")
	mesh.Env = append(os.Environ(), "MM_SERVICE_NAME="+b.options.service, "MM_KVSTORE_PREFIX=mm", "KV_STORE=etcd:"+b.connection,
		"WKUBE_POD_NAME=bench-"+n.id, "WKUBE_POD_IPADDR=127.0.0.1", "MM_LOCATION=127.0.0.1", "MM_METRICS=disabled",
		"MM_SVC_GRPC_PORT="+calls, "MM_PEER_PORT="+port(), "MM_PROBE_PORT="+n.probes, "MM_PRESTOP_WAIT_PORT="+port(), "INTERNAL_GRPC_PORT="+runtime)
	if b.options.round > 0 {
		mesh.Env = append(mesh.Env, "MM_REAPER_PERIOD="+b.options.round.String())
	}
	n.mesh = testkit.RunProgram(t, fmt.Sprint("mesh-", number), mesh)
	connections, err := dial("127.0.0.1:"+calls, "127.0.0.1:"+runtime)
	if err != nil {
		t.Fatal(err)
	}
	n.calls, n.direct = connections[0], connections[1]
	t.Cleanup(func() {
		_ = n.calls.Close()
		_ = n.direct.Close()
	})
	return n
}

func (n *node) waitReady(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, time.Minute, n.id+" to be ready", func() error {
		select {
		case <-n.mesh.Ended():
			t.Fatalf("the mesh has ended:\n%s", n.mesh.Output())
		default:
		}
		return ready(t.Context(), "http://127.0.0.1:"+n.probes+"/ready")
	})
}

func ready(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// callsOf are connections to some processes of the mesh.
func callsOf(nodes []*node) []*grpc.ClientConn {
	var list []*grpc.ClientConn
	for _, n := range nodes {
		list = append(list, n.calls)
	}
	return list
}
