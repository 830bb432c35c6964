// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// graphRouter starts the router as a pod does, with KServe's flags, and returns its port.
func graphRouter(t *testing.T, graph string, more ...string) (*exec.Cmd, int) {
	t.Helper()
	port := freePort(t)
	cmd := exec.CommandContext(t.Context(), built(t), append([]string{"router", "--graph-json", graph}, more...)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("MODELPLANE_BIND_ADDRESS=127.0.0.1:%d", port), "MODELPLANE_METRICS_BIND_ADDRESS=0",
		"MODELPLANE_SHUTDOWN_DELAY=0s", "MODELPLANE_LOG_LEVEL=error")
	cmd.Stderr = os.Stderr
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	waitFor(t, port)
	return cmd, port
}

// TestRouterIdlesSmall: the router of a graph takes little while it waits, and ends when it is told to.
func TestRouterIdlesSmall(t *testing.T) {
	cmd, _ := graphRouter(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"http://127.0.0.1:1"}]}},"resources":{}}`)
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
}

// TestRouterUnderLargeBodies: many clients send and get more than there is room for. They are told, and memory stays
// bounded.
func TestRouterUnderLargeBodies(t *testing.T) {
	const size, pending, clients = 4 << 20, 32 << 20, 48
	large := append(append([]byte(`{"x":"`), bytes.Repeat([]byte("a"), size-8)...), `"}`...)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = w.Write(large)
	}))
	defer service.Close()
	graph := strings.ReplaceAll(`{"nodes":{"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"URL"},{"name":"b","serviceUrl":"URL"}]}}}`, "URL", service.URL)
	cmd, port := graphRouter(t, graph, fmt.Sprint("--max-pending-bytes=", pending), fmt.Sprint("--max-body-bytes=", size))
	var all sync.WaitGroup
	var answered, refused atomic.Int64
	for range clients {
		all.Go(func() {
			response, err := http.Post(fmt.Sprint("http://127.0.0.1:", port), "application/json", bytes.NewReader(large))
			if err != nil {
				refused.Add(1) // while it was sending
				return
			}
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body)
			if response.StatusCode == http.StatusOK {
				answered.Add(1)
			} else {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	peak := peakKiB(t, cmd.Process.Pid)
	t.Logf("%d requests of %d MiB were answered and %d refused; the process took %.1f MiB at most", answered.Load(), size>>20, refused.Load(), float64(peak)/1024)
	// What is collected later, and what sockets and buffers take, comes on top.
	if limit := 3*(pending>>10) + most; peak > limit {
		t.Errorf("that is more than %d MiB", limit>>10)
	}
	if answered.Load() == 0 || answered.Load()+refused.Load() != clients {
		t.Error("nobody was answered, or somebody got lost")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := guard.Wait(cmd); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestRouterWithoutGraph: like the known router it ends with 1.
func TestRouterWithoutGraph(t *testing.T) {
	for graph, want := range map[string]string{"": "--graph-json is empty", "{": "--graph-json is no InferenceGraph"} {
		var stderr bytes.Buffer
		if code := command.Execute(newRoot(), []string{"router", "--graph-json", graph}, &stderr); code != command.ExitFailed || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: exit code %d, %s", graph, code, &stderr)
		}
	}
}
