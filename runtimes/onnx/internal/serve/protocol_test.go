// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
)

const testdata = "../../testdata"

func startTest(t *testing.T, model string, args ...string) *running {
	t.Helper()
	return start(t, append([]string{"--model_name=" + model, "--model_dir=" + filepath.Join(testdata, model+".onnx")}, args...)...)
}

func (r *running) client(t *testing.T) pb.GRPCInferenceServiceClient {
	t.Helper()
	return pb.NewGRPCInferenceServiceClient(r.conn(t))
}

func (r *running) conn(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestAnswers compares whole answers over REST, good and bad.
func TestAnswers(t *testing.T) {
	s := startTest(t, "lookup", "--max_request_bytes=1000", "--max_batch_size=8")
	infer := "/v2/models/lookup/infer"
	v2 := func(input string) string { return `{"inputs":[` + input + `]}` }
	for _, test := range []struct {
		name, method, path, body string
		code                     int
		want                     string
	}{
		{"alive", "GET", "/", "", 200, `{"status":"alive"}`},
		{"live", "GET", "/v2/health/live", "", 200, `{"live":true}`},
		{"ready", "GET", "/v2/health/ready", "", 200, `{"ready":true}`},
		{"server", "GET", "/v2", "", 200, `{"extensions":["binary_tensor_data"],"name":"modelplane-onnx","version":"dev"}`},
		{"models", "GET", "/v1/models", "", 200, `{"models":["lookup"]}`},
		{"v1 model", "GET", "/v1/models/lookup", "", 200, `{"name":"lookup","ready":true}`},
		{"model", "GET", "/v2/models/lookup", "", 200, `{"name":"lookup","versions":["1"],"platform":"onnx_onnxv1","inputs":[{"name":"index","datatype":"INT64","shape":[-1]}],"outputs":[{"name":"entry","datatype":"FP32","shape":[-1]}]}`},
		{"model's version", "GET", "/v2/models/lookup/versions/1/ready", "", 200, `{"name":"lookup","ready":true}`},
		{"other version", "GET", "/v2/models/lookup/versions/2", "", 404, `{"error":"model \"lookup\" has no version \"2\"; it has \"1\""}`},
		{"other model", "GET", "/v2/models/iris/ready", "", 404, `{"error":"there is no model \"iris\" here; this server has \"lookup\""}`},
		{"v1", "POST", "/v1/models/lookup:predict", `{"instances":[2,3]}`, 200, `{"predictions":[20,30]}`},
		{"v1 by name", "POST", "/v1/models/lookup:predict", `{"instances":[{"index":2},{"index":4}]}`, 200, `{"predictions":[20,40]}`},
		{"v1 inputs", "POST", "/v1/models/lookup:predict", `{"inputs":[1]}`, 200, `{"predictions":[10]}`},
		{"v1 wrong name", "POST", "/v1/models/lookup:predict", `{"instances":[{"x":2}]}`, 400, `{"error":"input \"index\" is missing in entry 0 of \"instances\""}`},
		{"v1 wrong shape", "POST", "/v1/models/lookup:predict", `{"instances":[[2]]}`, 400, `{"error":"input \"index\": shape is [1 1], the model takes [-1] (-1: any)"}`},
		{"v1 wrong value", "POST", "/v1/models/lookup:predict", `{"instances":["a"]}`, 400, `{"error":"input \"index\": \"\\\"a\\\"]\" is not a value of type INT64"}`},
		{"v1 no list", "POST", "/v1/models/lookup:predict", `{"instances":2}`, 400, `{"error":"input \"index\": a list with one entry for each row is needed"}`},
		{"v1 nothing", "POST", "/v1/models/lookup:predict", `{}`, 400, `{"error":"\"instances\" is missing: a list with one entry for each row"}`},
		{"v1 other model", "POST", "/v1/models/iris:predict", `{}`, 404, `{"error":"there is no model \"iris\" here; this server has \"lookup\""}`},
		{"v1 other verb", "POST", "/v1/models/lookup:explain", `{}`, 404, `{"error":"the path must be /v1/models/lookup:predict"}`},
		{"v2", "POST", infer, `{"id":"7","inputs":[{"name":"index","datatype":"INT64","shape":[2],"data":[1,2]}],"outputs":[{"name":"entry"}]}`, 200,
			`{"model_name":"lookup","model_version":"1","id":"7","outputs":[{"name":"entry","datatype":"FP32","shape":[2],"data":[10,20]}]}`},
		{"v2 by version", "POST", "/v2/models/lookup/versions/1/infer", v2(`{"name":"index","datatype":"INT64","shape":[1],"data":[1]}`), 200,
			`{"model_name":"lookup","model_version":"1","outputs":[{"name":"entry","datatype":"FP32","shape":[1],"data":[10]}]}`},
		{"no JSON", "POST", infer, `nonsense`, 400, `{"error":"the request is not JSON of the v2 protocol: invalid character 'o' in literal null (expecting 'u')"}`},
		{"no input", "POST", infer, v2(``), 400, `{"error":"input \"index\" is missing"}`},
		{"unknown input", "POST", infer, v2(`{"name":"x","datatype":"INT64","shape":[1],"data":[1]}`), 400, `{"error":"the model has no input \"x\"; it has \"index\""}`},
		{"unknown output", "POST", infer, `{"inputs":[{"name":"index","datatype":"INT64","shape":[1],"data":[1]}],"outputs":[{"name":"x"}]}`, 400, `{"error":"the model has no output \"x\"; it has \"entry\""}`},
		{"twice", "POST", infer, v2(`{"name":"index","datatype":"INT64","shape":[1],"data":[1]},{"name":"index","datatype":"INT64","shape":[1],"data":[1]}`), 400, `{"error":"input \"index\" is given twice"}`},
		{"type", "POST", infer, v2(`{"name":"index","datatype":"FP32","shape":[1],"data":[1]}`), 400, `{"error":"input \"index\": datatype is FP32, the model takes INT64"}`},
		{"unknown type", "POST", infer, v2(`{"name":"index","datatype":"INT","shape":[1],"data":[1]}`), 400, `{"error":"input \"index\": datatype \"INT\" is unknown; FP32 is an example of one"}`},
		{"count", "POST", infer, v2(`{"name":"index","datatype":"INT64","shape":[3],"data":[1]}`), 400, `{"error":"input \"index\": there are 1 values, shape [3] needs 3"}`},
		{"huge shape", "POST", infer, v2(`{"name":"index","datatype":"INT64","shape":[4611686018427387904,4],"data":[]}`), 400, `{"error":"input \"index\": shape [4611686018427387904 4] is too large"}`},
		{"no shape", "POST", infer, v2(`{"name":"index","datatype":"INT64","data":[1]}`), 400, `{"error":"input \"index\": shape is missing"}`},
		{"no data", "POST", infer, v2(`{"name":"index","datatype":"INT64","shape":[1]}`), 400, `{"error":"input \"index\": data is missing"}`},
		{"nested", "POST", infer, v2(`{"name":"index","datatype":"INT64","shape":[1],"data":[[1,2]]}`), 400, `{"error":"input \"index\": data is nested like [1 2], shape is [1]"}`},
		{"too large", "POST", infer, strings.Repeat(" ", 1001), 413, `{"error":"the request is larger than 1000 bytes"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), test.method, s.http+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			got, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.code || string(got) != test.want {
				t.Errorf("%d %s\nwant %d %s", response.StatusCode, got, test.code, test.want)
			}
		})
	}
	if code, text := s.post(t, infer, v2(`{"name":"index","datatype":"INT64","shape":[1],"data":[99]}`)); code != 500 || !strings.Contains(text, "the model failed") {
		t.Errorf("a failing model: %d %s", code, text)
	}
	metrics := s.get(t, "/metrics")
	for _, want := range []string{
		`modelplane_onnx_requests_total{code="200",model="lookup",protocol="v1"} 3`,
		`modelplane_onnx_requests_total{code="413",model="lookup",protocol="v2"} 1`,
		`modelplane_onnx_ready{model="lookup"} 1`, `modelplane_onnx_run_rows_count{model="lookup"}`, "go_goroutines",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func (r *running) get(t *testing.T, path string) string {
	t.Helper()
	response, err := http.Get(r.http + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBinary sends all types as binary data behind the JSON and wants them back in the same form.
func TestBinary(t *testing.T) {
	s := startTest(t, "types")
	widths := map[string]int{"bool": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}
	var inputs []string
	var data []byte
	add := func(name string, raw []byte) {
		inputs = append(inputs, fmt.Sprintf(`{"name":%q,"datatype":%q,"shape":[1,2],"parameters":{"binary_data_size":%d}}`, name, strings.ToUpper(name), len(raw)))
		data = append(data, raw...)
	}
	// An odd length first, so that everything behind it is not aligned.
	add("bytes", []byte("\x03\x00\x00\x00a\xffb\x00\x00\x00\x00"))
	for name, width := range widths {
		raw := make([]byte, 2*width)
		raw[0], raw[width] = 1, 1
		add(name, raw)
	}
	head := `{"inputs":[` + strings.Join(inputs, ",") + `],"parameters":{"binary_data_output":true},"outputs":[{"name":"int8_out","parameters":{"binary_data":false}},{"name":"bytes_out"},{"name":"fp16_out"},{"name":"fp64_out"}]}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.http+"/v2/models/types/infer", bytes.NewReader(append([]byte(head), data...)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(head)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var length int
	if _, err := fmt.Sscan(response.Header.Get("Inference-Header-Content-Length"), &length); err != nil {
		t.Fatalf("%v: %d %s", err, response.StatusCode, body)
	}
	want := `{"model_name":"types","model_version":"1","outputs":[{"name":"int8_out","datatype":"INT8","shape":[1,2],"data":[1,1]},` +
		`{"name":"bytes_out","datatype":"BYTES","shape":[1,2],"parameters":{"binary_data_size":11}},` +
		`{"name":"fp16_out","datatype":"FP16","shape":[1,2],"parameters":{"binary_data_size":4}},` +
		`{"name":"fp64_out","datatype":"FP64","shape":[1,2],"parameters":{"binary_data_size":16}}]}`
	if got := string(body[:length]); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	wantData := "\x03\x00\x00\x00a\xffb\x00\x00\x00\x00" + "\x01\x00\x01\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
	if diff := cmp.Diff(wantData, string(body[length:])); diff != "" {
		t.Errorf("binary data (-want +got):\n%s", diff)
	}
}

// TestRPC goes through all calls, with typed and raw contents and everything that can be wrong.
func TestRPC(t *testing.T) {
	s := startTest(t, "lookup")
	c := s.client(t)
	live, err := c.ServerLive(t.Context(), &pb.ServerLiveRequest{})
	if err != nil || !live.Live {
		t.Errorf("live: %v, %v", live, err)
	}
	ready, err := c.ModelReady(t.Context(), &pb.ModelReadyRequest{Name: "lookup"})
	if err != nil || !ready.Ready {
		t.Errorf("ready: %v, %v", ready, err)
	}
	healthy, err := healthpb.NewHealthClient(s.conn(t)).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || healthy.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", healthy, err)
	}
	metadata, err := c.ModelMetadata(t.Context(), &pb.ModelMetadataRequest{Name: "lookup", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	described := &pb.ModelMetadataResponse{
		Name: "lookup", Versions: []string{"1"}, Platform: "onnx_onnxv1",
		Inputs:  []*pb.ModelMetadataResponse_TensorMetadata{{Name: "index", Datatype: "INT64", Shape: []int64{-1}}},
		Outputs: []*pb.ModelMetadataResponse_TensorMetadata{{Name: "entry", Datatype: "FP32", Shape: []int64{-1}}},
	}
	if diff := cmp.Diff(described, metadata, protocmp.Transform()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	input := func(kind string, values ...int64) []*pb.ModelInferRequest_InferInputTensor {
		in := &pb.ModelInferRequest_InferInputTensor{Name: "index", Datatype: kind, Shape: []int64{2}}
		if values != nil {
			in.Contents = &pb.InferTensorContents{Int64Contents: values}
		}
		return []*pb.ModelInferRequest_InferInputTensor{in}
	}
	answer := func(out *pb.ModelInferResponse_InferOutputTensor, raw ...[]byte) *pb.ModelInferResponse {
		out.Name, out.Datatype, out.Shape = "entry", "FP32", []int64{2}
		return &pb.ModelInferResponse{ModelName: "lookup", ModelVersion: "1", Id: "7", Outputs: []*pb.ModelInferResponse_InferOutputTensor{out}, RawOutputContents: raw}
	}
	rawOut := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(10)), math.Float32bits(20))
	rawIn := []byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00")
	for _, test := range []struct {
		name    string
		request *pb.ModelInferRequest
		want    *pb.ModelInferResponse
		code    codes.Code
		says    string
	}{
		{"typed", &pb.ModelInferRequest{ModelName: "lookup", Id: "7", Inputs: input("INT64", 1, 2)},
			answer(&pb.ModelInferResponse_InferOutputTensor{Contents: &pb.InferTensorContents{Fp32Contents: []float32{10, 20}}}), codes.OK, ""},
		{"raw", &pb.ModelInferRequest{ModelName: "lookup", Id: "7", Inputs: input("INT64"), RawInputContents: [][]byte{rawIn}},
			answer(&pb.ModelInferResponse_InferOutputTensor{}, rawOut), codes.OK, ""},
		{"both", &pb.ModelInferRequest{ModelName: "lookup", Inputs: input("INT64", 1, 2), RawInputContents: [][]byte{rawIn}}, nil, codes.InvalidArgument, `input "index": there are both`},
		{"raw for others", &pb.ModelInferRequest{ModelName: "lookup", Inputs: input("INT64"), RawInputContents: [][]byte{rawIn, rawIn}}, nil, codes.InvalidArgument, "2 raw_input_contents for 1 inputs"},
		{"raw too short", &pb.ModelInferRequest{ModelName: "lookup", Inputs: input("INT64"), RawInputContents: [][]byte{rawIn[:8]}}, nil, codes.InvalidArgument, `input "index": there are 1 values`},
		{"other field", &pb.ModelInferRequest{ModelName: "lookup", Inputs: input("INT32", 1, 2)}, nil, codes.InvalidArgument, `input "index": datatype is INT32`},
		{"unknown type", &pb.ModelInferRequest{ModelName: "lookup", Inputs: input("x", 1, 2)}, nil, codes.InvalidArgument, `input "index": datatype "x" is unknown`},
		{"no input", &pb.ModelInferRequest{ModelName: "lookup"}, nil, codes.InvalidArgument, `input "index" is missing`},
		{"other model", &pb.ModelInferRequest{ModelName: "iris"}, nil, codes.NotFound, "there is no model"},
		{"failing", &pb.ModelInferRequest{ModelName: "lookup", Inputs: input("INT64", 99, 2)}, nil, codes.Internal, "the model failed"},
	} {
		got, err := c.ModelInfer(t.Context(), test.request)
		if status.Code(err) != test.code || test.says != "" && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %s: %s", test.name, err, test.code, test.says)
			continue
		}
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); test.code == codes.OK && diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestTogether sends requests over all protocols at once to a server that puts them together; each answer must belong to
// its request.
func TestTogether(t *testing.T) {
	s := startTest(t, "lookup", "--max_batch_size=16", "--max_batch_delay=1ms")
	c := s.client(t)
	var all sync.WaitGroup
	for client := range 12 {
		all.Go(func() {
			for i := range 25 {
				a, b := (client+i)%10, (client*3+i)%10
				switch client % 3 {
				case 0:
					code, text := s.post(t, "/v1/models/lookup:predict", fmt.Sprintf(`{"instances":[%d,%d]}`, a, b))
					if want := fmt.Sprintf(`{"predictions":[%d,%d]}`, 10*a, 10*b); code != 200 || text != want {
						t.Errorf("%d %s, want %s", code, text, want)
					}
				case 1:
					bad := i%5 == 4
					if bad {
						a = 99
					}
					code, text := s.post(t, "/v2/models/lookup/infer", fmt.Sprintf(`{"inputs":[{"name":"index","datatype":"INT64","shape":[1],"data":[%d]}]}`, a))
					if bad != (code == 500) || !bad && !strings.Contains(text, fmt.Sprintf(`"data":[%d]`, 10*a)) {
						t.Errorf("%d: %d %s", a, code, text)
					}
				default:
					got, err := c.ModelInfer(t.Context(), &pb.ModelInferRequest{ModelName: "lookup", Inputs: []*pb.ModelInferRequest_InferInputTensor{{
						Name: "index", Datatype: "INT64", Shape: []int64{2}, Contents: &pb.InferTensorContents{Int64Contents: []int64{int64(a), int64(b)}},
					}}})
					if err != nil {
						t.Error(err)
						continue
					}
					if diff := cmp.Diff([]float32{float32(10 * a), float32(10 * b)}, got.Outputs[0].Contents.Fp32Contents); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
			}
		})
	}
	all.Wait()
}
