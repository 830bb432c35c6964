// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/testkit"
)

// The variables by which the test binary becomes a replica of the activator or a pod.
const (
	asReplica = "MODELPLANE_TEST_REPLICA"
	asPod     = "MODELPLANE_TEST_POD"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asReplica) != "":
		os.Exit(code(beReplica(os.Getenv(asReplica))))
	case os.Getenv(asPod) != "":
		os.Exit(code(bePod(os.Getenv(asPod))))
	}
	testkit.Main(m, testkit.Parallel(5))
}

func code(err error) int {
	if err != nil {
		slog.Error(err.Error())
		return 1
	}
	return 0
}

// replicaOptions are Options as they are handed to a process.
type replicaOptions struct {
	Options
	Kubeconfig string
	// Faults is how likely each way is in which a call to the API server fails, Dies after how many writes the process ends
	// without having heard the answer to the last; 0: never.
	Faults float64
	Dies   int
}

// encode leaves out what the process makes itself.
func (o replicaOptions) encode() ([]byte, error) {
	return json.Marshal(map[string]any{"Namespace": o.Namespace, "Service": o.Service, "Name": o.Name, "Address": o.Address,
		"WatchNamespaces": o.WatchNamespaces, "Listen": o.Listen, "Peers": o.Peers, "Health": o.Health, "Metrics": o.Metrics,
		"Hold": o.Hold, "PerService": o.PerService, "Total": o.Total, "Delay": o.Delay, "Timeout": o.Timeout, "Kubeconfig": o.Kubeconfig,
		"Faults": o.Faults, "Dies": o.Dies,
		"Window": o.Window, "Panic": o.Panic, "Idle": o.Idle, "DownDelay": o.DownDelay})
}

func beReplica(text string) error {
	var o replicaOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	if o.Faults > 0 {
		faults := testkit.NewFaults(5)
		for _, how := range []testkit.Fault{testkit.InternalError, testkit.Conflict, testkit.ClosedBefore, testkit.ClosedAfter} {
			faults.Add(testkit.Rule{Fault: how, Probability: o.Faults, Targets: []string{"apps/deployments/scale", "services", "discovery.k8s.io/endpointslices"}})
		}
		cfg = faults.Wrap(cfg)
	}
	if o.Dies > 0 {
		killer := testkit.NewWriteKiller(o.Dies)
		cfg = killer.Wrap(cfg)
		go func() {
			<-killer.Killed()
			os.Exit(killed)
		}()
	}
	o.Kube, o.Log = cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, stop := process.UntilSignal(context.Background())
	defer stop()
	return Run(ctx, o.Options)
}

// killed is what a process that dies ends with.
const killed = 137

// bePod is a model server without manners: whoever ends it loses what it was doing. It tells how many requests it had at
// a time.
func bePod(address string) error {
	var now, most atomic.Int64
	speaks := new(http.Protocols)
	speaks.SetHTTP1(true)
	speaks.SetUnencryptedHTTP2(true)
	calls := grpc.NewServer()
	healthpb.RegisterHealthServer(calls, health.NewServer())
	return (&http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Protocols: speaks, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isGRPC(r) {
			calls.ServeHTTP(w, r)
			return
		}
		n := now.Add(1)
		defer now.Add(-1)
		most.Store(max(most.Load(), n))
		if d, err := time.ParseDuration(r.Header.Get("Work")); err == nil {
			<-time.After(d)
		}
		w.Header().Set("Most", strconv.FormatInt(most.Load(), 10))
		_, _ = fmt.Fprint(w, address)
	})}).ListenAndServe()
}

// become runs the test binary as something else.
func become(t testing.TB, name, variable, value string) *testkit.Program {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+value)
	return testkit.RunProgram(t, name, cmd)
}
