// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

const (
	modelPath = "/v1/models/bench:predict"
	host      = "bench-default.example.com" // by which Envoy knows the model
)

// prediction is what the server says to everybody.
var prediction = []byte(`{"predictions":[[0.02,0.91,0.07]]}`)

// serverProcess answers at once, until its standard input ends.
func serverProcess(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(prediction)
	})}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bed is where processes run.
type bed struct {
	testing.TB
	self string
	port int // of the server
}

func (o options) measure(t testing.TB, self string) *report {
	t.Helper()
	b := &bed{TB: t, self: self, port: testkit.FreePort(t)}
	b.server()
	port := testkit.FreePort(t)
	envoy := testkit.RunProgram(t, "envoy", b.envoy(o.envoy, port))
	direct := target{url: address(b.port) + modelPath, body: question(o.payload), answer: prediction}
	through := direct
	through.url, through.host = address(port)+modelPath, host
	b.waitAnswer(envoy, through)
	idle, _, err := envoy.Memory()
	if err != nil {
		t.Fatal(err)
	}
	o.say("measuring")
	r, err := o.compare(t.Context(), direct, through)
	if err != nil {
		t.Fatalf("%v\n%s", err, envoy.Output())
	}
	r.IdleMiB = idle
	if _, r.PeakMiB, err = envoy.Memory(); err != nil {
		t.Fatal(err)
	}
	return r
}

// question is as long as was asked for, about.
func question(payload int) []byte {
	row := []byte("[5.1,3.5,1.4,0.2]")
	rows := bytes.Repeat(append(row, ','), max(1, payload/len(row)))
	return fmt.Appendf(nil, `{"instances":[%s]}`, rows[:len(rows)-1])
}

func address(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// server runs this program once more.
func (b *bed) server() {
	b.Helper()
	cmd := exec.Command(b.self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=127.0.0.1:%d", serverVariable, b.port))
	if _, err := cmd.StdinPipe(); err != nil { // it ends when this closes
		b.Fatal(err)
	}
	b.waitAnswer(testkit.RunProgram(b, "server", cmd), target{url: address(b.port) + modelPath, answer: prediction})
}

// waitAnswer waits for the right one.
func (b *bed) waitAnswer(program *testkit.Program, t target) {
	b.Helper()
	client := newClient(1)
	defer client.CloseIdleConnections()
	testkit.Eventually(b, time.Minute, program.Name+" to answer", func() error {
		select {
		case <-program.Ended():
			b.Fatalf("%s has ended:\n%s", program.Name, program.Output())
		default:
		}
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		return t.ask(ctx, client)
	})
}

// envoy runs with the configuration that Envoy Gateway makes of one of our HTTPRoutes, as far as it costs time.
func (b *bed) envoy(program string, port int) *exec.Cmd {
	b.Helper()
	if program == "" {
		root, err := checkout.Dir()
		if err != nil {
			b.Fatal(err)
		}
		find := exec.CommandContext(b.Context(), "go", "run", "./hack/envoy", "binary")
		find.Dir, find.Stderr = root, os.Stderr
		out, err := find.Output()
		if err != nil {
			b.Fatalf("no Envoy: %v; name one with -envoy", err)
		}
		program = strings.TrimSpace(string(out))
	}
	config, err := json.Marshal(bootstrap(port, b.port))
	path := filepath.Join(b.TempDir(), "envoy.json")
	if err := errors.Join(err, os.WriteFile(path, config, 0o600)); err != nil {
		b.Fatal(err)
	}
	return exec.Command(program, "--config-path", path, "--log-level", "warn", "--use-dynamic-base-id")
}
