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
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/process/command/commandtest"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// asCommand makes the test binary behave as modelplane-pod itself, for tests that need a process.
const asCommand = "TEST_AS_MODELPLANE_POD"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	code := m.Run()
	if made != "" {
		_ = os.RemoveAll(made) // what stays is below the system's own directory for such things
	}
	os.Exit(code)
}

func TestWrongCallsAreOneLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, `modelplane-pod: unknown command "nonsense"`},
		{[]string{"storage-initializer"}, "0 arguments are no pairs"},
		{[]string{"storage-initializer", "s3://a/b"}, "1 arguments are no pairs"},
		{[]string{"storage-initializer", "a", "b", "--max-size=much"}, `--max-size "much" is no size`},
		{[]string{"storage-initializer", "a", "b", "--parallel=0"}, "--parallel must be from 1 to 256"},
		{[]string{"storage-initializer", "a", "b", "--log-level=loud"}, "--log-level"},
		{[]string{"mesh"}, "MM_SERVICE_NAME is not set"},
		{[]string{"mesh-stop", "now"}, `invalid argument "now"`},
		{arguments([]string{"/opt/kserve/mmesh/stop.sh", "now"}), `invalid argument "now"`},
		{arguments([]string{"/opt/app/puller", "--pulls=0"}), "--pulls and --parallel must be from 1 to 256"},
		{[]string{"mesh-puller", "--pulls=0"}, "--pulls and --parallel must be from 1 to 256"},
		{[]string{"mesh-puller", "x"}, `unknown command "x"`},
		{[]string{"mesh-rest", "--max-pending-bytes=1"}, "--max-pending-bytes must be at least"},
		{[]string{"agent", "--max-batchsize=none"}, `--max-batchsize is "none"`},
		{[]string{"agent", "--log-url", "s3a://b"}, "cannot be written to s3a:// addresses"},
		{[]string{"router", "--max-requests=0"}, "--max-requests at least 1"},
		{[]string{"router", "--unknown"}, "unknown flag: --unknown"},
		{[]string{"qpext", "--log-level=loud"}, "--log-level"},
		{[]string{"version", "--output=xml"}, "--output"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) { commandtest.WrongCall(t, newRoot(), c.args, c.want) })
	}
}

// TestNoKubernetes: what is paid for once per pod brings no Kubernetes client along, no templates of pages, for whose sake the
// linker would keep every method of every type, and no profiles; and what all programs share brings no gRPC.
func TestNoKubernetes(t *testing.T) {
	for pkg, also := range map[string][]string{
		".": {"html/template", "net/http/pprof"}, "github.com/modelplane/modelplane/internal/process/...": {"google.golang.org/grpc"},
		"github.com/modelplane/modelplane/internal/fetch/initializer": {"google.golang.org/grpc"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-tags", tags, "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.FieldsSeq(string(out)) {
			for _, unwanted := range append([]string{"k8s.io/", "sigs.k8s.io/", "github.com/go-logr/", "helm.sh/"}, also...) {
				if strings.HasPrefix(dep, unwanted) {
					t.Errorf("%s needs %s", pkg, dep)
				}
			}
		}
	}
}

// tags are those with which the image is built.
const tags = "grpcnotrace"

// build makes the program as the image has it, once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "modelplane-pod")
	if err != nil {
		return "", err
	}
	made = dir
	binary := filepath.Join(dir, "modelplane-pod")
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", "-s -w", "-o", binary, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
})

// made is the directory that TestMain removes.
var made string

func built(t *testing.T) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// most is what the process may take while it waits.
const most = 20 << 10 // KiB

// TestIdlesSmall starts the program as the image has it, lets it wait for a server in the middle of a download, and looks
// at the most memory that it ever had. Then the signal to stop ends it with a reason.
func TestIdlesSmall(t *testing.T) {
	binary := built(t)
	const model = 8 << 20
	half, never := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(model))
		if req.Method == http.MethodHead {
			return
		}
		_, _ = w.Write(make([]byte, model/2))
		w.(http.Flusher).Flush()
		close(half)
		<-never
	}))
	defer server.Close()
	defer close(never)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "storage-initializer", "--progress-every=0", server.URL+"/model.onnx", t.TempDir())
	cmd.Stderr = &stderr
	began := time.Now()
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	<-half
	t.Logf("half a model of %d MiB after %s", model>>20, time.Since(began))
	peak := peakKiB(t, cmd.Process.Pid)
	t.Logf("the process took %.1f MiB at most", float64(peak)/1024)
	if peak > most {
		t.Errorf("that is more than %d MiB", most>>10)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = guard.Wait(cmd)
	if code := cmd.ProcessState.ExitCode(); code != command.ExitFailed || !strings.Contains(stderr.String(), "stopped before it was done") {
		t.Errorf("exit code %d, log:\n%s", code, &stderr)
	}
}

// peakKiB is the most memory that a process had, residentKiB what it has.
func peakKiB(t *testing.T, pid int) int     { return statusKiB(t, pid, "VmHWM:") }
func residentKiB(t *testing.T, pid int) int { return statusKiB(t, pid, "VmRSS:") }

func statusKiB(t *testing.T, pid int, line string) (kib int) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("this system does not tell how much memory a process takes")
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), line)
	if _, err := fmt.Sscan(after, &kib); !found || err != nil {
		t.Fatalf("no %s in\n%s", line, text)
	}
	return kib
}
