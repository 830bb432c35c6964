// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
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
				"MODELPLANE_SHUTDOWN_DELAY=0s", "MODELPLANE_LOG_LEVEL=error")
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
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
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
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
