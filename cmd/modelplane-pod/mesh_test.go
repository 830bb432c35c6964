// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/testkit/freeport"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// TestAdaptersIdleSmall: the puller, the REST proxy and the agent, which does everything that it can, take little while they
// wait, and end when they are told to.
func TestAdaptersIdleSmall(t *testing.T) {
	binary := built(t)
	for command, variable := range map[string]string{
		"mesh-puller": "PORT", "mesh-rest": "REST_PROXY_LISTEN_PORT",
		"agent --enable-batcher --log-url http://127.0.0.1:1 --enable-puller --port": "",
	} {
		t.Run(command, func(t *testing.T) {
			port := freePort(t)
			args := strings.Fields(command)
			if variable == "" {
				variable = "UNUSED"
				args = append(args, fmt.Sprint(port))
			}
			cmd := exec.CommandContext(t.Context(), binary, args...)
			cmd.Env = append(os.Environ(), fmt.Sprint(variable, "=", port), "ROOT_MODEL_DIR="+t.TempDir(), "MODELPLANE_MODEL_DIR="+t.TempDir(),
				"MODELPLANE_SHUTDOWN_DELAY=0s", "MODELPLANE_LOG_LEVEL=error", fmt.Sprint("MODELPLANE_METRICS_BIND_ADDRESS=127.0.0.1:", freePort(t)))
			cmd.Stderr = os.Stderr
			if err := guard.Start(cmd); err != nil {
				t.Fatal(err)
			}
			waitFor(t, port)
			peak := peakKiB(t, cmd.Process.Pid)
			t.Logf("the process took %.1f MiB at most", float64(peak)/1024)
			if peak > most {
				t.Errorf("that is more than %d MiB", most>>10)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := guard.Wait(cmd); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// TestMeshIdlesSmall: a mesh without models takes little while it waits, with a real etcd, a runtime and its metrics. On a machine
// that is busy the program has more threads, and so some pages more; it may begin three times.
func TestMeshIdlesSmall(t *testing.T) {
	etcd, runtime := startEtcd(t), startRuntime(t)
	least := math.MaxInt
	for range 3 {
		if least = min(least, idleMesh(t, etcd, runtime)); least <= most {
			return
		}
	}
	t.Errorf("that is more than %d MiB, each time", most>>10)
}

// idleMesh starts a mesh, ends it, and tells what it took between.
func idleMesh(t *testing.T, etcd, runtime int) (now int) {
	t.Helper()
	probes, metrics := freePort(t), freePort(t)
	cmd := exec.CommandContext(t.Context(), built(t), "mesh")
	cmd.Env = append(os.Environ(), "MM_SERVICE_NAME=idle", fmt.Sprintf("KV_STORE=etcd:http://127.0.0.1:%d", etcd), "WKUBE_POD_NAME=idle-0",
		fmt.Sprint("INTERNAL_GRPC_PORT=", runtime), fmt.Sprint("MM_SVC_GRPC_PORT=", freePort(t)), fmt.Sprint("MM_PEER_PORT=", freePort(t)),
		fmt.Sprint("MM_PROBE_PORT=", probes), fmt.Sprint("MM_PRESTOP_WAIT_PORT=", freePort(t)), fmt.Sprintf("MM_METRICS=prometheus:port=%d;scheme=http", metrics),
		"SHUTDOWN_TIMEOUT_MS=0", "MODELPLANE_LOG_LEVEL=error")
	cmd.Stderr = os.Stderr
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	waitReady(t, fmt.Sprintf("http://127.0.0.1:%d/ready", probes))
	waitReady(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics))
	now = residentKiB(t, cmd.Process.Pid)
	pages := statusKiB(t, cmd.Process.Pid, "RssFile:") // of the program itself, which all pods of a node share
	t.Logf("the process takes %.1f MiB, %.1f of them pages of the program, and took %.1f MiB at most",
		float64(now)/1024, float64(pages)/1024, float64(peakKiB(t, cmd.Process.Pid))/1024)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := guard.Wait(cmd); err != nil {
		t.Errorf("it ended with %v", err)
	}
	return now
}

// startEtcd runs a real one, and tells its port.
func startEtcd(t *testing.T) int {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		assets = filepath.Join(cache, "modelplane", "local", "current")
	}
	port := freePort(t)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	cmd := exec.CommandContext(t.Context(), filepath.Join(assets, "etcd"), "--name=one", "--data-dir="+t.TempDir(), "--listen-client-urls="+client,
		"--advertise-client-urls="+client, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=one="+peer,
		"--log-level=error", "--unsafe-no-fsync")
	if err := guard.Start(cmd); err != nil {
		t.Fatalf("this test needs etcd, and %s has none: run `make test`, which builds it once (%v)", assets, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = guard.Wait(cmd)
	})
	return port
}

// idleRuntime has room for models and is never asked for one.
type idleRuntime struct {
	wire.UnimplementedModelRuntimeServer
}

func (idleRuntime) RuntimeStatus(context.Context, *wire.RuntimeStatusRequest) (*wire.RuntimeStatusResponse, error) {
	return &wire.RuntimeStatusResponse{
		Status: wire.RuntimeStatusResponse_READY, CapacityInBytes: 1 << 30, MaxLoadingConcurrency: 4, ModelLoadingTimeoutMs: 90_000, DefaultModelSizeInBytes: 1 << 20,
	}, nil
}

func startRuntime(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterModelRuntimeServer(server, idleRuntime{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().(*net.TCPAddr).Port
}

// waitReady returns when somebody answers well.
func waitReady(t *testing.T, url string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	pace := time.NewTicker(50 * time.Millisecond) // nobody asks more often
	defer pace.Stop()
	for {
		<-pace.C
		answer, err := http.Get(url)
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
			err = errors.New(answer.Status)
		}
		if time.Now().After(deadline) {
			t.Fatal(url, err)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	return freeport.At(t, "127.0.0.1")
}

// waitFor returns when somebody answers at the port.
func waitFor(t *testing.T, port int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		connection, err := net.DialTimeout("tcp", fmt.Sprint("localhost:", port), time.Second)
		if err == nil {
			_ = connection.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
