// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/testkit/guard"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib/orttest"
)

const (
	mib = 1 << 20
	// pending is the budget in these tests. Default requests are so large that two fill it.
	pending = 128 * mib
)

// apart is a server in a process of its own, whose memory can be measured.
type apart struct {
	*running
	pid    int
	before int64
}

func startApart(t *testing.T, model string) *apart {
	t.Helper()
	return startApartWith(t, "--model_name="+model, "--model_dir="+filepath.Join(testdata, model+".onnx"), fmt.Sprintf("--max_pending_bytes=%d", pending))
}

func startApartWith(t *testing.T, args ...string) *apart {
	t.Helper()
	library := orttest.Library(t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Args[0], append(args, "--http_port=0", "--grpc_port=0", "--ort_library="+library, "--client_timeout=2s")...)
	cmd.Env = append(os.Environ(), "MODELPLANE_ONNX_TEST_SERVER=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = guard.Wait(cmd) // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	at := strings.Fields(line)
	if err != nil || len(at) != 3 {
		t.Fatalf("%q %v", line, err)
	}
	s := &apart{running: &running{http: "http://" + local(at[0]), grpc: local(at[1]), management: at[2]}, pid: cmd.Process.Pid}
	s.before = s.peak(t)
	return s
}

// local makes an address that listens everywhere one of this machine.
func local(address string) string { return strings.Replace(address, "[::]", "127.0.0.1", 1) }

// peak is the most memory that the process ever had.
func (s *apart) peak(t *testing.T) int64 { return s.memory(t, "VmHWM:") }

// memory is what the kernel says about the process.
func (s *apart) memory(t *testing.T, what string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), what)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// stays checks that the process never took much more than its budget, and still answers.
func (s *apart) stays(t *testing.T, infer string) {
	t.Helper()
	eventually(t, "the server to answer again", func() bool {
		code, _ := s.post(t, infer, `{"inputs":[{"name":"index","datatype":"INT64","shape":[1],"data":[1]}]}`)
		return code == http.StatusOK
	})
	grown := s.peak(t) - s.before
	t.Logf("%d MiB more than the %d MiB before, for a budget of %d MiB", grown/mib, s.before/mib, pending/mib)
	// Go's limit is a soft one, and buffers of connections and ONNX Runtime are not in it. Without a budget these tests take gigabytes.
	if most := int64(pending + 2*besides); grown > most {
		t.Errorf("the process took %d MiB more than before; its budget allows %d", grown/mib, most/mib)
	}
}

const lookupInfer = "/v2/models/lookup/infer"

// TestMemoryOfJSON sends what is small as JSON and large in memory.
func TestMemoryOfJSON(t *testing.T) {
	const size = 30 * mib
	fill := func(before, unit, after string) string {
		return before + strings.Repeat(unit+",", size/(len(unit)+1)) + unit + after
	}
	s := startApart(t, "lookup")
	for _, test := range []struct {
		name, path, body string
		code             int
	}{
		{"inputs", lookupInfer, fill(`{"inputs":[`, `{}`, `]}`), 413},
		{"outputs", lookupInfer, fill(`{"outputs":[`, `{}`, `]}`), 413},
		{"dimensions", lookupInfer, fill(`{"inputs":[{"shape":[`, `1`, `]}]}`), 413},
		{"a name", lookupInfer, `{"inputs":[{"name":"` + strings.Repeat("x", size) + `"}]}`, 413},
		{"an id", lookupInfer, `{"id":"` + strings.Repeat("x", size) + `"}`, 413},
		{"texts", lookupInfer, fill(`{"inputs":[{"name":"index","datatype":"BYTES","shape":[1],"data":[`, `""`, `]}]}`), 413},
		{"rows", "/v1/models/lookup:predict", fill(`{"instances":[`, `{}`, `]}`), 400},
		{"members", "/v1/models/lookup:predict", fill(`{"instances":[{"index":1`, `,"x":1`, `}]}`), 400},
	} {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				code, text := s.post(t, test.path, test.body)
				if code != test.code && code != http.StatusTooManyRequests {
					t.Errorf("%s: %d %.200s", test.name, code, text)
				}
			})
		}
		all.Wait()
	}
	s.stays(t, lookupInfer)
}

// endless is a message of a certain length whose content is made while it is read.
func endless(length int) io.Reader {
	head := binary.BigEndian.AppendUint32([]byte{0}, 0)
	head = protowire.AppendTag(head, 7, protowire.BytesType) // raw_input_contents
	head = protowire.AppendVarint(head, uint64(length))
	binary.BigEndian.PutUint32(head[1:], uint32(len(head)-5+length))
	return io.MultiReader(bytes.NewReader(head), io.LimitReader(zeros{}, int64(length)))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestMemoryOfStreams opens a thousand streams at once, each with a message nearly as large as is allowed.
func TestMemoryOfStreams(t *testing.T) {
	s := startApart(t, "lookup")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for range 1000 {
		all.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.grpc+pb.GRPCInferenceService_ModelInfer_FullMethodName, io.NopCloser(endless(60*mib)))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/grpc")
			request.Header.Set("Te", "trailers")
			response, err := transport.RoundTrip(request)
			code := "broken"
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body) // what counts comes after it
				_ = response.Body.Close()
				code = response.Trailer.Get("Grpc-Status")
			}
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	all.Wait()
	t.Logf("gRPC status of the streams: %v", codes)
	if codes["8"] < 500 { // RESOURCE_EXHAUSTED; a few get through and are told that there is no such model
		t.Errorf("of a thousand streams %d were refused: %v", codes["8"], codes)
	}
	s.stays(t, lookupInfer)
}

// TestMemoryOfSlowReaders has many clients ask for long answers and not read them.
func TestMemoryOfSlowReaders(t *testing.T) {
	s := startApart(t, "lookup")
	const values = 4 * mib
	body := fmt.Sprintf(`{"inputs":[{"name":"index","datatype":"INT64","shape":[%d],"data":[%s1]}]}`, values, strings.Repeat("1,", values-1))
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", lookupInfer, len(body), body)
	for range 30 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.http, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		// A server that refuses need not read all of it.
		_, _ = io.WriteString(conn, request)
	}
	s.stays(t, lookupInfer)
}
