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
}

// encode leaves out what the process makes itself.
func (o replicaOptions) encode() ([]byte, error) {
	return json.Marshal(map[string]any{"Namespace": o.Namespace, "Service": o.Service, "Name": o.Name, "Address": o.Address,
		"WatchNamespaces": o.WatchNamespaces, "Listen": o.Listen, "Peers": o.Peers, "Health": o.Health, "Metrics": o.Metrics,
		"Hold": o.Hold, "PerService": o.PerService, "Total": o.Total, "Delay": o.Delay, "Timeout": o.Timeout, "Kubeconfig": o.Kubeconfig,
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
	o.Kube, o.Log = cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, stop := process.UntilSignal(context.Background())
	defer stop()
	return Run(ctx, o.Options)
}

// bePod is a model server without manners: whoever ends it loses what it was doing. It tells how many requests it had at
// a time.
func bePod(address string) error {
	var now, most atomic.Int64
	return (&http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
