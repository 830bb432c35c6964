// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/testkit"
)

const patience = 60 * time.Second

// program is the real command, against the real API server.
type program struct {
	*testkit.Program
	t      *testing.T
	health string
	hooks  string
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	cluster := testkit.Start(t)
	define(t, cluster)
	port := testkit.FreePort(t)
	p := &program{t: t, health: fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)), hooks: fmt.Sprintf("127.0.0.1:%d", port)}
	p.Program = run(t, nil, append([]string{"manager",
		"--kubeconfig=" + cluster.Kubeconfig(), "--namespace=" + cluster.Namespace(t),
		"--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", port), fmt.Sprintf("--webhook-url=https://127.0.0.1:%d", port),
		"--health-probe-bind-address=" + p.health, "--metrics-bind-address=0",
	}, args...)...)
	return p
}

// run runs the command as a process of its own, with variables on top of the environment.
func run(t *testing.T, variables []string, args ...string) *testkit.Program {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asCommand+"=1"), variables...)
	p := testkit.RunProgram(t, "modelplane", cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the process wrote:\n%s", p.Output())
		}
	})
	return p
}

// define installs the kinds that controllers watch: without them a manager is
// right to complain.
func define(t *testing.T, cluster *testkit.Cluster) {
	t.Helper()
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Spec.Conversion == nil {
			cluster.InstallCRDs(t, crd)
		}
	}
}

func (p *program) ready() {
	p.t.Helper()
	testkit.Eventually(p.t, patience, "the process to be ready", func() error {
		select {
		case <-p.Ended():
			p.t.Fatalf("the process ended with %d", p.ExitCode(p.t, patience))
		default:
		}
		resp, err := http.Get("http://" + p.health + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// call opens a connection to the webhooks and says nothing.
func (p *program) call() net.Conn {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.hooks)
	if err != nil {
		p.t.Fatal(err)
	}
	return conn
}

func TestSignalStopsCleanly(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(s.String(), func(t *testing.T) {
			p := start(t, "--shutdown-delay=0s")
			p.ready()
			p.call().Close()       // leaves before the handshake
			defer p.call().Close() // is in the middle of it when the process stops
			p.Signal(t, s)
			if code := p.ExitCode(t, patience); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if log := p.Output(); !strings.Contains(log, `"msg":"Stopped"`) {
				t.Error("the log does not say that the process stopped")
			}
			if n := strings.Count(p.Output(), "\n"); n > 12 {
				t.Errorf("%d lines for a start and a stop, want the log to be quiet", n)
			}
			for line := range strings.Lines(p.Output()) {
				if !strings.HasPrefix(line, "{") {
					t.Errorf("a line that is not structured: %s", line)
				}
				if strings.Contains(line, `"level":"error"`) || strings.Contains(line, `"level":"warn"`) {
					t.Errorf("a healthy run complains: %s", line)
				}
			}
		})
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := start(t, "--shutdown-delay=10m", "--shutdown-timeout=20m")
	p.ready()
	p.Signal(t, syscall.SIGTERM)
	testkit.Eventually(t, patience, "the first signal to be noticed", func() error {
		resp, err := http.Get("http://" + p.health + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return errors.New("still ready")
		}
		return nil
	})
	begin := time.Now()
	p.Signal(t, syscall.SIGTERM)
	if code := p.ExitCode(t, patience); code != command.ExitFailed || time.Since(begin) > 5*time.Second {
		t.Errorf("exit code %d after %s, want %d at once", code, time.Since(begin), command.ExitFailed)
	}
}

func TestUnreadableKubeconfigIsAFailure(t *testing.T) {
	p := start(t, "--kubeconfig="+t.TempDir()+"/missing")
	if code := p.ExitCode(t, patience); code != command.ExitFailed {
		t.Errorf("exit code %d, want %d", code, command.ExitFailed)
	}
	if log := p.Output(); !strings.Contains(log, "kubeconfig") || strings.Count(log, "\n") != 1 {
		t.Errorf("the process wrote %q, want one line about the kubeconfig", log)
	}
}
