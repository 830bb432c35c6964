// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/testkit/guard"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib/orttest"
)

// TestMain lets the test program be the server, so that a test can send it signals.
func TestMain(m *testing.M) {
	if os.Getenv("MODELPLANE_ONNX_TEST_SERVER") == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	o, err := Parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = Run(ctx, o, func(a Addresses) { fmt.Fprintln(os.Stdout, a.HTTP, a.GRPC, a.Management) })
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is how long a test waits for what must happen.
const patience = time.Minute

// eventually asks again until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// rounds makes the slow model take between one and a few seconds.
const rounds = 30000

func slowBody(rounds int) string {
	return fmt.Sprintf(`{"inputs":[{"name":"rounds","datatype":"INT64","shape":[1],"data":[%d]}]}`, rounds)
}

// send posts without waiting for the answer.
func (r *running) send(body string) chan string {
	answer := make(chan string, 1)
	go func() {
		response, err := http.Post(r.http+"/v2/models/slow/infer", "application/json", strings.NewReader(body))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		answer <- fmt.Sprint(response.StatusCode, " ", string(text), " ", err)
	}()
	return answer
}

const slowAnswer = `200 {"model_name":"slow","model_version":"1","outputs":[{"name":"result","datatype":"FP32","shape":[1],"data":[128]}]} <nil>`

func expect(t *testing.T, answer chan string) {
	t.Helper()
	select {
	case got := <-answer:
		if got != slowAnswer {
			t.Errorf("answered %s\nwant %s", got, slowAnswer)
		}
	case <-time.After(patience):
		t.Error("there is no answer")
	}
}

// busy waits until the one worker of a server is at its first request.
func (r *running) busy(t *testing.T) {
	t.Helper()
	eventually(t, "the model to be busy", func() bool {
		return strings.Contains(r.get(t, "/metrics"), `modelplane_onnx_queue_duration_seconds_count{model="slow"} 1`)
	})
}

// TestQueueFull fills the queue; who comes then is sent away at once, and who waits is answered.
func TestQueueFull(t *testing.T) {
	s := startTest(t, "slow", "--workers=1", "--queue_size=1")
	first := s.send(slowBody(rounds))
	s.busy(t)
	second := s.send(slowBody(1))
	eventually(t, "a request to wait", func() bool {
		return strings.Contains(s.get(t, "/metrics"), `modelplane_onnx_queue_length{model="slow"} 1`)
	})
	response, err := http.Post(s.http+"/v2/models/slow/infer", "application/json", strings.NewReader(slowBody(1)))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
		t.Errorf("a request too many: %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	_, err = s.client(t).ModelInfer(t.Context(), &pb.ModelInferRequest{ModelName: "slow", Inputs: []*pb.ModelInferRequest_InferInputTensor{{
		Name: "rounds", Datatype: "INT64", Shape: []int64{1}, Contents: &pb.InferTensorContents{Int64Contents: []int64{1}},
	}}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request too many over gRPC: %v", err)
	}
	expect(t, first)
	expect(t, second)
}

// closes tells whether the server wants a connection closed after an answer.
func (r *running) closes(t *testing.T) bool {
	t.Helper()
	response, err := http.Get(r.http + "/v2/health/live")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.Close
}

// TestDrain sends SIGTERM to a real process in the middle of a request.
func TestDrain(t *testing.T) {
	orttest.Need(t)
	library, err := ortlib.Find()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--model_name=slow", "--model_dir="+filepath.Join(testdata, "slow.onnx"),
		"--http_port=0", "--grpc_port=0", "--workers=1", "--drain_delay=5s", "--drain_timeout=60s", "--ort_library="+library)
	cmd.Env = append(os.Environ(), "MODELPLANE_ONNX_TEST_SERVER=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s := &running{http: "http://" + strings.Fields(address)[0]}
	if s.closes(t) {
		t.Error("the server closes connections although it has time")
	}
	first := s.send(slowBody(rounds))
	s.busy(t)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server to say that it is not ready", func() bool {
		return strings.Contains(s.get(t, "/v2/health/ready"), `{"ready":false}`)
	})
	second := s.send(slowBody(1)) // by one who has not heard of it yet; it waits for the first, maybe longer than the delay
	if !s.closes(t) {
		t.Error("a draining server keeps connections")
	}
	expect(t, first)
	expect(t, second)
	if err := guard.Wait(cmd); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--workers=0":           "--workers is 0; it must be at least 1",
		"--queue_size=0":        "--queue_size is 0",
		"--max_pending_bytes=1": "--max_pending_bytes is 1; it must be at least 67108864",
		"--model_name=":         "--model_name is empty",
		"extra":                 `"extra" is not expected`,
		"--nonsense=1":          "nonsense",
	} {
		var said strings.Builder
		if _, err := Parse([]string{args}, &said); err == nil || !strings.Contains(err.Error(), want) || said.Len() > 0 {
			t.Errorf("%s: %v and %q, want %s", args, err, said.String(), want)
		}
	}
	var help strings.Builder
	if _, err := Parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-queue_size") {
		t.Errorf("--help: %v and %q", err, help.String())
	}
}
