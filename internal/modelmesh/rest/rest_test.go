// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/modelplane/modelplane/internal/openinference"
	"github.com/modelplane/modelplane/internal/openinference/body"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/process"
)

// mesh answers with what it was asked: outputs are the inputs, typed or raw as these came.
type mesh struct {
	pb.UnimplementedGRPCInferenceServiceServer

	mu      sync.Mutex
	last    *pb.ModelInferRequest
	headers metadata.MD
	infer   func(context.Context, *pb.ModelInferRequest) (*pb.ModelInferResponse, error)
	stream  func(*pb.ModelInferRequest, grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error
	ready   bool
}

func (m *mesh) note(ctx context.Context, r *pb.ModelInferRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = r
	m.headers, _ = metadata.FromIncomingContext(ctx)
}

func (m *mesh) ModelInfer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	m.note(ctx, r)
	if m.infer != nil {
		return m.infer(ctx, r)
	}
	return echo(r), nil
}

func echo(r *pb.ModelInferRequest) *pb.ModelInferResponse {
	out := &pb.ModelInferResponse{ModelName: "inner__isvc-1", ModelVersion: "1", Id: r.GetId(), Parameters: r.GetParameters(), RawOutputContents: r.GetRawInputContents()}
	for _, in := range r.GetInputs() {
		out.Outputs = append(out.Outputs, &pb.ModelInferResponse_InferOutputTensor{
			Name: in.GetName(), Datatype: in.GetDatatype(), Shape: in.GetShape(), Contents: in.GetContents(), Parameters: in.GetParameters(),
		})
	}
	return out
}

func (m *mesh) ModelStreamInfer(s grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error {
	r, err := s.Recv()
	if err != nil {
		return err
	}
	m.note(s.Context(), r)
	if m.stream == nil {
		return status.Error(codes.Unimplemented, "answers come one by one")
	}
	return m.stream(r, s)
}

func (m *mesh) ModelMetadata(ctx context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	m.note(ctx, nil)
	if r.GetName() != "iris" {
		return nil, status.Error(codes.NotFound, "there is no model "+r.GetName())
	}
	return &pb.ModelMetadataResponse{
		Name: "inner", Versions: []string{"1"}, Platform: "onnx",
		Inputs: []*pb.ModelMetadataResponse_TensorMetadata{
			{Name: "text_input", Datatype: "BYTES", Shape: []int64{-1, 1}}, {Name: "max_tokens", Datatype: "INT32", Shape: []int64{1}},
		},
		Outputs: []*pb.ModelMetadataResponse_TensorMetadata{{Name: "text_output", Datatype: "BYTES", Shape: []int64{-1, -1}}},
	}, nil
}

func (m *mesh) ModelReady(ctx context.Context, r *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	m.note(ctx, nil)
	if r.GetName() == "old" {
		return nil, status.Error(codes.Unimplemented, "what is ready?")
	}
	return &pb.ModelReadyResponse{Ready: m.ready}, nil
}

// scene is a client's view of a proxy in front of a mesh, all over the wire.
type scene struct {
	*mesh
	url   string
	proxy *Proxy
}

// tried is small enough for tests of bounds.
const tried = 64 << 10

func newScene(t *testing.T) *scene {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{ready: true}
	server := grpc.NewServer()
	pb.RegisterGRPCInferenceServiceServer(server, m)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	o := options{Settings: Settings{MeshPort: listener.Addr().(*net.TCPAddr).Port, MaxMessage: tried}}
	connection, err := o.connect(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	proxy := &Proxy{
		mesh: pb.NewGRPCInferenceServiceClient(connection), connection: connection,
		budget: openinference.NewBudget(16<<20, texts*tried), maxMessage: tried, clientTimeout: time.Minute, places: make(chan struct{}, 2),
		stopping: func(*http.Request) error { return nil }, metrics: newMetrics(),
	}
	front := httptest.NewServer(proxy.Handler())
	t.Cleanup(front.Close)
	return &scene{m, front.URL, proxy}
}

// send asks, and returns status, header and body of the answer.
func (s *scene) send(t *testing.T, method, path, text string, header ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(answer)
}

func (s *scene) infer(t *testing.T, text string, header ...string) (int, http.Header, string) {
	t.Helper()
	return s.send(t, http.MethodPost, "/v2/models/iris/infer", text, header...)
}

// TestTypes: values of every type come back as they were sent, and reach the mesh as it knows them.
func TestTypes(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		kind, data string
		contents   *pb.InferTensorContents
		raw        []byte
	}{
		{"BOOL", "[true,false]", &pb.InferTensorContents{BoolContents: []bool{true, false}}, nil},
		{"INT8", "[-128,127]", &pb.InferTensorContents{IntContents: []int32{-128, 127}}, nil},
		{"INT16", "[-32768,1]", &pb.InferTensorContents{IntContents: []int32{-32768, 1}}, nil},
		{"INT32", "[-2147483648,1]", &pb.InferTensorContents{IntContents: []int32{math.MinInt32, 1}}, nil},
		{"INT64", "[-9223372036854775808,9223372036854775807]", &pb.InferTensorContents{Int64Contents: []int64{math.MinInt64, math.MaxInt64}}, nil},
		{"UINT8", "[0,255]", &pb.InferTensorContents{UintContents: []uint32{0, 255}}, nil},
		{"UINT16", "[0,65535]", &pb.InferTensorContents{UintContents: []uint32{0, 65535}}, nil},
		{"UINT32", "[0,4294967295]", &pb.InferTensorContents{UintContents: []uint32{0, math.MaxUint32}}, nil},
		{"UINT64", "[0,18446744073709551615]", &pb.InferTensorContents{Uint64Contents: []uint64{0, math.MaxUint64}}, nil},
		{"FP32", "[0.1,-2]", &pb.InferTensorContents{Fp32Contents: []float32{0.1, -2}}, nil},
		{"FP64", "[0.1,-2]", &pb.InferTensorContents{Fp64Contents: []float64{0.1, -2}}, nil},
		{"BYTES", `["a","ü\"\n"]`, &pb.InferTensorContents{BytesContents: [][]byte{[]byte("a"), []byte("ü\"\n")}}, nil},
		{"FP16", "[1.5,-2]", nil, []byte{0, 0x3e, 0, 0xc0}},
		{"BF16", "[1.5,-2]", nil, []byte{0xc0, 0x3f, 0, 0xc0}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			code, _, got := s.infer(t, `{"id":"7","inputs":[{"name":"x","datatype":"`+c.kind+`","shape":[2],"data":`+c.data+`}]}`)
			want := `{"model_name":"inner__isvc-1","model_version":"1","id":"7","outputs":[{"name":"x","datatype":"` + c.kind + `","shape":[2],"data":` + c.data + `}]}`
			if code != http.StatusOK || got != want {
				t.Errorf("%d %s, want %s", code, got, want)
			}
			if c.raw != nil && (len(s.last.GetRawInputContents()) != 1 || !bytes.Equal(s.last.GetRawInputContents()[0], c.raw)) {
				t.Errorf("the mesh got %v", s.last)
			}
			if c.raw == nil && !proto.Equal(s.last.GetInputs()[0].GetContents(), c.contents) {
				t.Errorf("the mesh got %v", s.last.GetInputs()[0])
			}
		})
	}
}

func TestRequestReachesTheMesh(t *testing.T) {
	s := newScene(t)
	code, _, answer := s.send(t, http.MethodPost, "/v2/models/iris/versions/3/infer", `{
		"id": "a", "parameters": {"b": true, "i": 7, "f": 0.5, "s": "x", "u": 18446744073709551615, "n": null, "binary_data_output": false},
		"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4]], "parameters": {"p": 1}}],
		"outputs": [{"name": "x", "parameters": {"classification": 2, "binary_data": false}}]
	}`, "Grpc-Metadata-Tenant", "blue", "Authorization", "Bearer x", "Cookie", "no")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	want := &pb.ModelInferRequest{
		ModelName: "iris", ModelVersion: "3", Id: "a",
		Parameters: map[string]*pb.InferParameter{
			"b": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}, "i": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 7}},
			"f": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 0.5}}, "s": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "x"}},
			"u": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: math.MaxUint64}},
		},
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{
			Name: "x", Datatype: "FP32", Shape: []int64{2, 2}, Contents: &pb.InferTensorContents{Fp32Contents: []float32{1, 2, 3, 4}},
			Parameters: map[string]*pb.InferParameter{"p": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 1}}},
		}},
		Outputs: []*pb.ModelInferRequest_InferRequestedOutputTensor{{
			Name: "x", Parameters: map[string]*pb.InferParameter{"classification": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 2}}},
		}},
	}
	if !proto.Equal(s.last, want) {
		t.Errorf("the mesh got %v", s.last)
	}
	if got := s.headers; got.Get("tenant")[0] != "blue" || got.Get("authorization")[0] != "Bearer x" || got.Get("mm-vmodel-id")[0] != "iris" || len(got.Get("cookie")) > 0 {
		t.Errorf("headers %v", got)
	}
	if !strings.Contains(answer, `"parameters":{"b":true,"f":0.5,"i":7,"s":"x","u":18446744073709551615}`) {
		t.Errorf("the answer's parameters: %s", answer)
	}
}

func TestModelIDs(t *testing.T) {
	s := newScene(t)
	const ask = `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}`
	s.infer(t, ask, "Grpc-Metadata-Mm-Model-Id", "inner")
	if got := s.headers; len(got.Get("mm-vmodel-id")) > 0 || got.Get("mm-model-id")[0] != "inner" {
		t.Errorf("headers %v", got)
	}
	s.send(t, http.MethodPost, "/v2/models/blümchen/infer", ask)
	if got := s.headers.Get("mm-vmodel-id-bin"); len(got) != 1 || got[0] != "blümchen" {
		t.Errorf("headers %v", s.headers)
	}
}

func TestBinary(t *testing.T) {
	s := newScene(t)
	raw := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1)), math.Float32bits(2))
	head := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}},` +
		`{"name":"y","datatype":"INT8","shape":[1],"data":[3]}],"outputs":[{"name":"x"},{"name":"y","parameters":{"binary_data":false}}]}`
	code, header, answer := s.infer(t, head+string(raw), body.HeaderLength, strconv.Itoa(len(head)))
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	length, err := strconv.Atoi(header.Get(body.HeaderLength))
	if err != nil || header.Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("header %v", header)
	}
	want := `{"model_name":"inner__isvc-1","model_version":"1","outputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}},` +
		`{"name":"y","datatype":"INT8","shape":[1],"data":[3]}]}`
	if answer[:length] != want || answer[length:] != string(raw) {
		t.Errorf("%q", answer)
	}
	if got := s.last; len(got.GetRawInputContents()) != 2 || got.GetInputs()[0].GetContents() != nil || len(got.GetInputs()[0].GetParameters()) > 0 {
		t.Errorf("the mesh got %v", got)
	}
}

func TestBytesInBase64(t *testing.T) {
	s := newScene(t)
	_, _, answer := s.infer(t, `{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"parameters":{"content_type":"base64"},"data":["/wA="]}]}`)
	if got := s.last.GetInputs()[0].GetContents().GetBytesContents(); len(got) != 1 || !bytes.Equal(got[0], []byte{0xff, 0}) {
		t.Errorf("the mesh got %v", got)
	}
	const want = `"parameters":{"content_type":"base64"},"data":["/wA="]`
	if !strings.Contains(answer, want) {
		t.Errorf("%s", answer)
	}
	// What is no text is coded also when nobody asked.
	_, _, answer = s.infer(t, `{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":[{"b64":"/wA="}]}]}`)
	if !strings.Contains(answer, want) {
		t.Errorf("%s", answer)
	}
}

func TestRefusedRequests(t *testing.T) {
	s := newScene(t)
	s.mustNotBeAsked(t)
	for _, c := range []struct {
		name, text string
		code       int
		want       string
	}{
		{"no JSON", "{", 400, "not JSON of the v2 protocol"},
		{"nothing", "", 400, "not JSON of the v2 protocol"},
		{"no inputs", "{}", 400, "no inputs"},
		{"no shape", `{"inputs":[{"name":"x","datatype":"FP32","data":[1]}]}`, 400, `input \"x\": shape is missing`},
		{"another number of values", `{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1]}]}`, 400, "there are 1 values, shape [3] needs 3"},
		{"another type", `{"inputs":[{"name":"x","datatype":"FLOAT","shape":[1],"data":[1]}]}`, 400, `datatype \"FLOAT\" is unknown`},
		{"a value of another type", `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[300]}]}`, 400, "is not a value of type INT8"},
		{"a list as a parameter", `{"parameters":{"p":[1]},"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}`, 400, `parameter \"p\" is a list or an object`},
		{"too many inputs", `{"inputs":[` + strings.Repeat("{},", 2000) + "{}]}", 413, "more than 1024 entries"},
		{"too large for the mesh", `{"inputs":[{"name":"x","datatype":"FP64","shape":[10000],"data":[1` + strings.Repeat(",1", 9999) + "]}]}", 413, "send less at a time, or raise grpcMaxMessageSizeBytes"},
		{"too large for anybody", strings.Repeat(" ", texts*tried+1), 413, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, answer := s.infer(t, c.text)
			var what problem
			if err := json.Unmarshal([]byte(answer), &what); err != nil || what.Error != what.Message || what.Code == 0 {
				t.Errorf("%s: %v", answer, err)
			}
			if code != c.code || !strings.Contains(answer, c.want) {
				t.Errorf("%d %s", code, answer)
			}
		})
	}
	if code, _, answer := s.infer(t, "{}", "Content-Encoding", "gzip"); code != 400 || !strings.Contains(answer, "Content-Encoding") {
		t.Errorf("%d %s", code, answer)
	}
	if code, _, answer := s.infer(t, `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}`, "Grpc-Timeout", "soon"); code != 400 || !strings.Contains(answer, "Grpc-Timeout") {
		t.Errorf("%d %s", code, answer)
	}
	if code, _, answer := s.send(t, http.MethodGet, "/v1/models", ""); code != 404 || !strings.Contains(answer, "nothing of the v2 protocol") {
		t.Errorf("%d %s", code, answer)
	}
}

// mustNotBeAsked has the mesh fail a test that reaches it.
func (s *scene) mustNotBeAsked(t *testing.T) {
	s.mesh.infer = func(context.Context, *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
		t.Error("a request that should have been refused reached the mesh")
		return nil, status.Error(codes.Internal, "no")
	}
}

const one = `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}`

func TestErrorsOfTheMesh(t *testing.T) {
	s := newScene(t)
	for code, want := range statuses {
		if code == codes.OK {
			continue
		}
		s.mesh.infer = func(context.Context, *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
			return nil, status.Error(code, "because "+code.String())
		}
		got, header, answer := s.infer(t, one)
		what := fmt.Sprintf(`{"error":"because %s","code":%d,"message":"because %s"}`, code, code, code)
		if got != want || answer != what {
			t.Errorf("%s: %d %s", code, got, answer)
		}
		if retry := header.Get("Retry-After") != ""; retry != (code == codes.Unavailable || code == codes.ResourceExhausted) {
			t.Errorf("%s: Retry-After %v", code, retry)
		}
	}
	for name, answer := range map[string]*pb.ModelInferResponse{
		"an unknown type": {Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "X"}}},
		"too few values":  {Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "INT8", Shape: []int64{2}}}, RawOutputContents: [][]byte{{1}}},
		"no values":       {Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "INT8", Shape: []int64{2}}}},
		"too many raw":    {Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "INT8", Shape: []int64{1}}}, RawOutputContents: [][]byte{{1}, {2}}},
	} {
		s.mesh.infer = func(context.Context, *pb.ModelInferRequest) (*pb.ModelInferResponse, error) { return answer, nil }
		if code, _, text := s.infer(t, one); code != http.StatusInternalServerError || !strings.Contains(text, "the answer of the model cannot be read") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	s.mesh.infer = func(ctx context.Context, _ *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if code, _, answer := s.infer(t, one, "Grpc-Timeout", "20m"); code != http.StatusGatewayTimeout {
		t.Errorf("a deadline: %d %s", code, answer)
	}
}

// TestModelAtFault: a model that cannot be loaded, or that no runtime takes, is no mistake of the request and none of the
// server. The answer says why, and when it is worth to ask again.
func TestModelAtFault(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		code   codes.Code
		reason []string
		want   string
		retry  string
	}{
		{codes.Internal, []string{"mm-reason", "load-failed", "mm-retry-after", "450"}, "the model iris failed to load: Cannot find s3://b/iris.", "450"},
		{codes.FailedPrecondition, []string{"mm-reason", "no-instance"}, "There are no running instances", "1"},
		{codes.Internal, []string{"mm-reason", "runtime-unavailable"}, "ModelRuntime UNAVAILABLE: it is gone", "1"},
	} {
		refuse := func(set func(metadata.MD)) error {
			set(metadata.Pairs(c.reason...))
			return status.Error(c.code, c.want)
		}
		s.mesh.infer = func(ctx context.Context, _ *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
			return nil, refuse(func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
		}
		s.mesh.stream = func(_ *pb.ModelInferRequest, stream grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error {
			return refuse(stream.SetTrailer)
		}
		for _, accept := range []string{"application/json", "text/event-stream"} {
			code, header, answer := s.infer(t, one, "Accept", accept)
			var what problem
			if err := json.Unmarshal([]byte(answer), &what); err != nil || code != http.StatusServiceUnavailable || what.Error != c.want || what.Code != int(c.code) {
				t.Errorf("%s, %s: %d %s", c.reason[1], accept, code, answer)
			}
			if got := header.Get("Retry-After"); got != c.retry {
				t.Errorf("%s, %s: Retry-After %s, want %s", c.reason[1], accept, got, c.retry)
			}
		}
	}
}

// TestMetrics: requests are told of by what was asked and how it ended, and not by models, of which there may be many.
func TestMetrics(t *testing.T) {
	s := newScene(t)
	if code, _, answer := s.infer(t, one); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	s.send(t, http.MethodGet, "/v2/models/tulips", "")
	s.mesh.stream = func(r *pb.ModelInferRequest, stream grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error {
		return stream.Send(&pb.ModelStreamInferResponse{InferResponse: echo(r)})
	}
	if code, _, answer := s.infer(t, one, "Accept", "text/event-stream"); code != http.StatusOK || !strings.HasPrefix(answer, "data: ") {
		t.Fatalf("%d %s", code, answer)
	}
	front := httptest.NewServer(process.Metrics(s.proxy.metrics.registry, nil, slog.New(slog.DiscardHandler)))
	defer front.Close()
	_, _, text := (&scene{url: front.URL}).send(t, http.MethodGet, "/metrics", "")
	for _, want := range []string{
		`modelplane_mesh_rest_request_duration_seconds_count{code="200",operation="infer"} 2`,
		`modelplane_mesh_rest_request_duration_seconds_count{code="404",operation="metadata"} 1`,
		fmt.Sprintf(`modelplane_mesh_rest_received_bytes_total{operation="infer"} %d`, 2*len(one)),
		"modelplane_mesh_rest_requests_under_way 0", `modelplane_build_info{`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics do not have %s", want)
		}
	}
	if strings.Contains(text, "tulips") || strings.Contains(text, `sent_bytes_total{operation="infer"} 0`) {
		t.Errorf("metrics are\n%s", text)
	}
}

func TestModels(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"/v2/health/live", 200, `{"live":true}`},
		{"/v2/health/ready", 200, `{"ready":true}`},
		{"/v2", 200, `"extensions":["binary_tensor_data","generate"]`},
		{"/v2/models/iris", 200, `{"name":"inner","versions":["1"],"platform":"onnx","inputs":[{"name":"text_input","datatype":"BYTES","shape":[-1,1]},` +
			`{"name":"max_tokens","datatype":"INT32","shape":[1]}],"outputs":[{"name":"text_output","datatype":"BYTES","shape":[-1,-1]}]}`},
		{"/v2/models/iris/versions/1", 200, `"name":"inner"`},
		{"/v2/models/tulips", 404, `"error":"there is no model tulips"`},
		{"/v2/models/iris/ready", 200, `{"name":"iris","ready":true}`},
		{"/v2/models/old/ready", 404, `there is no model old`},
	} {
		if code, _, answer := s.send(t, http.MethodGet, c.path, ""); code != c.code || !strings.Contains(answer, c.want) {
			t.Errorf("%s: %d %s", c.path, code, answer)
		}
	}
	s.ready = false
	if code, _, answer := s.send(t, http.MethodGet, "/v2/models/iris/ready", ""); code != 503 || !strings.Contains(answer, `"ready":false`) {
		t.Errorf("%d %s", code, answer)
	}
	if got := s.headers.Get("mm-vmodel-id"); len(got) != 1 || got[0] != "iris" {
		t.Errorf("the mesh does not know whom to ask: %v", s.headers)
	}
}

// TestEvents: answers arrive as they are made, an error after the first is the last event, one before it a status.
func TestEvents(t *testing.T) {
	s := newScene(t)
	hold := make(chan struct{})
	s.stream = func(r *pb.ModelInferRequest, stream grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error {
		if err := stream.Send(&pb.ModelStreamInferResponse{InferResponse: echo(r)}); err != nil {
			return err
		}
		<-hold
		return stream.Send(&pb.ModelStreamInferResponse{ErrorMessage: "out of words"})
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v2/models/iris/infer", strings.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", events)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != events {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	const first = `data: {"model_name":"inner__isvc-1","model_version":"1","outputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}` + "\n\n"
	got := make([]byte, len(first))
	if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != first {
		t.Fatalf("%q, %v", got, err)
	}
	close(hold)
	rest, err := io.ReadAll(response.Body)
	if err != nil || string(rest) != `data: {"error":"out of words","code":2,"message":"out of words"}`+"\n\n" {
		t.Errorf("%q, %v", rest, err)
	}
	s.stream = func(*pb.ModelInferRequest, grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error {
		return status.Error(codes.NotFound, "no such model")
	}
	if code, _, answer := s.infer(t, one, "Accept", events); code != 404 || !strings.Contains(answer, "no such model") {
		t.Errorf("%d %s", code, answer)
	}
	s.stream = nil
	if code, _, answer := s.infer(t, one, "Accept", "application/json, "+events); code != 200 || answer != first {
		t.Errorf("a runtime without streams: %d %q", code, answer)
	}
}

func TestGenerate(t *testing.T) {
	s := newScene(t)
	text := func(words ...string) *pb.ModelInferResponse {
		out := &pb.ModelInferResponse{ModelVersion: "1", Outputs: []*pb.ModelInferResponse_InferOutputTensor{
			{Name: "text_output", Datatype: "BYTES", Shape: []int64{int64(len(words))}, Contents: &pb.InferTensorContents{}},
		}}
		for _, w := range words {
			out.Outputs[0].Contents.BytesContents = append(out.Outputs[0].Contents.BytesContents, []byte(w))
		}
		return out
	}
	s.mesh.infer = func(context.Context, *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
		return text("hello"), nil
	}
	code, _, answer := s.send(t, http.MethodPost, "/v2/models/iris/generate", `{"text_input":"hi","parameters":{"max_tokens":3,"temperature":0.5}}`)
	if code != 200 || answer != `{"model_name":"iris","model_version":"1","text_output":"hello"}` {
		t.Errorf("%d %s", code, answer)
	}
	want := &pb.ModelInferRequest{
		ModelName:  "iris",
		Parameters: map[string]*pb.InferParameter{"temperature": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 0.5}}},
		Inputs: []*pb.ModelInferRequest_InferInputTensor{
			{Name: "text_input", Datatype: "BYTES", Shape: []int64{1, 1}, Contents: &pb.InferTensorContents{BytesContents: [][]byte{[]byte("hi")}}},
			{Name: "max_tokens", Datatype: "INT32", Shape: []int64{1}, Contents: &pb.InferTensorContents{IntContents: []int32{3}}},
		},
	}
	if !proto.Equal(s.last, want) {
		t.Errorf("the mesh got %v", s.last)
	}
	s.stream = func(_ *pb.ModelInferRequest, stream grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error {
		for _, words := range [][]string{{"a"}, {"b", "c"}} {
			if err := stream.Send(&pb.ModelStreamInferResponse{InferResponse: text(words...)}); err != nil {
				return err
			}
		}
		return nil
	}
	_, _, answer = s.send(t, http.MethodPost, "/v2/models/iris/generate_stream", `{"text_input":"hi"}`)
	const head = `data: {"model_name":"iris","model_version":"1","text_output":`
	if diff := cmp.Diff(head+`"a"}`+"\n\n"+head+`["b","c"]}`+"\n\n", answer); diff != "" {
		t.Error(diff)
	}
	for request, want := range map[string]string{
		`{"words":"hi"}`: "none of the model's inputs", `[1]`: "must be JSON objects", `{`: "no JSON", `{"text_input":1}`: "is not a string",
		`{"text_input":"a","more":{}}`: "is a list or an object",
	} {
		if code, _, answer := s.send(t, http.MethodPost, "/v2/models/iris/generate", request); code != 400 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s", request, code, answer)
		}
	}
}

// TestPlaces: requests beyond those that there are places for are refused, and healthy a proxy is nevertheless.
func TestPlaces(t *testing.T) {
	s := newScene(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	s.mesh.infer = func(_ context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
		begun <- struct{}{}
		<-finish
		return echo(r), nil
	}
	ended := make(chan int, 2)
	for range 2 {
		go func() {
			code, _, _ := s.infer(t, one)
			ended <- code
		}()
		<-begun
	}
	if code, header, answer := s.infer(t, one); code != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(answer, "there are 2 requests already") {
		t.Errorf("%d %s", code, answer)
	}
	if code, _, _ := s.send(t, http.MethodGet, "/v2/health/ready", ""); code != http.StatusOK {
		t.Errorf("health: %d", code)
	}
	close(finish)
	for range 2 {
		if code := <-ended; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
}

// TestNobodyThere: without a mesh the proxy says so.
func TestNobodyThere(t *testing.T) {
	o := options{Settings: Settings{MeshPort: 1, MaxMessage: tried}}
	connection, err := o.connect(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close() //nolint:errcheck // nothing was sent
	proxy := &Proxy{
		mesh: pb.NewGRPCInferenceServiceClient(connection), connection: connection, budget: openinference.NewBudget(1<<20, tried),
		maxMessage: tried, places: make(chan struct{}, 1), clientTimeout: time.Minute, stopping: func(*http.Request) error { return nil }, metrics: newMetrics(),
	}
	for method, path := range map[string]string{http.MethodGet: "/v2/health/ready", http.MethodPost: "/v2/models/iris/infer"} {
		w := httptest.NewRecorder()
		proxy.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(one)))
		if w.Code != http.StatusServiceUnavailable || method == http.MethodPost && !strings.Contains(w.Body.String(), "the mesh in this pod cannot be reached, try again: ") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
